package indexer

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestOrphanIsNoRoot(t *testing.T) {
	tb := newTestTable(t, Options{})
	h := tb.Open(streamA)
	c := newChain(1, 6)
	want(t, "store", h.Store(space(1).run(GPU, c, 2, 6)), StoreResult{Orphaned: 4})
	want(t, "counts", h.Counts(), HolderCounts{Orphans: 4})
	for from := range c.seq {
		want(t, "match", len(matched(t, tb, chainOf(c.tokens[from*testBlockSize:]))), 0)
	}
	var r Result
	tb.MatchSeq(c.seq[2:], 0, &r)
	want(t, "match", len(r.Streams), 0)
}

func TestOrphansAttach(t *testing.T) {
	// Every order of four parts of one chain, and of two branches.
	c := newChain(1, 8)
	d := c.branch(2, 4, 4)
	parts := []Run{
		space(1).run(GPU, c, 0, 2), space(1).run(GPU, c, 2, 5), space(1).run(GPU, c, 5, 8),
		space(1).run(GPU, d, 4, 8), space(1).run(CPU, c, 4, 6),
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		rng.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		tb := newTestTable(t, Options{})
		h := tb.Open(streamA)
		sum := StoreResult{}
		for _, p := range parts {
			r := h.Store(p)
			sum.Stored += r.Stored
			sum.Orphaned += r.Orphaned
			sum.Attached += r.Attached
		}
		want(t, "match", matched(t, tb, c)[streamA], [NumTiers]int{8, 8, 8})
		want(t, "match", matched(t, tb, d)[streamA], [NumTiers]int{8, 8, 8})
		want(t, "counts", h.Counts(), HolderCounts{Blocks: [NumTiers]int{12, 2, 0}})
		want(t, "blocks", sum.Stored+sum.Orphaned, 14)
	}
}

func TestOrphanCopies(t *testing.T) {
	f := func(policy DuplicatePolicy, left int) {
		t.Helper()
		tb := newTestTable(t, Options{DuplicatePolicy: policy})
		h := tb.Open(streamA)
		c := newChain(1, 4)
		h.Store(space(1).run(GPU, c, 2, 4))
		want(t, "again", h.Store(space(1).run(GPU, c, 2, 4)), StoreResult{Duplicates: 2})
		want(t, "elsewhere", h.Store(space(1).run(CPU, c, 3, 4)), StoreResult{Orphaned: 1})
		known, _ := h.Locate(Disk, space(1).engines(c.seq[3:]))
		want(t, "located", known, 1)
		removed, _ := h.Remove(GPU, space(1).engines(c.seq[2:]))
		want(t, "removed", removed, 2)
		want(t, "root", h.Store(space(1).run(GPU, c, 0, 2)), StoreResult{Stored: 2, Attached: 1 + min(left, 1)})
		wantGPU(t, tb, c, streamA, 2+2*left)
		b, _ := tb.Block(c.seq[3])
		holders := []BlockHolder{{Stream: streamA, Tier: GPU, Copies: 1}, {Stream: streamA, Tier: CPU, Copies: 1}, {Stream: streamA, Tier: Disk, Copies: 1}}
		want(t, "holders", b.Holders, holders[1-left:])
	}
	f(Refcount, 1)
	f(Set, 0)
}

// TestRemovedOrphan: a block that is removed while it is parked leaves a hole,
// and its descendants still find their place.
func TestRemovedOrphan(t *testing.T) {
	tb := newTestTable(t, Options{})
	h := tb.Open(streamA)
	c := newChain(1, 6)
	h.Store(space(1).run(GPU, c, 2, 6))
	removed, unknown := h.Remove(GPU, space(1).engines(c.seq[3:4]))
	want(t, "removed, unknown", [2]int{removed, unknown}, [2]int{1, 0})
	removed, unknown = h.Remove(GPU, space(1).engines(c.seq[3:4]))
	want(t, "removed, unknown", [2]int{removed, unknown}, [2]int{0, 1})
	want(t, "store", h.Store(space(1).run(GPU, c, 0, 2)), StoreResult{Stored: 2, Attached: 3})
	wantGPU(t, tb, c, streamA, 3)
	// The removed one is known by now: its next child is not parked.
	d := c.branch(2, 4, 1)
	want(t, "child of the hole", h.Store(space(1).run(GPU, d, 4, 5)), StoreResult{Stored: 1})
	want(t, "store", h.Store(space(1).run(GPU, c, 3, 4)), StoreResult{Stored: 1})
	wantGPU(t, tb, c, streamA, 6)
	wantGPU(t, tb, d, streamA, 5)
}

func TestRemovedOrphansLeaveNothing(t *testing.T) {
	tb := newTestTable(t, Options{})
	h := tb.Open(streamA)
	c := newChain(1, 6)
	d := c.branch(2, 4, 2)
	names := slices.Concat(space(1).engines(c.seq[2:]), space(1).engines(d.seq[4:]))
	rng := rand.New(rand.NewPCG(1, 1))
	for range 100 {
		h.Store(space(1).run(GPU, c, 2, 6))
		h.Store(space(1).run(GPU, d, 4, 6))
		want(t, "counts", h.Counts(), HolderCounts{Orphans: 6})
		rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		removed, _ := h.Remove(GPU, names)
		want(t, "removed", removed, 6)
		want(t, "counts", h.Counts(), HolderCounts{})
	}
	want(t, "waiting", len(tb.sharing.waiting), 0)
}

func TestOrphanBound(t *testing.T) {
	tb := newTestTable(t, Options{MaxOrphanBlocks: 5})
	h := tb.Open(streamA)
	c, d := newChain(1, 9), newChain(2, 9)
	want(t, "fits", h.Store(space(1).run(GPU, c, 1, 5)), StoreResult{Orphaned: 4})
	want(t, "fits in part", h.Store(space(1).run(GPU, d, 1, 4)), StoreResult{Orphaned: 1, Dropped: 2})
	want(t, "does not fit", h.Store(space(1).run(GPU, d, 4, 6)), StoreResult{Dropped: 2})
	want(t, "copies need no room", h.Store(space(1).run(GPU, c, 1, 5)), StoreResult{Duplicates: 4})
	want(t, "counts", h.Counts(), HolderCounts{Orphans: 5})
	want(t, "the others are stored", h.Store(space(1).run(GPU, d, 0, 1)), StoreResult{Stored: 1, Attached: 1})
	wantGPU(t, tb, d, streamA, 2)
	want(t, "room again", h.Store(space(1).run(GPU, newChain(3, 2), 1, 2)), StoreResult{Orphaned: 1})
}

// TestOrphanWithKnownBlocks: a run whose parent was forgotten, but which holds
// blocks that are known, is led back into place by those.
func TestOrphanWithKnownBlocks(t *testing.T) {
	tb := newTestTable(t, Options{})
	tb.keepLate = 1
	h := tb.Open(streamA)
	c := newChain(1, 8)
	d := c.branch(2, 4, 2)
	h.Store(space(1).run(GPU, c, 0, 5))
	h.Remove(GPU, space(1).engines(c.seq[1:4])) // 3 is late, 1 and 2 are forgotten
	want(t, "first block is known", h.Store(space(1).run(GPU, c, 4, 6)), StoreResult{Stored: 1, Duplicates: 1})
	h.Remove(GPU, space(1).engines(c.seq[:1])) // 3 is forgotten
	want(t, "first block is known", h.Store(space(1).run(GPU, c, 4, 6)), StoreResult{Duplicates: 2})
	want(t, "third block is known", h.Store(space(1).run(GPU, c, 2, 7)), StoreResult{Orphaned: 2, Stored: 1, Duplicates: 2})
	want(t, "none is known", h.Store(space(1).run(GPU, d, 4, 6)), StoreResult{Orphaned: 2})
	want(t, "root", h.Store(space(1).run(GPU, c, 0, 2)), StoreResult{Stored: 2, Attached: 4})
	wantGPU(t, tb, c, streamA, 7)
	wantGPU(t, tb, d, streamA, 6)
}

// TestOrphanConflicts: engines whose hashes do not stand for prefixes. Nothing
// loops, nothing leaks, nothing is invented.
func TestOrphanConflicts(t *testing.T) {
	c := newChain(1, 8)
	run := func(parent EngineHash, names ...EngineHash) Run {
		return Run{Parent: parent, HasParent: true, Engine: names, Local: c.local[:len(names)]}
	}
	f := func(what string, runs []Run, res StoreResult, orphans int) {
		t.Helper()
		tb := newTestTable(t, Options{})
		h := tb.Open(streamA)
		var last StoreResult
		for _, r := range runs {
			last = h.Store(r)
		}
		want(t, what, last, res)
		want(t, what+": counts", h.Counts().Orphans, orphans)
		checkInvariants(t, tb)
		// Whatever it is, removals take it away.
		for range 3 {
			h.Remove(GPU, []EngineHash{1, 2, 3, 4, 5, 6, 7, 8, 9})
		}
		want(t, what+": after removal", h.Counts(), HolderCounts{})
		want(t, what+": waiting", len(tb.sharing.waiting), 0)
	}
	f("its own parent", []Run{run(1, 1)}, StoreResult{Conflicts: 1, Dropped: 1}, 0)
	f("its own parent, in a run", []Run{run(1, 2, 2, 3)}, StoreResult{Orphaned: 1, Conflicts: 1, Dropped: 3}, 0)
	f("cycle of two", []Run{run(2, 1), run(1, 2)}, StoreResult{Conflicts: 1, Dropped: 1}, 1)
	f("cycle of three", []Run{run(3, 1), run(1, 2), run(2, 3)}, StoreResult{Conflicts: 1, Dropped: 1}, 2)
	f("cycle in one run", []Run{run(3, 1, 2, 3)}, StoreResult{Orphaned: 2, Conflicts: 1, Dropped: 1}, 2)
	f("two parents", []Run{run(9, 1), run(1, 4, 5), run(8, 2), run(2, 1)}, StoreResult{Conflicts: 1, Dropped: 4}, 1)
	f("other tokens", []Run{run(9, 1, 2), run(9, 3, 2)}, StoreResult{Orphaned: 1, Conflicts: 1, Dropped: 2}, 2)
	f("no cycle", []Run{run(2, 1), run(3, 2), run(4, 3)}, StoreResult{Orphaned: 1}, 3)
	held := Run{Engine: []EngineHash{1, 2}, Local: c.local[:2]}
	f("held as another", []Run{held, run(9, 3, 2, 4)}, StoreResult{Orphaned: 1, Conflicts: 1, Dropped: 2}, 1)
	f("parked as another", []Run{run(9, 2, 3, 4), held}, StoreResult{Stored: 2, Conflicts: 1, Dropped: 3}, 0)
	f("parked as a root", []Run{run(9, 1), run(1, 3), held}, StoreResult{Stored: 2, Conflicts: 1, Dropped: 2}, 0)
	f("parent is held, itself", []Run{held, run(1, 1)}, StoreResult{Stored: 1, Conflicts: 1}, 0)
}

// TestUnchainedHashes: pages with equal tokens have equal hashes, as engines had
// before their hashes were chained. What can be told apart is exact.
func TestUnchainedHashes(t *testing.T) {
	tb := newTestTable(t, Options{})
	h := tb.Open(streamA)
	c := chainOf(make([]uint32, 3*testBlockSize)) // one page three times
	r := h.Store(Run{Engine: []EngineHash{5, 5, 5}, Local: c.local})
	want(t, "store", r, StoreResult{Stored: 3, Conflicts: 2})
	wantGPU(t, tb, c, streamA, 3)
	h.Remove(GPU, []EngineHash{5})
	wantGPU(t, tb, c, streamA, 0)
	want(t, "counts", h.Counts(), HolderCounts{})
}

// TestAttachedOrphanConflict: the conflict shows only when the parent comes.
func TestAttachedOrphanConflict(t *testing.T) {
	tb := newTestTable(t, Options{})
	h := tb.Open(streamA)
	c := newChain(1, 4)
	d := newChain(2, 2)
	h.Store(Run{Parent: 9, HasParent: true, Engine: []EngineHash{1, 2}, Local: c.local[1:3]})
	// 9 becomes known, but the run that tells so says that 1 is another block.
	r := h.Store(Run{Engine: []EngineHash{1, 9}, Local: d.local})
	want(t, "store", r, StoreResult{Stored: 2, Conflicts: 1, Dropped: 2})
	wantGPU(t, tb, d, streamA, 2)
	want(t, "counts", h.Counts().Orphans, 0)
}

func TestDeepChainsAttach(t *testing.T) {
	tb := newTestTable(t, Options{})
	h := tb.Open(streamA)
	c := newChain(1, 20_000)
	for i := len(c.seq) - 1; i > 0; i-- { // the last block first
		h.Store(space(1).run(GPU, c, i, i+1))
	}
	want(t, "root", h.Store(space(1).run(GPU, c, 0, 1)), StoreResult{Stored: 1, Attached: 19_999})
	wantGPU(t, tb, c, streamA, 20_000)
}

// TestWideFanOut: many orphans under one parent, removed in any order.
func TestWideFanOut(t *testing.T) {
	tb := newTestTable(t, Options{})
	h := tb.Open(streamA)
	c := newChain(1, 1)
	names := make([]EngineHash, 20_000)
	for i := range names {
		names[i] = EngineHash(i + 100)
		h.Store(Run{Parent: 9, HasParent: true, Engine: names[i : i+1], Local: []LocalHash{LocalHash(i)}})
	}
	h.Remove(GPU, names[:10_000])
	want(t, "counts", h.Counts(), HolderCounts{Orphans: 10_000})
	want(t, "parent", h.Store(Run{Engine: []EngineHash{9}, Local: c.local}), StoreResult{Stored: 1, Attached: 10_000})
}
