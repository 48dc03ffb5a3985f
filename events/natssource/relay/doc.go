// Package relay publishes what an engine publishes to NATS JetStream, for
// natssource to read. It runs beside the engine, as a sidecar: on the loopback
// interface nothing is lost that cannot be fetched again.
//
// # Verbatim
//
// A relay does not look into batches. It puts the engine's stream in order, by
// the same machine that kvindex follows engines with (package events, without
// an index), and publishes each batch as it is, with the engine's own seq.
//
// # Boot ids
//
// Engines do not say which process they are. The relay does: when the machine
// finds that the incarnation is a new one, the relay makes a new boot id before
// it publishes anything more, and puts the news into the log at once, since the
// new process may publish nothing for hours. Ids are UUIDs of version 7, made
// so that each sorts after the one before, also after the last one in the log,
// so that a clock that was set back does no harm.
//
// A relay that starts looks for the last batch of its subject in the log, and
// follows the engine from there: if the engine's replay socket brings that
// batch again, unchanged, it is the same process, and it keeps its boot id.
// Anything else (an engine that has no replay socket, or whose buffer no longer
// reaches back so far) is a new incarnation.
//
// Two relays for the same (instance, rank) are a mistake: readers follow the
// one that started later.
//
// # When NATS is away
//
// Batches wait in the buffer that replays are served from, bounded in number
// and bytes. When it is full the oldest go, a whole prefix and never one in the
// middle: it is counted and logged, and readers see a gap in the seqs. What
// the buffer no longer has is asked for at the engine's replay socket, if a
// reader wants it.
package relay
