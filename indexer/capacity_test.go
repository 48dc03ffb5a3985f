package indexer

import (
	"fmt"
	"testing"
)

// TestMaxBlocks: beyond the bound nothing new gets in, what is there is answered,
// and removals make room.
func TestMaxBlocks(t *testing.T) {
	x := newIndex(t, Options{MaxBlocks: 10})
	tb := x.Table(TableKey{"m", testBlockSize, false})
	a, b := tb.Open(streamA), tb.Open(streamB)
	c, d := newChain(1, 8), newChain(2, 8)
	want(t, "fits", a.Store(space(1).run(GPU, c, 0, 8)), StoreResult{Stored: 8})
	want(t, "fits in part", a.Store(space(1).run(GPU, d, 0, 6)), StoreResult{Stored: 2, Refused: 4})
	wantGPU(t, tb, d, streamA, 2)
	want(t, "another holder", b.Store(space(1).run(GPU, c, 0, 8)), StoreResult{Stored: 8})
	want(t, "another tier", a.Store(space(1).run(CPU, c, 0, 8)), StoreResult{Stored: 8})
	want(t, "another name", b.Store(space(2).run(CPU, d, 0, 2)), StoreResult{Stored: 2})
	want(t, "a third chain", b.Store(space(1).run(GPU, newChain(3, 3), 0, 3)), StoreResult{Refused: 3})
	want(t, "refused", tb.Stats().Refused, Refused{Blocks: 7})

	// What was not admitted is a hole: what comes after it waits, and matches
	// only once the hole is closed.
	want(t, "after the hole", a.Store(space(1).run(GPU, d, 6, 7)), StoreResult{Orphaned: 1})
	wantGPU(t, tb, d, streamA, 2)
	_, unknown := a.Remove(GPU, space(1).engines(d.seq[2:6]))
	want(t, "unknown", unknown, 4)

	// Another index of the same model, and another model, count too.
	other := x.Table(TableKey{"n", testBlockSize, false}).Open(streamA)
	want(t, "another table", other.Store(space(1).run(GPU, c, 0, 1)), StoreResult{Refused: 1})

	b.Remove(GPU, space(1).engines(c.seq[3:]))
	a.Remove(GPU, space(1).engines(c.seq[3:]))
	want(t, "no room yet", a.Store(space(1).run(GPU, d, 2, 3)), StoreResult{Refused: 1})
	a.Remove(CPU, space(1).engines(c.seq[3:]))
	want(t, "room again", a.Store(space(1).run(GPU, d, 0, 6)), StoreResult{Stored: 4, Duplicates: 2, Attached: 1})
	wantGPU(t, tb, d, streamA, 7)
	want(t, "another table", other.Store(space(1).run(GPU, c, 0, 1)), StoreResult{Refused: 1})
	want(t, "blocks", int(x.quota.blocks.Load()), 10)

	// A retired holder's blocks make room when they are swept.
	a.Retire()
	b.Retire()
	waitSwept(t, x)
	want(t, "blocks", int(x.quota.blocks.Load()), 0)
	want(t, "room again", other.Store(space(1).run(GPU, c, 0, 8)), StoreResult{Stored: 8})
}

func TestMaxModelBlocks(t *testing.T) {
	x := newIndex(t, Options{MaxModelBlocks: 5, MaxBlocks: 8})
	c := newChain(1, 10)
	store := func(key TableKey, stored int) {
		t.Helper()
		got := x.Table(key).Open(streamA).Store(space(1).run(GPU, c, 0, 10))
		want(t, fmt.Sprint(key), got, StoreResult{Stored: stored, Refused: 10 - stored})
	}
	store(TableKey{"m", testBlockSize, false}, 5)
	store(TableKey{"m", 2 * testBlockSize, false}, 0)
	store(TableKey{"n", testBlockSize, false}, 3)
	store(TableKey{"o", testBlockSize, false}, 0)
}

// TestMaxBytes: memory ends near the bound, and what is freed is used again.
func TestMaxBytes(t *testing.T) {
	const limit = 4 << 20
	for _, o := range []Options{{MaxBytes: limit}, {MaxModelBytes: limit}} {
		tb := newTestTable(t, o)
		h := tb.Open(streamA)
		var cs []chain
		refused := 0
		for i := range uint64(1200) {
			c := newChain(i, 100)
			r := h.Store(space(1).run(GPU, c, 0, 100))
			wantGPU(t, tb, c, streamA, r.Stored)
			want(t, "stored and refused", r.Stored+r.Refused, 100)
			refused += r.Refused
			cs = append(cs, c)
		}
		s := tb.Stats()
		if refused == 0 || s.Refused.Bytes != int64(refused) || s.Bytes > limit+limit/10 || s.Bytes < limit*8/10 {
			t.Errorf("%d blocks in %d bytes, %d refused, %+v", s.UniqueBlocks, s.Bytes, refused, s.Refused)
		}
		t.Logf("%d blocks in %d bytes", s.UniqueBlocks, s.Bytes)

		// Orphans need memory, too, and further names.
		d := newChain(9999, 50_000)
		r := h.Store(space(1).run(GPU, d, 1, len(d.seq)))
		want(t, "orphaned and refused", r.Orphaned+r.Refused, len(d.seq)-1)
		if r.Refused == 0 {
			t.Error("orphans have no bound")
		}

		for _, c := range cs {
			h.Remove(GPU, space(1).engines(c.seq))
		}
		want(t, "blocks", tb.Stats().UniqueBlocks, 0)
		stored := 0
		for i := range uint64(1000) {
			stored += h.Store(space(1).run(GPU, newChain(5000+i, 100), 0, 100)).Stored
		}
		if stored < s.UniqueBlocks*7/10 { // some of the memory is in other uses now
			t.Errorf("after all had gone %d blocks fit, before %d", stored, s.UniqueBlocks)
		}
		if now := tb.Stats().Bytes; now > limit+limit/10 {
			t.Errorf("%d bytes", now)
		}
		h.Retire()
	}
}

// TestMaxBytesManyNames: a block's further names are refused like blocks.
func TestMaxBytesManyNames(t *testing.T) {
	tb := newTestTable(t, Options{MaxBytes: 1 << 20})
	c := newChain(1, 4000)
	sum := StoreResult{}
	for i := range 60 {
		h := tb.Open(StreamID{"pod", i})
		r := h.Store(space(i).run(GPU, c, 0, len(c.seq)))
		want(t, "stored and refused", r.Stored+r.Refused, len(c.seq))
		wantGPU(t, tb, c, h.id, r.Stored)
		sum.Refused += r.Refused
	}
	if s := tb.Stats(); sum.Refused == 0 || s.Bytes > 2<<20 {
		t.Errorf("%d refused, %d bytes", sum.Refused, s.Bytes)
	}
}

func TestZeroIsNoKey(t *testing.T) {
	tb := newTestTable(t, Options{})
	h := tb.Open(streamA)
	want(t, "store", h.Store(Run{Engine: []EngineHash{1, 2}, Local: []LocalHash{0, 5}}), StoreResult{Dropped: 2})
	var r Result
	tb.MatchSeq([]SeqHash{0, 0}, 0, &r)
	want(t, "streams", len(r.Streams), 0)
	c := newChain(1, 2)
	h.Store(space(1).run(GPU, c, 0, 2))
	tb.MatchSeq([]SeqHash{c.seq[0], c.seq[1], 0}, 0, &r)
	want(t, "blocks", r.Streams[0].Blocks[GPU], 2)
}
