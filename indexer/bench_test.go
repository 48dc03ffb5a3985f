package indexer

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// benchPods is how many streams the benchmarks have.
const benchPods = 64

// fillTable stores documents of about 300 blocks after shared system prompts,
// each on 1 to 8 of the pods, until tb has about n blocks.
func fillTable(tb *Table, n int) []*Holder {
	rng := rand.New(rand.NewPCG(1, 1))
	hs := make([]*Holder, benchPods)
	for i := range hs {
		hs[i] = tb.Open(StreamID{fmt.Sprint("pod-", i), 0})
	}
	var systems [16]chain
	for i := range systems {
		systems[i] = newChain(uint64(i), 64)
		for p, h := range hs {
			h.Store(space(p).run(GPU, systems[i], 0, 64))
		}
	}
	for seed := uint64(100); n > 0; seed++ {
		c := systems[rng.IntN(len(systems))].branch(seed, 64, 32+rng.IntN(480))
		pods := 1
		for pods < 8 && rng.IntN(3) > 0 {
			pods++
		}
		for _, p := range rng.Perm(benchPods)[:pods] {
			storeEvents(hs[p], space(p), c, 64, 8)
		}
		n -= len(c.seq) - 64
	}
	return hs
}

// storeEvents stores c from the given block on, in events of so many blocks.
func storeEvents(h *Holder, s space, c chain, from, size int) {
	for ; from < len(c.seq); from += size {
		h.Store(s.run(GPU, c, from, min(from+size, len(c.seq))))
	}
}

func BenchmarkMatch(b *testing.B) {
	tb := newTestTable(b, Options{})
	hs := fillTable(tb, 250_000)
	rng := rand.New(rand.NewPCG(2, 2))
	for _, length := range []int{632, 6250} {
		for _, pods := range []int{8, 64} {
			var cs [8]chain
			for i := range cs {
				cs[i] = newChain(uint64(length+pods+i), length)
				for p, h := range hs[:pods] {
					n := length
					if p > 0 {
						n = 1 + rng.IntN(length)
					}
					h.Store(space(p).run(GPU, cs[i], 0, n))
				}
			}
			var r Result
			b.Run(fmt.Sprintf("tokens/blocks=%d/pods=%d", length, pods), func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					tb.MatchTokens(cs[i%len(cs)].tokens, 0, 0, &r)
				}
			})
			b.Run(fmt.Sprintf("seq/blocks=%d/pods=%d", length, pods), func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					tb.MatchSeq(cs[i%len(cs)].seq, 0, &r)
				}
				if len(r.Streams) != pods {
					b.Fatalf("%d streams match, want %d", len(r.Streams), pods)
				}
			})
		}
	}
	b.Run("miss", func(b *testing.B) {
		c := newChain(999, 632)
		var r Result
		for b.Loop() {
			tb.MatchTokens(c.tokens, 0, 0, &r)
		}
	})
}

// BenchmarkIngest stores and removes the same documents on all pods, in events
// of 8 blocks and of 1, in a table that is filled.
func BenchmarkIngest(b *testing.B) {
	for _, size := range []int{8, 1} {
		b.Run(fmt.Sprintf("event=%d", size), func(b *testing.B) {
			tb := newTestTable(b, Options{})
			hs := fillTable(tb, 250_000)
			const docs, length = 64, 304
			var runs [docs][]Run
			var pods [docs][3]int
			rng := rand.New(rand.NewPCG(3, 3))
			for d := range runs {
				c := newChain(uint64(5000+d), length)
				copy(pods[d][:], rng.Perm(benchPods))
				for from := 0; from < length; from += size {
					// All pods hash alike here: what is measured is not changed by it.
					runs[d] = append(runs[d], space(1).run(GPU, c, from, from+size))
				}
			}
			b.ResetTimer()
			pairs := 0
			for i := 0; b.Loop(); i++ {
				d := i / 2 % docs
				for _, p := range pods[d] {
					for _, r := range runs[d] {
						if i%2 == 0 {
							hs[p].Store(r)
						} else {
							hs[p].Remove(GPU, r.Engine)
						}
						pairs += len(r.Engine)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(pairs), "ns/pair")
		})
	}
}

// BenchmarkRetire stores 100,000 blocks and retires their holder; the sweeper
// then frees them.
func BenchmarkRetire(b *testing.B) {
	tb := newTestTable(b, Options{})
	c := newChain(1, 100_000)
	r := space(1).run(GPU, c, 0, len(c.seq))
	var retiring time.Duration
	for b.Loop() {
		h := tb.Open(streamA)
		h.Store(r)
		start := time.Now()
		h.Retire()
		retiring += time.Since(start)
	}
	b.ReportMetric(float64(retiring.Nanoseconds())/float64(b.N), "ns/retire")
}
