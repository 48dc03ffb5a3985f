package enginesim

import (
	"testing"
	"time"
)

// BenchmarkFlood measures what one rank can put on the wire: a batch of one
// stored block, and one eviction, each.
func BenchmarkFlood(b *testing.B) {
	e := startEngine(b, EngineOptions{Pool: PoolOptions{Blocks: 4096}})
	b.ReportAllocs()
	b.ResetTimer()
	for left := b.N; left > 0; left -= 1000 {
		if err := e.Rank(0).Flood(min(left, 1000)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRun measures requests of 4,000 tokens of which most are cached, one
// batch each.
func BenchmarkRun(b *testing.B) {
	e := startEngine(b, EngineOptions{Pool: PoolOptions{Blocks: 4096}})
	base := upTo(0, 4000)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		tokens := append(base[:3968:3968], uint32(i), uint32(i)>>8)
		if _, err := e.Rank(0).Run(Request{Tokens: append(tokens, base[:30]...)}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReplay measures a replay of 10,000 batches to a client that reads
// along; what ROUTER drops is not counted.
func BenchmarkReplay(b *testing.B) {
	s := startStream(b, StreamOptions{ReplayHWM: -1})
	if err := s.PublishAll(make([][]byte, 10_000)); err != nil {
		b.Fatal(err)
	}
	c := dialReplay(b, s)
	b.ResetTimer()
	for range b.N {
		if got, ended := c.replay(0, 5*time.Second); len(got) != 10_000 || !ended {
			b.Fatalf("%d batches, end %v", len(got), ended)
		}
	}
}
