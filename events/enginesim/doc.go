// Package enginesim is a fake LLM server as far as an index of its KV cache can
// tell: the wire protocol of vLLM's and SGLang's event publishers over real ZMQ
// sockets, driven by a block pool that is the ground truth. Tests, the demo and
// the load generator use it in place of an engine.
//
// It has three layers, each usable without those above it:
//
//   - Pool decides what is cached: vLLM's scheduler and KV-cache manager in
//     miniature. Run says how many tokens of a prompt the engine would have
//     found cached, Step returns the events of one scheduler step, Truth says
//     what is cached now in the index's own terms. Encoding turns events into
//     the bytes of a release.
//   - Stream decides what arrives: a publisher's sockets, sequence numbers and
//     replay buffer, with switches for everything that can go wrong on the way.
//   - Engine puts a Pool on a Stream for each of its ranks; Player puts a
//     Recording of a real engine there instead.
//
// # How real it is
//
// A pool that is given the requests of a recorded vLLM publishes the same
// events in the same batches, byte for byte where hashes can be computed (they
// depend on a seed and, for most recordings, on Python's pickle); the tests do
// so with releases from v0.14 to v0.32. All payloads in the recordings decode
// and encode again to the same bytes. What the sockets do beyond that is
// libzmq's own: a slow subscriber, a late one and a replay that overflows lose
// what they would lose in life.
//
// Left out: a model and its timing, more than one KV-cache group (sliding
// windows), multimodal inputs, partial blocks, transfers between engines. SGLang
// has its own hashes, payloads and replays here but vLLM's cache: no radix tree,
// so its removals and stores are cut differently.
//
// # Time and chance
//
// Everything is deterministic, given the seeds, a clock and the order of calls:
// nothing happens unless a call makes it happen, apart from replays, which are
// served when clients ask. Publishing returns when ZMQ has the message; when a
// subscriber has it is the subscriber's to tell. Before the first message,
// wait for it with WaitSubscribers: what a PUB sends before that is lost.
//
// Any number of engines share the two threads of one ZMQ context: an idle
// engine is a goroutine for its loop and one for each socket, all parked in
// Go's poller.
package enginesim
