package indexer

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// The tests in this file are what earlier designs of the index ran into.

// TestTrapFragmentedIDs: chains stay together when much comes and goes, a fifth
// of it one block at a time. Ids from a plain free list leave runs of two blocks.
func TestTrapFragmentedIDs(t *testing.T) {
	tb := newTestTable(t, Options{})
	const pods, capacity = 8, 3000
	rng := rand.New(rand.NewPCG(1, 1))
	type request struct {
		c   chain
		pod int
		pos int
	}
	var hs [pods]*Holder
	var lru [pods][]chain
	var used [pods]int
	for i := range hs {
		hs[i] = tb.Open(StreamID{"pod", i})
	}
	var active []request
	seed := uint64(0)
	play := func(blocks int) {
		for blocks > 0 {
			for len(active) < 16 {
				seed++
				active = append(active, request{newChain(seed, 32+rng.IntN(200)), rng.IntN(pods), 0})
			}
			i := rng.IntN(len(active))
			r := &active[i]
			n := 32
			if r.pos*5 > len(r.c.seq)*4 {
				n = 1
			}
			n = min(n, len(r.c.seq)-r.pos)
			hs[r.pod].Store(space(1).run(GPU, r.c, r.pos, r.pos+n))
			r.pos += n
			blocks -= n
			pod := r.pod
			used[pod] += n
			if r.pos == len(r.c.seq) {
				lru[pod] = append(lru[pod], r.c)
				active[i] = active[len(active)-1]
				active = active[:len(active)-1]
			}
			for used[pod] > capacity && len(lru[pod]) > 0 {
				c := lru[pod][0]
				lru[pod] = lru[pod][1:]
				used[pod] -= len(c.seq)
				for j := len(c.seq) - 1; j >= 0; j-- {
					hs[pod].Remove(GPU, space(1).engines(c.seq[j:j+1]))
				}
			}
		}
	}
	run := func() (float64, float64) {
		a := &tb.arena
		return float64(a.count) / float64(a.heads.len()), float64(int(a.slabs)*slabSize) / float64(a.count)
	}
	play(pods * capacity)
	fresh, _ := run()
	play(8 * pods * capacity)
	churned, slack := run()
	t.Logf("mean run %.1f blocks fresh, %.1f after 8 turnovers, %.2f ids a block", fresh, churned, slack)
	if churned < 16 || churned < 0.7*fresh || slack > 1.5 {
		t.Error("chains have come apart")
	}
}

// TestTrapOverflowMarks: marks of overflow are not cleared by removals. They must
// not pile up, and a look-up in vain ends even where all buckets have one.
func TestTrapOverflowMarks(t *testing.T) {
	x := buckets{mem: newMeter()}
	rng := rand.New(rand.NewPCG(1, 1))
	const ids = 100_000
	hashes := make([]uint64, ids)
	for i := range hashes {
		hashes[i] = rng.Uint64()
		x.room(hashes[i])
		x.put(hashes[i], uint32(i+1))
	}
	for turn := range 6 {
		for i := range hashes {
			x.replace(hashes[i], uint32(i+1), 0)
			hashes[i] = rng.Uint64()
			x.room(hashes[i])
			x.put(hashes[i], uint32(i+1))
		}
		marks, n := 0, 0
		for i := range x.segments {
			s := x.segments[i].Load()
			marks += s.marks
			n += len(s.b)
		}
		if marks*2 > n {
			t.Fatalf("after turn %d %d of %d buckets are marked", turn, marks, n)
		}
	}
	for i, h := range hashes {
		p := x.probe(h)
		for id := p.next(); id != uint32(i+1); id = p.next() {
			if id == 0 {
				t.Fatalf("id %d is not found", i+1)
			}
		}
	}

	s := x.segments[0].Load()
	for i := range s.b {
		s.b[i].ids[bucketSize-1] |= overflow
	}
	for h := uint64(1); h < 50_000; h++ {
		p := x.probe(h)
		for p.next() != 0 { // ends
		}
	}
}

// TestTrapFanOut: a shared system prompt has any number of continuations, and
// each goes without a look at the others.
func TestTrapFanOut(t *testing.T) {
	tb := newTestTable(t, Options{})
	h := tb.Open(streamA)
	c := newChain(1, 10)
	h.Store(space(1).run(GPU, c, 0, 10))
	const kids = 30_000
	names := make([]EngineHash, kids)
	for i := range names {
		names[i] = EngineHash(i) + 1
		h.Store(Run{Parent: space(1).engine(c.seq[9]), HasParent: true, Engine: names[i : i+1], Local: []LocalHash{LocalHash(i)}})
	}
	want(t, "blocks", tb.Stats().UniqueBlocks, kids+10)
	slots := int(tb.arena.slabs) * slabSize
	if slots > 3*kids/2 {
		t.Errorf("%d blocks take %d ids", kids, slots)
	}
	rand.New(rand.NewPCG(1, 1)).Shuffle(kids, func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, e := range names {
		h.Remove(GPU, []EngineHash{e})
	}
	want(t, "blocks", tb.Stats().UniqueBlocks, 10)
	wantGPU(t, tb, c, streamA, 10)
}

// TestTrapOrder: what a stream says in order waits for nothing. Whoever hands
// over the batches of one stream in another order sends most blocks to the lot.
func TestTrapOrder(t *testing.T) {
	c := newChain(1, 400)
	parked := func(order []int) int {
		tb := newTestTable(t, Options{})
		h := tb.Open(streamA)
		n := 0
		for _, i := range order {
			n += h.Store(space(1).run(GPU, c, 8*i, 8*i+8)).Orphaned
		}
		wantGPU(t, tb, c, streamA, 400)
		return n
	}
	order := make([]int, 50)
	for i := range order {
		order[i] = i
	}
	want(t, "parked in order", parked(order), 0)
	rand.New(rand.NewPCG(1, 1)).Shuffle(50, func(i, j int) { order[i], order[j] = order[j], order[i] })
	if n := parked(order); n < 200 {
		t.Errorf("%d blocks were parked", n)
	}
}

// TestTrapSetIDs: 512 pods with prefixes of different length make hundreds of
// thousands of sets on the way. Ids are used again, and readers do not mistake
// one set for another.
func TestTrapSetIDs(t *testing.T) {
	tb := newTestTable(t, Options{})
	const pods, length = 512, 600
	rng := rand.New(rand.NewPCG(1, 1))
	hs := make([]*Holder, pods)
	for i := range hs {
		hs[i] = tb.Open(StreamID{"pod", i})
	}
	for turn := range uint64(2) {
		c := newChain(turn, length)
		ends := map[StreamID][NumTiers]int{}
		for _, i := range rng.Perm(pods) {
			n := 1 + rng.IntN(length)
			hs[i].Store(space(1).run(GPU, c, 0, n))
			ends[hs[i].id] = [NumTiers]int{n, n, n}
		}
		want(t, "matches", matched(t, tb, c), ends)
		for _, i := range rng.Perm(pods) {
			hs[i].Remove(GPU, space(1).engines(c.seq[:ends[hs[i].id][GPU]]))
		}
		if n := len(tb.sets.uses); n > 16*length {
			t.Fatalf("turn %d: %d ids for at most %d sets", turn, n, length)
		}
	}
	want(t, "sets", tb.Stats().Sets, 0)
}

// TestTrapCopies: further copies are counted beside the sets, and leave nothing.
func TestTrapCopies(t *testing.T) {
	tb := newTestTable(t, Options{})
	h := tb.Open(streamA)
	c := newChain(1, 20)
	run := space(1).run(GPU, c, 0, 20)
	for i := range 5 {
		h.Store(run)
		want(t, "holders with copies", len(h.extra), 20*min(i, 1))
	}
	for i := range 5 {
		wantGPU(t, tb, c, streamA, 20)
		removed, _ := h.Remove(GPU, run.Engine)
		want(t, fmt.Sprint("removed ", i), removed, 20)
	}
	wantGPU(t, tb, c, streamA, 0)
	want(t, "copies", len(h.extra), 0)
}
