// Package natssource follows engines whose events come over NATS JetStream: for
// fleets whose pods cannot be dialled, or that many replicas follow.
//
// # Who does what
//
// A relay beside each engine (package relay) follows it on the loopback
// interface, where every batch can be fetched again, and publishes each batch,
// unchanged, to one JetStream stream that all relays share. Every process of
// kvindex reads all of that stream, in its order, at its own position:
//
//	engine ──ZMQ── relay ──> kv.events.MODEL.INSTANCE.RANK ──> JetStream ──> Source
//	                 ├──<──  kv.replay.MODEL.INSTANCE.RANK ──<─ what is missing ──┤
//	                 └──>──  kv.status.MODEL.INSTANCE.RANK ──>─ how far it is ────┘
//
// A subject is a stream in the sense of package events: one (instance,
// dp_rank). Instances appear in the fleet with the first message on one of
// their subjects, and leave it when their relay has been silent for long.
//
// # What is the truth
//
// JetStream is a transport and never the record: it acknowledges before it
// syncs, it can be purged or created anew, and its own sequence numbers say
// nothing about what an engine published. So continuity is judged for each
// stream by what the relay wrote into the headers: Kv-Boot, which names the
// engine's process and sorts by age, and Kv-Seq, the engine's own number. All
// decisions are the machine's in package events; this package only says what
// happened. A gap, wherever it comes from, is asked for at the relay.
//
// That the end of the log is the end of the stream cannot be seen in the log.
// Each relay therefore says every two seconds, outside the log, which process
// it follows, which batch comes next and whether the engine is connected. A
// stream counts as connected while its relay says so, and a relay that falls
// silent is a lost connection, just as a broken socket is. What the relay says
// never begins an incarnation: only the log does, because only the log has an
// order. A Source that misses one asks the relay to put it into the log again.
//
// # Positions
//
// The position in JetStream only spares work: snapshots remember it (Position,
// StartAt), and a restart need not read the whole log again. It is compared with the stream
// before anything is consumed, for JetStream does not complain: asked for a
// message that has been purged it silently begins later, and asked for one
// beyond the end (of a stream that was created anew) it silently delivers
// nothing, for ever. The comparison is repeated after every reconnect and every
// few seconds.
package natssource
