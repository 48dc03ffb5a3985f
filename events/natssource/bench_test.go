package natssource_test

import (
	"slices"
	"testing"
	"time"

	"github.com/kvindex/kvindex/events/enginesim"
)

// BenchmarkPublishToVisible is the time from an engine's publishing of a batch
// to its being applied, over ZMQ, a relay, NATS with file storage, and a
// reader, all on this machine.
func BenchmarkPublishToVisible(b *testing.B) {
	r := newRig(b)
	e := r.engine(enginesim.EngineOptions{Pool: enginesim.PoolOptions{Blocks: 1000}})
	r.relay("pod-0", e, nil)
	k := r.reader(nil)
	k.awaitTruth("pod-0", e)
	in, _ := k.fleet.Find("pod-0")
	took := make([]time.Duration, 0, b.N)
	for b.Loop() {
		begin := time.Now()
		check(b, e.Rank(0).Flood(1))
		want := e.Rank(0).Stream().Seq()
		for {
			if st := in.Streams()[0]; st.HasBatch && st.LastSeq+1 >= want {
				break
			}
			time.Sleep(20 * time.Microsecond)
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkThroughput is how many batches a second get through, of 8 ranks.
func BenchmarkThroughput(b *testing.B) {
	r := newRig(b)
	e := r.engine(enginesim.EngineOptions{Ranks: 8, Pool: enginesim.PoolOptions{Blocks: 1000}})
	r.relay("pod-0", e, nil)
	k := r.reader(nil)
	k.awaitTruth("pod-0", e)
	const each = 500
	for b.Loop() {
		for i := range e.Ranks() {
			check(b, e.Rank(i).Flood(each))
		}
		k.awaitTruth("pod-0", e)
	}
	b.ReportMetric(float64(b.N)*each*float64(e.Ranks())/b.Elapsed().Seconds(), "batches/s")
}
