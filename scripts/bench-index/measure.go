package main

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kvindex/kvindex/indexer"
)

// figures is what was measured of one engine, by row of the table.
type figures map[string]float64

// cpu returns the time that this process has spent on processors.
func cpu() time.Duration {
	var ru syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &ru) != nil {
		return 0
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

func heap() float64 {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

func rss() float64 {
	b, err := os.ReadFile("/proc/self/statm")
	var size, resident float64
	if err != nil {
		return math.NaN()
	}
	if _, err := fmt.Sscan(string(b), &size, &resident); err != nil {
		return math.NaN()
	}
	return resident * float64(os.Getpagesize())
}

func percentile(ds []time.Duration, p float64) float64 {
	slices.Sort(ds)
	return float64(ds[min(len(ds)-1, int(p*float64(len(ds))))].Nanoseconds()) / 1e3
}

func (s shape) row() string {
	if s.branches {
		return fmt.Sprintf("match %d blocks, %d pods, branches", s.blocks, s.pods)
	}
	return fmt.Sprintf("match %d blocks, %d pods", s.blocks, s.pods)
}

// sweepCaches reads enough memory to push everything else out of the caches.
type sweepCaches []uint64

func (c sweepCaches) run() {
	for i := 0; i < len(c); i += 8 {
		c[i]++
	}
}

// questions asks every question of a shape several times and notes the medians
// and the 99th percentile; it checks all answers.
func (f figures) questions(e engine, s shape, asks []ask, suffix string, cold sweepCaches, patience time.Duration) error {
	var out [numPods]int32
	warmUp := func(a *ask) (time.Duration, error) {
		clear(out[:])
		start := time.Now()
		e.match(a.seq, &out)
		d := time.Since(start)
		if out != a.want {
			return d, fmt.Errorf("wrong answer: %s: want %v, got %v", s.row(), a.want, out)
		}
		return d, nil
	}
	var warm, flushed []time.Duration
	rounds := max(5, 600/len(asks))
	for i, start := 0, time.Now(); i < rounds && (i < 3 || time.Since(start) < patience); i++ {
		for j := range asks {
			if _, err := warmUp(&asks[j]); err != nil {
				return err
			}
			d, _ := warmUp(&asks[j])
			warm = append(warm, d)
		}
	}
	f[s.row()+suffix] = percentile(warm, 0.5)
	f[s.row()+suffix+" p99"] = percentile(warm, 0.99)
	if cold != nil && s.pods == 8 {
		for i := range 24 {
			cold.run()
			d, err := warmUp(&asks[i%len(asks)])
			if err != nil {
				return err
			}
			flushed = append(flushed, d)
		}
		f[s.row()+suffix+" cold"] = percentile(flushed, 0.5)
	}
	return nil
}

// documents asks for 4,000 documents, each once, and returns ns a block.
func documents(e engine, docs [][]indexer.SeqHash) (nsPerBlock, p50 float64) {
	var out [numPods]int32
	ds := make([]time.Duration, 0, len(docs))
	total, blocks := time.Duration(0), 0
	for _, seq := range docs {
		start := time.Now()
		e.match(seq, &out)
		d := time.Since(start)
		ds = append(ds, d)
		total += d
		blocks += len(seq)
	}
	return float64(total.Nanoseconds()) / float64(blocks), percentile(ds, 0.5)
}

// underIngest measures matches while another goroutine removes and stores the
// events again as fast as it can.
func (f figures) underIngest(e engine, w *workload, asks []ask, d time.Duration) {
	var stop atomic.Bool
	done := make(chan int)
	go func() {
		n := 0
		for i := len(w.events) / 2; !stop.Load(); i = (i + 1) % len(w.events) {
			ev := &w.events[i]
			if ev.doc.base == nil {
				continue
			}
			if int(ev.to) == len(ev.doc.seq) {
				e.remove(ev)
				n += ev.blocks()
			}
			e.store(ev)
			if int(ev.to) != len(ev.doc.seq) {
				e.remove(ev) // it was there before: one copy less
			}
			n += ev.blocks()
		}
		done <- n
	}()
	var out [numPods]int32
	var ds []time.Duration
	for i, start := 0, time.Now(); time.Since(start) < d; i++ {
		begin := time.Now()
		e.match(asks[i%len(asks)].seq, &out)
		ds = append(ds, time.Since(begin))
	}
	stop.Store(true)
	n := <-done
	f["under ingest: match 632, 8 pods"] = percentile(ds, 0.5)
	f["under ingest: match 632, 8 pods p99"] = percentile(ds, 0.99)
	f["under ingest: M pairs/s"] = float64(n) / d.Seconds() / 1e6
}
