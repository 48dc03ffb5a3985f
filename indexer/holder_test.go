package indexer

import (
	"cmp"
	"math"
	"slices"
	"testing"
)

func TestDuplicates(t *testing.T) {
	f := func(policy DuplicatePolicy, removals int) {
		t.Helper()
		tb := newTestTable(t, Options{DuplicatePolicy: policy})
		h := tb.Open(streamA)
		c := newChain(1, 4)
		want(t, "first store", h.Store(space(1).run(GPU, c, 0, 4)), StoreResult{Stored: 4})
		want(t, "second store", h.Store(space(1).run(GPU, c, 2, 4)), StoreResult{Duplicates: 2})
		want(t, "store elsewhere", h.Store(space(1).run(CPU, c, 3, 4)), StoreResult{Stored: 1})
		want(t, "counts", h.Counts(), HolderCounts{Blocks: [NumTiers]int{4, 1, 0}})
		last := []EngineHash{space(1).engine(c.seq[3])}
		for i := range removals {
			wantGPU(t, tb, c, streamA, 4)
			b, _ := tb.Block(c.seq[3])
			want(t, "holders", b.Holders, []BlockHolder{{Stream: streamA, Tier: GPU, Copies: removals - i}, {Stream: streamA, Tier: CPU, Copies: 1}})
			removed, unknown := h.Remove(GPU, last)
			want(t, "removed, unknown", [2]int{removed, unknown}, [2]int{1, 0})
		}
		wantGPU(t, tb, c, streamA, 3)
		removed, unknown := h.Remove(GPU, last)
		want(t, "removed, unknown", [2]int{removed, unknown}, [2]int{0, 1})
		want(t, "counts", h.Counts(), HolderCounts{Blocks: [NumTiers]int{3, 1, 0}})
	}
	f(Refcount, 2)
	f(Set, 1)
}

// TestTwoNamesOfOneBlock: namespaces that events do not tell give one prefix
// several engine hashes. Each is counted for itself.
func TestTwoNamesOfOneBlock(t *testing.T) {
	for _, policy := range []DuplicatePolicy{Refcount, Set} {
		tb := newTestTable(t, Options{DuplicatePolicy: policy})
		h := tb.Open(streamA)
		c := newChain(1, 2)
		h.Store(space(1).run(GPU, c, 0, 2))
		want(t, "store", h.Store(space(2).run(GPU, c, 0, 2)), StoreResult{Duplicates: 2})
		b, _ := tb.Block(c.seq[0])
		want(t, "holders", b.Holders, []BlockHolder{{Stream: streamA, Tier: GPU, Copies: 2}})
		h.Remove(GPU, space(1).engines(c.seq))
		_, unknown := h.Remove(GPU, space(1).engines(c.seq))
		want(t, "unknown", unknown, 2)
		wantGPU(t, tb, c, streamA, 2)
		h.Remove(GPU, space(2).engines(c.seq))
		wantGPU(t, tb, c, streamA, 0)
	}
}

func TestCopiesSaturate(t *testing.T) {
	tb := newTestTable(t, Options{})
	h := tb.Open(streamA)
	c := newChain(1, 1)
	run := space(1).run(GPU, c, 0, 1)
	for range math.MaxUint16 + 10 {
		h.Store(run)
	}
	b, _ := tb.Block(c.seq[0])
	want(t, "copies", b.Holders[0].Copies, math.MaxUint16)
	for range math.MaxUint16 {
		h.Remove(GPU, run.Engine)
	}
	wantGPU(t, tb, c, streamA, 0)
}

func TestRemovedThenStoredInOneBatch(t *testing.T) {
	tb := newTestTable(t, Options{})
	h := tb.Open(streamA)
	c := newChain(1, 4)
	h.Store(space(1).run(GPU, c, 0, 4))
	h.Remove(GPU, space(1).engines(c.seq[2:3]))
	h.Store(space(1).run(GPU, c, 2, 3))
	wantGPU(t, tb, c, streamA, 4)
}

func TestHolesHeal(t *testing.T) {
	tb := newTestTable(t, Options{})
	h := tb.Open(streamA)
	c := newChain(1, 8)
	h.Store(space(1).run(GPU, c, 0, 8))
	for _, hole := range []int{5, 2, 0} {
		h.Remove(GPU, space(1).engines(c.seq[hole:hole+1]))
		wantGPU(t, tb, c, streamA, hole)
	}
	h.Store(space(1).run(GPU, c, 0, 1))
	wantGPU(t, tb, c, streamA, 2)
	h.Store(space(1).run(GPU, c, 5, 6))
	wantGPU(t, tb, c, streamA, 2)
	h.Store(space(1).run(GPU, c, 2, 3))
	wantGPU(t, tb, c, streamA, 8)
}

func TestParentInAnotherTier(t *testing.T) {
	tb := newTestTable(t, Options{})
	h := tb.Open(streamA)
	c := newChain(1, 4)
	h.Store(space(1).run(CPU, c, 0, 2))
	want(t, "store", h.Store(space(1).run(GPU, c, 2, 4)), StoreResult{Stored: 2})
	want(t, "match", matched(t, tb, c)[streamA], [NumTiers]int{0, 4, 4})
	h.Store(space(1).run(GPU, c, 0, 2))
	want(t, "match", matched(t, tb, c)[streamA], [NumTiers]int{4, 4, 4})
}

func TestLocate(t *testing.T) {
	tb := newTestTable(t, Options{})
	h := tb.Open(streamA)
	c := newChain(1, 4)
	names := space(1).engines(c.seq)
	h.Store(space(1).run(GPU, c, 0, 4))
	known, unknown := h.Locate(CPU, append(names[1:3:3], 12345))
	want(t, "known, unknown", [2]int{known, unknown}, [2]int{2, 1})
	h.Remove(GPU, names[1:])
	want(t, "match", matched(t, tb, c)[streamA], [NumTiers]int{1, 3, 3})

	// The copy in cpu may be told after the removal from gpu, leaf first.
	h.Remove(GPU, names[:1])
	known, _ = h.Locate(CPU, []EngineHash{names[3], names[0]})
	want(t, "known", known, 2)
	want(t, "match", matched(t, tb, c)[streamA], [NumTiers]int{0, 4, 4})
	b, _ := tb.Block(c.seq[3])
	want(t, "block", b, BlockInfo{Seq: c.seq[3], Parent: c.seq[2], HasParent: true, Position: 3, Holders: []BlockHolder{{Stream: streamA, Tier: CPU, Copies: 1}}})

	_, unknown = h.Locate(NumTiers, names)
	want(t, "unknown in no tier", unknown, 4)
}

// TestForgottenAliases: with the alias of a removed block forgotten, what is
// stored under it waits until the block is stored again.
func TestForgottenAliases(t *testing.T) {
	tb := newTestTable(t, Options{})
	tb.keepLate = 2
	h := tb.Open(streamA)
	c := newChain(1, 6)
	names := space(1).engines(c.seq)
	h.Store(space(1).run(GPU, c, 0, 5))
	h.Remove(GPU, names[1:5]) // forgets 1 and 2
	want(t, "child of a late alias", h.Store(space(1).run(GPU, c, 4, 5)), StoreResult{Stored: 1})
	want(t, "child of a forgotten one", h.Store(space(1).run(GPU, c, 2, 3)), StoreResult{Orphaned: 1})
	_, unknown := h.Locate(Disk, names[1:2])
	want(t, "forgotten", unknown, 1)
	wantGPU(t, tb, c, streamA, 1)
	want(t, "parent", h.Store(space(1).run(GPU, c, 1, 2)), StoreResult{Stored: 1, Attached: 1})
	wantGPU(t, tb, c, streamA, 3)
	// Block 3 is a late alias that nobody holds; its parent is known again.
	known, _ := h.Locate(GPU, names[3:4])
	want(t, "known", known, 1)
	wantGPU(t, tb, c, streamA, 5)

	// Now 3 and 4 are the latest. Nobody holds 3, nor tells its parent.
	h.Remove(GPU, names[:5])
	known, _ = h.Locate(GPU, names[:4])
	want(t, "known", known, 0)
	known, _ = h.Locate(GPU, names[4:5])
	want(t, "known", known, 1)
	wantGPU(t, tb, c, streamA, 0)
}

func TestClear(t *testing.T) {
	tb := newTestTable(t, Options{})
	h := tb.Open(streamA)
	c := newChain(1, 3*clearSlabs*slabSize) // so that the lock is given up in between
	d := newChain(2, 4)
	h.Clear(GPU) // of nothing
	h.Store(space(1).run(GPU, c, 0, len(c.seq)))
	h.Store(space(1).run(GPU, c, 2, 5))
	h.Store(space(1).run(CPU, c, 0, 3))
	h.Store(space(1).run(GPU, d, 1, 3)) // parked
	h.Store(space(1).run(CPU, d, 1, 2))
	h.Clear(GPU)
	want(t, "match", matched(t, tb, c)[streamA], [NumTiers]int{0, 3, 3})
	want(t, "counts", h.Counts(), HolderCounts{Blocks: [NumTiers]int{0, 3, 0}, Orphans: 1})
	h.Store(space(1).run(GPU, d, 0, 1))
	want(t, "match of what was parked", matched(t, tb, d)[streamA], [NumTiers]int{1, 2, 2})
	h.Clear(CPU)
	h.Clear(GPU)
	want(t, "counts", h.Counts(), HolderCounts{})
	want(t, "blocks", tb.Stats().UniqueBlocks, 0)
	h.Clear(NumTiers)
}

func TestRetire(t *testing.T) {
	x := newIndex(t, Options{})
	tb := x.Table(TableKey{"m", testBlockSize, false})
	c := newChain(1, 3*clearSlabs*slabSize)
	old, other := tb.Open(streamA), tb.Open(streamB)
	old.Store(space(1).run(GPU, c, 0, len(c.seq)))
	old.Store(space(1).run(GPU, newChain(2, 5), 1, 5))
	other.Store(space(2).run(GPU, c, 0, 2))
	old.Retire()
	old.Retire()
	if _, ok := tb.Block(c.seq[5]); ok {
		t.Error("a block of a retired holder is shown")
	}
	now := tb.Open(streamA)
	now.Store(space(1).run(CPU, c, 0, 1))

	want(t, "match", matched(t, tb, c), map[StreamID][NumTiers]int{streamA: {0, 1, 1}, streamB: {2, 2, 2}})
	s := tb.Stats()
	want(t, "blocks, holders, orphans", [3]int{s.UniqueBlocks, s.Holders, s.OrphanBlocks}, [3]int{2, 2, 0})
	want(t, "pairs", s.Pairs, [NumTiers]int{2, 1, 0})
	if _, ok := tb.Block(c.seq[5]); ok {
		t.Error("a block of a retired holder is shown")
	}
	b, _ := tb.Block(c.seq[0])
	slices.SortFunc(b.Holders, func(a, b BlockHolder) int { return cmp.Compare(a.Stream.Instance, b.Stream.Instance) })
	want(t, "holders", b.Holders, []BlockHolder{{Stream: streamA, Tier: CPU, Copies: 1}, {Stream: streamB, Tier: GPU, Copies: 1}})
	shown := 0
	tb.Walk(func(BlockInfo) bool { shown++; return true })
	want(t, "walked", shown, 2)

	// Late events touch nothing.
	want(t, "store", old.Store(space(1).run(GPU, c, 0, 9)), StoreResult{})
	removed, unknown := old.Remove(GPU, space(1).engines(c.seq))
	known, unknownToo := old.Locate(GPU, space(1).engines(c.seq))
	want(t, "late events", [4]int{removed, unknown, known, unknownToo}, [4]int{})
	old.Clear(GPU)
	want(t, "counts", old.Counts(), HolderCounts{})
	if _, ok := old.Lookup(space(1).engine(c.seq[0])); ok {
		t.Error("a retired holder looks up")
	}
	want(t, "match", matched(t, tb, c), map[StreamID][NumTiers]int{streamA: {0, 1, 1}, streamB: {2, 2, 2}})

	waitSwept(t, x)
	s = tb.Stats()
	want(t, "sets", s.Sets, 3) // two blocks, and one of them under two names
	// The slot is used again: by the new incarnation already if the sweeper was
	// that fast, else by the next holder.
	if again := tb.Open(streamC); now.slot != old.slot && again.slot != old.slot {
		t.Errorf("slot %d was swept, but %d is used", old.slot, again.slot)
	}
	want(t, "match", matched(t, tb, c), map[StreamID][NumTiers]int{streamA: {0, 1, 1}, streamB: {2, 2, 2}})
}

func TestRetireAfterClose(t *testing.T) {
	x, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	tb := x.Table(TableKey{"m", testBlockSize, false})
	c := newChain(1, 4)
	h := tb.Open(streamA)
	x.Close()
	h.Store(space(1).run(GPU, c, 0, 4))
	wantGPU(t, tb, c, streamA, 4)
	h.Retire()
	wantGPU(t, tb, c, streamA, 0)
	want(t, "waiting for the sweeper", tb.Stats().Retired, 1)
}

func TestCloseDuringSweep(t *testing.T) {
	x, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	tb := x.Table(TableKey{"m", testBlockSize, false})
	c := newChain(1, 20*clearSlabs*slabSize)
	for i := range 4 {
		h := tb.Open(StreamID{"pod", i})
		h.Store(space(i).run(GPU, c, 0, len(c.seq)))
		h.Retire()
	}
	x.Close()
	wantGPU(t, tb, c, streamA, 0)
}

func TestLookup(t *testing.T) {
	tb := newTestTable(t, Options{})
	h := tb.Open(streamA)
	c := newChain(1, 4)
	h.Store(space(1).run(GPU, c, 0, 2))
	h.Store(space(1).run(GPU, c, 3, 4))
	for i, held := range []bool{true, true, false, false} {
		seq, ok := h.Lookup(space(1).engine(c.seq[i]))
		if ok != held || ok && seq != c.seq[i] {
			t.Errorf("block %d: Lookup() = %x, %v", i, seq, ok)
		}
	}
	h.Remove(GPU, space(1).engines(c.seq[:1]))
	if _, ok := h.Lookup(space(1).engine(c.seq[0])); ok {
		t.Error("a removed block is found")
	}
}

func TestMalformedRuns(t *testing.T) {
	tb := newTestTable(t, Options{})
	h := tb.Open(streamA)
	want(t, "stream", h.Stream(), streamA)
	want(t, "lengths differ", h.Store(Run{Engine: []EngineHash{1, 2}, Local: []LocalHash{1}}), StoreResult{Dropped: 2})
	want(t, "no such tier", h.Store(Run{Tier: NumTiers, Engine: []EngineHash{1}, Local: []LocalHash{1}}), StoreResult{Dropped: 1})
	want(t, "empty", h.Store(Run{}), StoreResult{})
	want(t, "empty under a parent", h.Store(Run{Parent: 5, HasParent: true}), StoreResult{})
	_, unknown := h.Remove(NumTiers, []EngineHash{1})
	want(t, "unknown", unknown, 1)
	want(t, "counts", h.Counts(), HolderCounts{})
}

// TestConflict: one engine hash that names two blocks at once.
func TestConflict(t *testing.T) {
	tb := newTestTable(t, Options{})
	h := tb.Open(streamA)
	c, d, e := newChain(1, 3), newChain(2, 3), newChain(3, 1)
	store := func(c chain, tier Tier, res StoreResult) {
		t.Helper()
		want(t, "store", h.Store(Run{Tier: tier, Engine: []EngineHash{7}, Local: c.local[:1]}), res)
	}
	match := func(inC, inD, inE int) {
		t.Helper()
		wantGPU(t, tb, c, streamA, inC)
		wantGPU(t, tb, d, streamA, inD)
		wantGPU(t, tb, e, streamA, inE)
	}
	store(c, GPU, StoreResult{Stored: 1})
	store(c, GPU, StoreResult{Duplicates: 1})
	store(d, GPU, StoreResult{Stored: 1, Conflicts: 1})
	store(d, GPU, StoreResult{Duplicates: 1})
	store(e, CPU, StoreResult{Stored: 1, Conflicts: 1})
	store(c, GPU, StoreResult{Duplicates: 1})
	match(1, 1, 0)
	if _, ok := h.Lookup(7); ok {
		t.Error("an ambiguous name is looked up")
	}
	_, unknown := h.Locate(Disk, []EngineHash{7})
	want(t, "unknown", unknown, 1)

	// No child is put under any of them.
	child := Run{Tier: GPU, Parent: 7, HasParent: true, Engine: []EngineHash{8}, Local: c.local[1:2]}
	want(t, "child", h.Store(child), StoreResult{Dropped: 1})

	// A removal takes all that it may mean.
	removed, _ := h.Remove(GPU, []EngineHash{7})
	want(t, "removed", removed, 1)
	match(0, 0, 0)
	want(t, "match", matched(t, tb, e)[streamA], [NumTiers]int{0, 1, 1})

	// The name has one meaning again.
	if seq, ok := h.Lookup(7); !ok || seq != e.seq[0] {
		t.Errorf("Lookup() = %x, %v", seq, ok)
	}
	_, unknown = h.Remove(GPU, []EngineHash{7})
	want(t, "unknown", unknown, 1)
	h.Remove(CPU, []EngineHash{7})
	store(c, GPU, StoreResult{Stored: 1})
	want(t, "child", h.Store(child), StoreResult{Stored: 1})
	wantGPU(t, tb, c, streamA, 2)

	// Again, and all go at once; and with a clear; and when retired.
	store(d, GPU, StoreResult{Stored: 1, Conflicts: 1})
	h.Remove(GPU, []EngineHash{7, 8})
	match(0, 0, 0)
	store(c, GPU, StoreResult{Stored: 1})
	store(d, GPU, StoreResult{Stored: 1, Conflicts: 1})
	store(d, Disk, StoreResult{Stored: 1})
	h.Clear(GPU)
	match(0, 0, 0)
	store(c, GPU, StoreResult{Stored: 1, Conflicts: 1})
	h.Retire()
	match(0, 0, 0)
}
