package indexer

import (
	"flag"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var churnFor = flag.Duration("churn", 1500*time.Millisecond, "how long TestChurn takes")

// TestChurn: chains that do not change are answered exactly while other blocks
// and streams come and go, and while people look.
func TestChurn(t *testing.T) {
	x := newIndex(t, Options{MaxOrphanBlocks: 500})
	tb := x.Table(TableKey{"m", testBlockSize, false})

	// Stable: 20 chains of 100 blocks, held by 6 streams as far as ends says.
	const chains, length, stable = 20, 100, 6
	rng := rand.New(rand.NewPCG(1, 1))
	var cs [chains]chain
	var ends [chains]map[StreamID][NumTiers]int
	hs := make([]*Holder, stable)
	for p := range hs {
		hs[p] = tb.Open(StreamID{"stable", p})
	}
	for i := range cs {
		cs[i] = newChain(uint64(i), length)
		ends[i] = map[StreamID][NumTiers]int{}
		for p, h := range hs {
			gpu := 1 + rng.IntN(length)
			cpu := gpu + rng.IntN(length-gpu+1)
			h.Store(space(p).run(GPU, cs[i], 0, gpu))
			h.Store(space(p).run(CPU, cs[i], gpu, cpu))
			ends[i][h.id] = [NumTiers]int{gpu, cpu, cpu}
		}
	}

	var stop atomic.Bool
	var wg sync.WaitGroup
	var stored, matches atomic.Int64
	for w := range 3 {
		wg.Go(func() { churn(tb, w, &cs, &stop, &stored) })
	}
	wg.Go(func() {
		for !stop.Load() {
			tb.Walk(func(b BlockInfo) bool { return len(b.Holders) > 0 && !stop.Load() })
			x.Stats()
			tb.Block(cs[0].seq[0])
			hs[0].Counts()
			time.Sleep(time.Millisecond)
		}
	})
	for w := range 2 {
		wg.Go(func() {
			var r Result
			for i := w; !stop.Load(); i++ {
				c := i % chains
				tb.MatchTokens(cs[c].tokens, 0, 0, &r)
				n := 0
				for _, s := range r.Streams {
					if s.Stream.Instance != "stable" {
						continue
					}
					n++
					if s.Blocks != ends[c][s.Stream] {
						t.Errorf("chain %d: %v matches %v, want %v", c, s.Stream, s.Blocks, ends[c][s.Stream])
						stop.Store(true)
					}
				}
				if n != stable {
					t.Errorf("chain %d: %d stable streams match, want %d", c, n, stable)
					stop.Store(true)
				}
				matches.Add(1)
			}
		})
	}
	time.Sleep(*churnFor)
	stop.Store(true)
	wg.Wait()
	t.Logf("%d matches, %d blocks stored", matches.Load(), stored.Load())
}

// churn is a stream that shares the stable chains, grows and cuts branches of
// them, stores orphans, and restarts now and then.
func churn(tb *Table, w int, cs *[20]chain, stop *atomic.Bool, stored *atomic.Int64) {
	rng := rand.New(rand.NewPCG(uint64(w), 7))
	sp := space(100 + w/2) // two of the streams hash alike
	id := StreamID{"churn", w}
	h := tb.Open(id)
	type cut struct {
		tier  Tier
		names []EngineHash
	}
	var live []cut
	for n := uint64(0); !stop.Load(); n++ {
		switch k := rng.IntN(100); {
		case k == 0:
			old := h
			old.Retire()
			h = tb.Open(id)
			h.SetPartial(rng.IntN(2) == 0)
			old.Store(sp.run(GPU, cs[0], 0, 50)) // too late
			live = nil
		case k == 1:
			h.Clear(Tier(rng.IntN(NumTiers)))
		case k < 45 && len(live) > 0:
			i := rng.IntN(len(live))
			h.Remove(live[i].tier, live[i].names)
			live[i] = live[len(live)-1]
			live = live[:len(live)-1]
		default:
			tier := Tier(rng.IntN(NumTiers))
			c := cs[rng.IntN(len(cs))]
			at := 1 + rng.IntN(len(c.seq)-1)
			if rng.IntN(4) > 0 {
				h.Store(sp.run(tier, c, 0, at))
				live = append(live, cut{tier, sp.engines(c.seq[:at])})
			}
			b := c.branch(n<<8|uint64(w), at, 1+rng.IntN(20))
			h.Store(sp.run(tier, b, at, len(b.seq)))
			live = append(live, cut{tier, sp.engines(b.seq[at:])})
			stored.Add(int64(len(b.seq)))
		}
	}
	h.Retire()
}

// TestRetireDuringMatch: a match that began before a holder was retired does
// not answer with it, nor with the stream that took its slot.
func TestRetireDuringMatch(t *testing.T) {
	x := newIndex(t, Options{})
	tb := x.Table(TableKey{"m", testBlockSize, false})
	c := newChain(1, 30)
	keep := tb.Open(streamB)
	keep.Store(space(9).run(GPU, c, 0, 30))
	var live atomic.Int64 // rank of the incarnation that holds c
	live.Store(-1)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			var r Result
			for !stop.Load() {
				before := live.Load()
				tb.MatchSeq(c.seq, 0, &r)
				for _, s := range r.Streams {
					if s.Stream != streamB && int64(s.Stream.Rank) < before {
						t.Errorf("incarnation %d answers, %d is live", s.Stream.Rank, before)
						stop.Store(true)
					}
					if s.Stream.Rank%2 == 1 && s.Blocks[GPU] > 15 {
						t.Errorf("incarnation %d answers %d blocks", s.Stream.Rank, s.Blocks[GPU])
						stop.Store(true)
					}
				}
			}
		})
	}
	end := time.Now().Add(300 * time.Millisecond)
	for rank := 0; time.Now().Before(end) && !stop.Load(); rank++ {
		h := tb.Open(StreamID{"x", rank})
		h.Store(space(rank).run(GPU, c, 0, 30-15*(rank%2)))
		live.Store(int64(rank))
		if rank%7 == 0 {
			waitSwept(t, x)
		}
		h.Retire()
		live.Store(int64(rank) + 1)
	}
	stop.Store(true)
	wg.Wait()
}

// TestGrowthDuringMatch: matches go on while everything grows from nothing, and
// what has been stored is found.
func TestGrowthDuringMatch(t *testing.T) {
	for round := range uint64(2) {
		tb := newTestTable(t, Options{})
		const chains, length = 300, 100
		cs := make([]chain, chains)
		for i := range cs {
			cs[i] = newChain(1000*round+uint64(i), length)
		}
		var stored atomic.Int64
		var wg sync.WaitGroup
		for w := range 2 {
			wg.Go(func() {
				var r Result
				for i := w; ; i++ {
					n := stored.Load()
					c := cs[i%chains]
					tb.MatchSeq(c.seq, 0, &r)
					if int64(i%chains) < n && (len(r.Streams) == 0 || r.Streams[0].Blocks[GPU] != length) {
						t.Errorf("chain %d is stored, and not found: %v", i%chains, r.Streams)
						return
					}
					if n == chains {
						return
					}
				}
			})
		}
		hs := make([]*Holder, 130) // so that sets become wider on the way
		for i := range cs {
			p := i % len(hs)
			if hs[p] == nil {
				hs[p] = tb.Open(StreamID{"pod", p})
			}
			hs[p].Store(space(p%3).run(GPU, cs[i], 0, length))
			stored.Store(int64(i) + 1)
		}
		wg.Wait()
	}
}
