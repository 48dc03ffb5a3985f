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
// removes both, and leads to no children. So an answer may be too low after
// such trouble, and StoreResult counts it; it is not too high.
//
// # Concurrency
//
// Any number of goroutines match and inspect while streams write. Each Holder
// is written by the one goroutine of its stream; writers of one table take
// turns, block matches for no longer than one map update, and never wait for a
// match as a whole. An Index has one goroutine, which frees what retired
// holders held; Close waits for it.
//
// # Inside
//
// A table is 256 locked maps from key to (parent, position, set). A set says who
// holds the block, by tier, and is interned: blocks with the same holders have
// the same set, so that a match need only look closer where the set changes.
// Retire takes a bit out of the mask that matches begin with. Nothing outside
// this package depends on that.
package indexer
