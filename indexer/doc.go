// Package indexer remembers which streams hold which KV-cache blocks, and
// answers how many leading blocks of a prompt each of them holds.
//
// # Keys
//
// A block is a fixed number of consecutive tokens whose KV is cached as one
// unit. Its key is our own hash of the whole prefix that ends with it
// (Hasher): equal keys mean equal prompts up to there, in an equal Scope. The
// engine's hash of a block is an alias inside the stream that announced it; it
// finds the block again when the engine removes it, or stores one after it.
//
// # Holders
//
// Blocks are of no use without their order, and reports are of no use after
// their engine died. So a Table, one for each model and block size, knows
// Holders: one incarnation of one stream each. An engine that restarted, was
// cleared, or can no longer be trusted is a new incarnation: Retire the old
// Holder, which costs next to nothing, and Open another. What arrives late for
// the old one touches nothing.
//
// An engine that goes on while some of its events were lost is none of these:
// what it held until then is suspect (Holder.Doubt), not worthless. It goes on to
// match, told apart from what is certain, until an event shows that the engine
// has it, or has not, or until it is dropped.
//
//	table := index.Table(indexer.TableKey{Model: "Qwen/Qwen3-0.6B", BlockSize: 16})
//	h := table.Open(indexer.StreamID{Instance: "pod-0"})
//	h.Store(indexer.Run{Tier: indexer.GPU, Engine: engineHashes, Local: localHashes})
//	var r indexer.Result
//	table.MatchTokens(tokens, 0, 0, &r) // r.Streams: who holds how many blocks
//
// # What an answer means
//
// A match ends at the first block that the holder does not have. It never
// contains a block that this incarnation has not been told to store (or, for
// partial holders, proved to hold: SetPartial), nor one whose removal has been
// applied. Holes are normal, for engines evict in any order: blocks after a
// hole count nothing until it closes, then they count again. A match that runs
// while events are applied sees each block as it is when the scan gets there.
//
// Where events contradict themselves, the index forgets rather than guesses:
// a run whose parent is unknown waits until the parent is known, and is never
// taken for the start of a prompt; an engine hash that names two blocks at once
// removes both, and leads to no children. Where a bound of Options is reached,
// what is new is not admitted, and is a hole. So an answer may be too low after
// such trouble, and StoreResult counts it; it is not too high.
//
// # Concurrency
//
// Any number of goroutines match while streams write; they take no lock and
// wait for nobody. Each Holder is written by the one goroutine of its stream;
// writers of one table take turns, and so do inspections. An Index has one
// goroutine, which frees what retired holders held; Close waits for it.
//
// # Inside
//
// Blocks, hundreds of millions of words in all, are in four parts without
// pointers, so that the garbage collector has nothing to walk:
//
//	 sequence hash                                  engine hash
//	      |                                              |
//	      v                                              v
//	+-----------+   id    +----------------------+    +-----------+
//	|  buckets  | ------> |  arena: slabs of 32  | <- |   names   |
//	+-----------+         |  key key key key ... |    +-----------+
//	                      |  set set set set ... |
//	                      +----------------------+
//	                           |   id
//	                           v
//	                      +----------------------+
//	                      |  sets: slots, bits   |
//	                      |  by tier; interned   |
//	                      +----------------------+
//
// The arena (arena.go) gives a chain of blocks consecutive ids in a slab: a match
// follows it without a look-up, and compares one key a slab, for a key stands
// for the whole prefix. Buckets (buckets.go) are cache lines of eight tagged ids,
// and find a block where no chain leads to it. A set (sets.go) says who holds a
// block in which tier; equal sets are one, so that a match looks closer only
// where the id changes, and one more holder costs nothing. Names (names.go) lead
// from engine hashes to entries, for all streams at once: what a name means to
// a stream is what the stream holds under it. A holder's place in the sets is its
// seat (seat.go); what is suspect of it has others (suspects.go), which a match
// joins. Beside these, each holder keeps
// what is rare in small maps: copies beyond the first (copies.go), names of
// blocks that went lately (late.go), runs whose parent is unknown (orphans.go).
//
// The invariants:
//
//  1. An entry has a set that is not empty, or it is free; its key leads to it.
//  2. A link between neighbours in a slab means parent and child: with that, a
//     key that agrees speaks for the keys before it.
//  3. A key is written last and zeroed first; a slab's word of links changes with
//     every entry that is freed, and a set's generation with every use of its
//     id. A reader who finds both as they were has read what was true.
//  4. A seat is in a block's set if and only if it is in that of one of its
//     names, as often as it has copies. Of the seats of one holder, one only is
//     under a name in a tier.
//  5. A slot is used again only when no set has it any more (sweep.go).
//  6. What is counted (blocks, bytes, uses of sets) equals a recount.
//
// Tests recount all of them. Nothing outside this package depends on any of this.
package indexer
