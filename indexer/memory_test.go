package indexer

import (
	"runtime"
	"testing"
)

// TestOrphansDoNotLeak: parked blocks that were removed, attached or retired
// leave nothing, in the lot or in what the table keeps for it.
func TestOrphansDoNotLeak(t *testing.T) {
	x := newIndex(t, Options{MaxOrphanBlocks: 4000})
	tb := x.Table(TableKey{"m", testBlockSize, false})
	var heap uint64
	var bytes int64
	for turn := range 12 {
		h := tb.Open(streamA)
		for i := range 40 {
			c := newChain(uint64(100*turn+i), 60)
			h.Store(space(1).run(GPU, c, 1, 60))
			switch i % 4 {
			case 0:
				h.Remove(GPU, space(1).engines(c.seq))
			case 1:
				h.Store(space(1).run(GPU, c, 0, 1))
			case 2:
				h.Clear(GPU)
			}
		}
		h.Retire()
		waitSwept(t, x)
		want(t, "waiting", len(tb.sharing.waiting), 0)
		if turn == 3 {
			heap, bytes = heapBytes(), tb.Stats().Bytes
		}
	}
	if now := heapBytes(); float64(now) > 1.2*float64(heap) {
		t.Errorf("the heap grew from %d to %d bytes", heap, now)
	}
	if now := tb.Stats().Bytes; float64(now) > 1.2*float64(bytes) {
		t.Errorf("the table grew from %d to %d bytes", bytes, now)
	}
}

// TestBytesEstimate: the estimate is near what is really used.
func TestBytesEstimate(t *testing.T) {
	tb := newTestTable(t, Options{})
	const blocks, holders = 40_000, 3
	c := newChain(1, blocks)
	made := heapBytes()
	for i := range holders {
		h := tb.Open(StreamID{"pod", i})
		h.Store(space(i).run(GPU, c, 0, blocks))
		for j := range 2000 {
			h.Store(space(i).run(GPU, c, 2*j, 2*j+1)) // extra copies
			h.Store(Run{Parent: 1, HasParent: true, Engine: []EngineHash{EngineHash(j + 2)}, Local: c.local[:1]})
		}
	}
	got, est := float64(heapBytes()-made), float64(tb.Stats().Bytes)
	if est < got/1.6 || est > 1.6*got {
		t.Errorf("estimated %.0f bytes, %.0f are used", est, got)
	}
	t.Logf("%.0f bytes a block with %d holders (estimate %.0f)", got/blocks, holders, est/blocks)
	runtime.KeepAlive(c)
}

// TestWritesDoNotAllocate: once the maps have their size, events that make no new
// set of holders cost no memory.
func TestWritesDoNotAllocate(t *testing.T) {
	tb := newTestTable(t, Options{})
	c := newChain(1, 4000)
	h := tb.Open(streamA)
	h.Store(space(1).run(GPU, c, 0, 4000))
	names := space(1).engines(c.seq)
	h.Locate(CPU, names[8:9]) // so that there is a set of gpu and cpu
	runs := make([]Run, 0, 500)
	for i := 0; i < 4000; i += 8 {
		r := space(1).run(GPU, c, i, i+8)
		runs = append(runs, r)
	}
	for i := len(runs) - 1; i > 100; i-- { // fills the ring of late aliases
		h.Remove(GPU, runs[i].Engine)
		h.Store(runs[i])
	}
	i := 0
	f := func() {
		r := runs[101+i%399]
		i++
		h.Remove(GPU, r.Engine)
		h.Locate(CPU, names[:8])
		h.Remove(CPU, names[:8])
		h.Store(r)
		h.Store(r)
		h.Remove(GPU, r.Engine)
	}
	for range 1000 {
		f()
	}
	if n := testing.AllocsPerRun(1000, f); n > 0.1 {
		t.Errorf("an event allocates %v times", n)
	}
}
