// Package events turns what engines publish into exact updates of an index.
//
// An engine (vLLM, SGLang) numbers its batches of KV-cache events and publishes
// them, one stream a data-parallel rank. What arrives is not what was published:
// messages get lost before the subscription and in full buffers, replays skip
// and stop early, engines restart without a word and count from 0 again. This
// package decides what each message means, applies what is sure, and says of
// the rest that it is missing.
//
//	frames ──> Session ──> machine.decide ──> Decoder ──> applier ──> indexer
//	           (a stream)   apply, drop,      bounded,    scopes,
//	                        replay, restart   per event   tiers, groups
//
// The parts, each in files of its name:
//
//   - machine: the recovery logic, a pure function of a state and an input. It
//     guarantees that batches are applied in order, each at most once, and never
//     those of two processes to one incarnation; and that a stream which lacks
//     something never counts as live.
//   - decode, msgpack: payload bytes to events, of every wire revision, in
//     bounded memory; one bad event costs nothing else.
//   - apply: events to updates: which tier, which scope, which attention group.
//   - session: one stream, put together; what transports talk to. Streams that
//     come out of a log, which names the process of every batch: *_log.
//   - fleet, instance: the set of followed model servers.
//
// An incarnation is the life of one engine process behind a stream. The index
// knows it as a holder: its end retires the holder at once, so that no answer
// ever contains a block of a dead process, however late its messages come.
//
// Transports live in sub-packages (zmqsource, natssource); so do the ways to find engines
// (discovery) and a fake engine that is the ground truth of tests (enginesim).
// The package itself opens no socket.
package events
