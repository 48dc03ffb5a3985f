package indexer

import (
	"runtime"
	"testing"
)

// The tests in this file are what compressed prefix trees get wrong or grow
// from.

// TestTreeSplitAcrossHolders: one stream loses the first block; what another
// holds of the same chain does not change. A tree that answers for a whole
// edge gives b 40 blocks.
func TestTreeSplitAcrossHolders(t *testing.T) {
	tb := newTestTable(t, Options{})
	c := newChain(1, 40)
	a, b := tb.Open(streamA), tb.Open(streamB)
	a.Store(space(1).run(GPU, c, 0, 40))
	b.Store(space(2).run(GPU, c, 0, 10))
	a.Remove(GPU, space(1).engines(c.seq[:1]))
	want(t, "matches", matched(t, tb, c), map[StreamID][NumTiers]int{streamB: {10, 10, 10}})
}

// TestTreeLostBlockReturns: a lost block comes back, and what follows it counts
// again. A tree that cut the descendants off answers 6.
func TestTreeLostBlockReturns(t *testing.T) {
	tb := newTestTable(t, Options{})
	c := newChain(1, 20)
	h := tb.Open(streamA)
	for i := 0; i < 20; i += 5 {
		h.Store(space(1).run(GPU, c, i, i+5))
	}
	h.Remove(GPU, space(1).engines(c.seq[5:6]))
	wantGPU(t, tb, c, streamA, 5)
	h.Store(space(1).run(GPU, c, 5, 6))
	wantGPU(t, tb, c, streamA, 20)
}

// TestTreeLateParentBatch: the batch with the parent comes last. A tree that
// drops what it cannot hang up answers 8.
func TestTreeLateParentBatch(t *testing.T) {
	tb := newTestTable(t, Options{})
	c := newChain(1, 16)
	h := tb.Open(streamA)
	h.Store(space(1).run(GPU, c, 8, 16))
	wantGPU(t, tb, c, streamA, 0)
	h.Store(space(1).run(GPU, c, 0, 8))
	wantGPU(t, tb, c, streamA, 16)
}

// TestTreeCutAndRegrown: chains are cut at changing places and regrown with
// other tails. A tree whose splits are never merged grows with every turn.
func TestTreeCutAndRegrown(t *testing.T) {
	tb := newTestTable(t, Options{})
	h := tb.Open(streamA)
	chains := make([]chain, 50)
	for i := range chains {
		chains[i] = newChain(uint64(i), 60)
		h.Store(space(1).run(GPU, chains[i], 0, 60))
	}
	turnover := func(turn int) {
		for i, c := range chains {
			at := 1 + (7*turn+i)%58
			for j := len(c.seq) - 1; j >= at; j-- {
				h.Remove(GPU, space(1).engines(c.seq[j:j+1]))
			}
			chains[i] = c.branch(uint64(1000*turn+i), at, 60-at)
			h.Store(space(1).run(GPU, chains[i], at, 60))
		}
	}
	turn := 1
	for ; turn < 5; turn++ { // fills what is bounded: late aliases, room in maps
		turnover(turn)
	}
	stats, heap := tb.Stats(), heapBytes()
	for ; turn < 40; turn++ {
		turnover(turn)
	}
	after := tb.Stats()
	want(t, "blocks, sets", [2]int{after.UniqueBlocks, after.Sets}, [2]int{3000, 1})
	want(t, "blocks", after.UniqueBlocks, stats.UniqueBlocks)
	if now := heapBytes(); float64(now) > 1.2*float64(heap) {
		t.Errorf("the heap grew from %d to %d bytes", heap, now)
	}
	for _, c := range chains {
		wantGPU(t, tb, c, streamA, 60)
	}
}

// heapBytes returns how much memory is in use.
func heapBytes() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
