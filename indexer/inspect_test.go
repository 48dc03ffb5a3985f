package indexer

import "testing"

func TestBlock(t *testing.T) {
	tb := newTestTable(t, Options{})
	c := newChain(1, 3)
	if _, ok := tb.Block(c.seq[0]); ok {
		t.Error("a block that nobody holds is shown")
	}
	a, b := tb.Open(streamA), tb.Open(streamB)
	a.Store(space(1).run(GPU, c, 0, 3))
	a.Store(space(1).run(GPU, c, 1, 2))
	a.Store(space(1).run(Disk, c, 1, 2))
	b.Store(space(2).run(CPU, c, 0, 2))
	f := func(i int, info BlockInfo) {
		t.Helper()
		info.Seq, info.Position = c.seq[i], i
		if i > 0 {
			info.Parent, info.HasParent = c.seq[i-1], true
		}
		got, ok := tb.Block(c.seq[i])
		want(t, "shown", ok, true)
		want(t, "block", got, info)
	}
	f(0, BlockInfo{Holders: []BlockHolder{{Stream: streamA, Tier: GPU, Copies: 1}, {Stream: streamB, Tier: CPU, Copies: 1}}})
	f(1, BlockInfo{Holders: []BlockHolder{{Stream: streamA, Tier: GPU, Copies: 2}, {Stream: streamA, Tier: Disk, Copies: 1}, {Stream: streamB, Tier: CPU, Copies: 1}}})
	f(2, BlockInfo{Holders: []BlockHolder{{Stream: streamA, Tier: GPU, Copies: 1}}})
}

func TestWalk(t *testing.T) {
	tb := newTestTable(t, Options{})
	c := newChain(1, 40*walkSlabs*slabSize)
	h := tb.Open(streamA)
	h.Store(space(1).run(GPU, c, 0, len(c.seq)))
	seen := map[SeqHash]int{}
	tb.Walk(func(b BlockInfo) bool {
		seen[b.Seq] = b.Position
		if b.Position%100 == 0 { // the table may be used meanwhile
			h.Remove(GPU, []EngineHash{space(1).engine(b.Seq)})
			matched(t, tb, newChain(2, 1))
		}
		return true
	})
	want(t, "blocks", len(seen), len(c.seq))
	for i, seq := range c.seq {
		want(t, "position", seen[seq], i)
	}
	n := 0
	tb.Walk(func(BlockInfo) bool { n++; return n < 5 })
	want(t, "ended after", n, 5)
}
