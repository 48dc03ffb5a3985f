package indexer

import (
	"testing"
)

// pair is two streams that may share a hash space, and a third of another.
type pairTest struct {
	tb      *Table
	a, b, o *Holder
}

func newPair(t *testing.T) pairTest {
	t.Helper()
	tb := newTestTable(t, Options{})
	p := pairTest{tb: tb, a: tb.Open(streamA), b: tb.Open(streamB), o: tb.Open(streamC)}
	p.o.Store(space(9).run(GPU, newChain(1, 10), 0, 10))
	return p
}

func TestParentFromAnotherStream(t *testing.T) {
	c := newChain(1, 10)

	// The run holds a block that a knows in the same place.
	p := newPair(t)
	p.a.Store(space(1).run(GPU, c, 0, 6))
	want(t, "proven by the run", p.b.Store(space(1).run(GPU, c, 4, 9)), StoreResult{Stored: 5})
	if seq, ok := p.b.Lookup(space(1).engine(c.seq[8])); !ok || seq != c.seq[8] {
		t.Errorf("Lookup() = %x, %v", seq, ok)
	}
	wantGPU(t, p.tb, c, streamB, 0) // it never said that it holds block 0
	// From now on the pair is proven, for runs that a knows only the parent of.
	want(t, "proven before", p.b.Store(space(1).run(GPU, c.branch(2, 3, 2), 3, 5)), StoreResult{Stored: 2})

	// Something else that both stored proves it.
	p = newPair(t)
	d := newChain(3, 2)
	p.a.Store(space(1).run(GPU, c, 0, 6))
	want(t, "not proven", p.b.Store(space(1).run(GPU, c, 6, 7)), StoreResult{Orphaned: 1})
	p.a.Store(space(1).run(GPU, d, 0, 2))
	p.b.Store(space(1).run(CPU, d, 0, 1))
	want(t, "proven by a common block", p.b.Store(space(1).run(GPU, c.branch(2, 4, 1), 4, 5)), StoreResult{Stored: 1})
	want(t, "what was parked", p.b.Counts(), HolderCounts{Blocks: [NumTiers]int{2, 1, 0}})

	// a knows the run's first block, but no longer its parent.
	p = newPair(t)
	p.tb.keepLate = 1
	a := p.tb.Open(StreamID{"a2", 0})
	a.Store(space(1).run(GPU, c, 0, 6))
	a.Remove(GPU, space(1).engines(c.seq[3:4]))
	a.Remove(GPU, space(1).engines(c.seq[2:3]))
	want(t, "proven by the first block", p.b.Store(space(1).run(GPU, c, 4, 8)), StoreResult{Stored: 4})
	want(t, "relation", p.b.relations[a], shared)
}

func TestStreamsApart(t *testing.T) {
	c, d := newChain(1, 10), newChain(2, 10)

	// Other hash spaces: nothing in common.
	p := newPair(t)
	p.a.Store(space(2).run(GPU, c, 0, 6))
	want(t, "store", p.b.Store(space(1).run(GPU, c, 4, 9)), StoreResult{Orphaned: 5})

	// One engine hash, two meanings: disproven by the run.
	p = newPair(t)
	run := space(1).run(GPU, c, 4, 9)
	p.a.Store(Run{Engine: append([]EngineHash{run.Parent}, run.Engine...), Local: d.local[:6]})
	want(t, "store", p.b.Store(run), StoreResult{Orphaned: 5})
	want(t, "relation", p.a.relations[p.b], apart)
	// What would prove the contrary comes too late.
	p.a.Store(space(1).run(GPU, c, 9, 10))
	e := newChain(3, 3)
	p.a.Store(space(1).run(GPU, e, 0, 2))
	want(t, "store", p.b.Store(space(1).run(GPU, e, 1, 3)), StoreResult{Orphaned: 2})

	// The same, disproven by what both stored before.
	p = newPair(t)
	p.a.Store(Run{Engine: []EngineHash{7, 8}, Local: c.local[:2]})
	p.b.Store(Run{Engine: []EngineHash{7}, Local: d.local[:1]})
	r := Run{Parent: 8, HasParent: true, Engine: []EngineHash{9}, Local: c.local[2:3]}
	want(t, "store", p.b.Store(r), StoreResult{Orphaned: 1})
	want(t, "relation", p.b.relations[p.a], apart)

	// The same, disproven by the first block's tokens.
	p = newPair(t)
	p.tb.keepLate = 1
	a := p.tb.Open(StreamID{"a2", 0})
	a.Store(Run{Engine: []EngineHash{1, 2, 3}, Local: c.local[:3]})
	a.Remove(GPU, []EngineHash{2, 1}) // forgets 2
	r = Run{Parent: 2, HasParent: true, Engine: []EngineHash{3}, Local: d.local[:1]}
	want(t, "store", p.b.Store(r), StoreResult{Orphaned: 1})
	want(t, "relation", p.b.relations[a], apart)
	// Nor is anything gained where the engine hash of the parent differs.
	r = Run{Parent: 5, HasParent: true, Engine: []EngineHash{3}, Local: c.local[2:3]}
	want(t, "store", p.o.Store(r), StoreResult{Orphaned: 1})

	// A retired stream helps nobody, and is forgotten.
	p = newPair(t)
	p.a.Store(space(1).run(GPU, c, 0, 6))
	p.b.Store(space(1).run(GPU, c, 5, 6))
	p.a.Retire()
	want(t, "relations", len(p.b.relations), 0)
	want(t, "store", p.b.Store(space(1).run(GPU, c, 3, 4)), StoreResult{Orphaned: 1})
}

// TestSharingKeepsScopes: tenants are not in engine hashes, so two engines may
// name blocks of different scopes alike.
func TestSharingKeepsScopes(t *testing.T) {
	c := newChain(1, 10)
	run := func(scope ScopeKey, from, to int) Run {
		r := space(1).run(GPU, c, from, to)
		r.Scope = scope
		return r
	}
	f := func(ofA, ofB ScopeKey, help bool) {
		t.Helper()
		stored, parked := StoreResult{Stored: 5}, StoreResult{}
		if !help {
			stored, parked = parked, StoreResult{Orphaned: 5}
		}
		// At once, by the parent and by the first block, and from the lot.
		p := newPair(t)
		p.a.Store(run(ofA, 0, 6))
		got := p.b.Store(run(ofB, 4, 9))
		want(t, "by the parent", got, StoreResult{Stored: stored.Stored, Orphaned: parked.Orphaned})

		p = newPair(t)
		p.tb.keepLate = 1
		a := p.tb.Open(StreamID{"a2", 0})
		a.Store(run(ofA, 0, 6))
		a.Remove(GPU, space(1).engines(c.seq[3:4]))
		a.Remove(GPU, space(1).engines(c.seq[2:3]))
		got = p.b.Store(run(ofB, 4, 9))
		want(t, "by the first block", got, StoreResult{Stored: stored.Stored, Orphaned: parked.Orphaned})

		p = newPair(t)
		p.b.Store(run(ofB, 4, 9))
		p.a.Store(run(ofA, 0, 6))
		want(t, "from the lot", p.b.Counts().Orphans, parked.Orphaned)
	}
	f(0, 0, true)
	f(77, 77, true)
	f(0, 77, false)
	f(77, 0, false)
	f(77, 78, false)

	p := newPair(t)
	for i := range int(manyScopes) {
		p.tb.scopeID(ScopeKey(i + 1000))
	}
	want(t, "scopes", len(p.tb.sharing.scopes), int(manyScopes)-1)
	p.a.Store(run(77, 0, 6))
	want(t, "too many scopes", p.b.Store(run(77, 4, 9)), StoreResult{Orphaned: 5})
}

func TestImpliedAncestors(t *testing.T) {
	c := newChain(1, 10)
	names := space(1).engines(c.seq)
	p := newPair(t)
	p.b.SetPartial(true)
	p.a.Store(space(1).run(GPU, c, 0, 6))
	p.a.Remove(GPU, names[5:6]) // what a holds does not matter, only what it can tell

	want(t, "store", p.b.Store(space(1).run(GPU, c, 6, 8)), StoreResult{Orphaned: 2})
	p.b.Store(space(1).run(CPU, c, 6, 7))
	want(t, "store", p.b.Store(space(1).run(GPU, c, 5, 7)), StoreResult{Stored: 1, Duplicates: 1, Attached: 2, Implied: 5})
	want(t, "match", matched(t, p.tb, c)[streamB], [NumTiers]int{8, 8, 8})
	b, _ := p.tb.Block(c.seq[4])
	want(t, "block", b, BlockInfo{Seq: c.seq[4], Parent: c.seq[3], HasParent: true, Position: 4,
		Holders: []BlockHolder{{Stream: streamA, Tier: GPU, Copies: 1}, {Stream: streamB, Tier: GPU, Copies: 1}, {Stream: streamC, Tier: GPU, Copies: 1}}})

	// Later removals find them.
	removed, _ := p.b.Remove(GPU, names[3:4])
	want(t, "removed", removed, 1)
	wantGPU(t, p.tb, c, streamB, 3)

	// Not implied: what it stored or removed itself.
	p = newPair(t)
	p.b.SetPartial(true)
	p.a.Store(space(1).run(GPU, c, 0, 8))
	_, unknown := p.b.Remove(GPU, names[4:5]) // before it was ever stored
	want(t, "unknown", unknown, 1)
	p.b.Store(space(1).run(GPU, c, 0, 2))
	p.b.Remove(GPU, names[1:2])
	p.b.Store(space(1).run(CPU, c, 6, 7)) // with help; no proof for gpu, and it stays as it is
	want(t, "store", p.b.Store(space(1).run(GPU, c, 8, 9)), StoreResult{Stored: 1, Implied: 4})
	for i, held := range []bool{true, false, true, true, false, true, false, true, true} {
		b, _ := p.tb.Block(c.seq[i])
		got := false
		for _, h := range b.Holders {
			got = got || h.Stream == streamB && h.Tier == GPU
		}
		want(t, "held", got, held)
	}
	wantGPU(t, p.tb, c, streamB, 1)
}

func TestImpliedOnlyWhere(t *testing.T) {
	c := newChain(1, 10)
	names := space(1).engines(c.seq)
	f := func(what string, partial bool, tier Tier, res StoreResult) {
		t.Helper()
		p := newPair(t)
		p.b.SetPartial(partial)
		p.a.Store(space(1).run(GPU, c, 0, 6))
		want(t, what, p.b.Store(space(1).run(tier, c, 5, 8)), res)
	}
	f("partial in gpu", true, GPU, StoreResult{Stored: 3, Implied: 5})
	f("complete", false, GPU, StoreResult{Stored: 3})
	f("partial in cpu", true, CPU, StoreResult{Stored: 3})

	// Not for what is attached later: it may have been evicted meanwhile.
	p := newPair(t)
	p.b.SetPartial(true)
	p.b.Store(space(1).run(GPU, c, 5, 8))
	p.a.Store(space(1).run(GPU, c, 0, 6))
	want(t, "attached", p.b.Counts(), HolderCounts{Blocks: [NumTiers]int{3, 0, 0}})
	wantGPU(t, p.tb, c, streamB, 0)

	// Not beyond where the other stream's aliases end.
	p = newPair(t)
	p.tb.keepLate = 1
	a := p.tb.Open(StreamID{"a2", 0})
	a.Store(space(1).run(GPU, c, 0, 7))
	a.Remove(GPU, []EngineHash{names[2], names[3]}) // 2 is forgotten, 3 is late
	p.b.SetPartial(true)
	want(t, "store", p.b.Store(space(1).run(GPU, c, 6, 8)), StoreResult{Stored: 2, Implied: 3})
	p.b.Store(space(1).run(GPU, c, 0, 3))
	wantGPU(t, p.tb, c, streamB, 8)

	// Nor where a name on the way has got another meaning.
	p = newPair(t)
	p.a.Store(space(1).run(GPU, c, 0, 7))
	p.a.Remove(GPU, names[1:4])
	p.a.Store(Run{Engine: []EngineHash{names[2], names[3]}, Local: newChain(2, 2).local})
	p.b.SetPartial(true)
	want(t, "store", p.b.Store(space(1).run(GPU, c, 6, 8)), StoreResult{Stored: 2, Implied: 2})

	// Not where what b knows itself disproves a, further up.
	p = newPair(t)
	d := newChain(2, 1)
	p.b.SetPartial(true)
	for i := range maxCompared + 1 { // so that shares does not find it first
		p.b.Store(Run{Engine: []EngineHash{EngineHash(i)}, Local: []LocalHash{LocalHash(i)}})
	}
	p.b.Store(Run{Engine: names[:1], Local: d.local})
	p.a.Store(space(1).run(GPU, c, 0, 6))
	p.a.relate(p.b, true)
	want(t, "store", p.b.Store(space(1).run(GPU, c, 5, 8)), StoreResult{Orphaned: 3})
	want(t, "relation", p.b.relations[p.a], apart)
	// But another stream may help.
	a2 := p.tb.Open(StreamID{"a2", 0})
	a2.Store(space(1).run(GPU, c, 5, 6))
	a2.Store(space(1).run(GPU, c, 0, 5))
}

// TestOrphansOfOthers: what is parked is attached as soon as another stream
// that shares learns the parent.
func TestOrphansOfOthers(t *testing.T) {
	c := newChain(1, 10)

	// The other stream's run proves that they share.
	p := newPair(t)
	p.b.Store(space(1).run(GPU, c, 4, 9))
	want(t, "parked", p.b.Counts().Orphans, 5)
	p.a.Store(space(1).run(GPU, c, 0, 5))
	want(t, "attached", p.b.Counts(), HolderCounts{Blocks: [NumTiers]int{5, 0, 0}})

	// The proof comes later, and other parked runs are attached then.
	p = newPair(t)
	d := c.branch(2, 2, 3)
	p.b.Store(space(1).run(GPU, c, 4, 9))
	p.b.Store(space(1).run(CPU, d, 3, 5))
	p.a.Store(space(1).run(GPU, c, 0, 4))
	p.a.Store(space(1).run(GPU, d, 2, 3))
	want(t, "parked", p.b.Counts().Orphans, 7)
	p.b.Store(space(1).run(GPU, c, 0, 1))
	want(t, "parked", p.b.Counts().Orphans, 7) // a store with a known parent looks at nobody
	want(t, "store", p.b.Store(space(1).run(GPU, c, 3, 4)), StoreResult{Stored: 1, Attached: 5})
	want(t, "attached", p.b.Counts(), HolderCounts{Blocks: [NumTiers]int{7, 2, 0}})

	// No sharing, no help; and no help from or for the retired.
	p = newPair(t)
	p.b.Store(space(1).run(GPU, c, 4, 9))
	p.o.Store(space(1).run(GPU, c, 5, 9))
	p.o.Retire()
	run := space(1).run(GPU, c, 0, 4)
	run.Local = d.local[:4] // other blocks under these names
	p.a.Store(run)
	p.a.Store(Run{Parent: run.Engine[3], HasParent: true, Engine: space(1).engines(c.seq[4:5]), Local: d.local[4:5]})
	want(t, "parked", p.b.Counts().Orphans, 5)

	// A parked block whose own name is learnt elsewhere, not its parent's.
	p = newPair(t)
	p.tb.keepLate = 1
	a := p.tb.Open(StreamID{"a2", 0})
	a.Store(space(1).run(GPU, c, 0, 3))
	p.b.Store(space(1).run(GPU, c, 4, 6))
	p.b.Store(space(1).run(GPU, c, 3, 4))
	want(t, "parked", p.b.Counts().Orphans, 3)
	a.Store(space(1).run(GPU, c, 3, 5))
	want(t, "attached", p.b.Counts(), HolderCounts{Blocks: [NumTiers]int{3, 0, 0}})
}
