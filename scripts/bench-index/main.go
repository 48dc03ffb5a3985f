// Command bench-index measures the block index against other ways to build one,
// in one process and with one workload, and prints a table with the targets.
//
//	bench-index [-scale n] [-engines kvindex,maps,xsync,lru]
package main

import (
	"flag"
	"fmt"
	"log"
	"math"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"
)

// rival is an engine to measure. Slow ones are asked less.
type rival struct {
	name string
	open func() engine
	slow bool
}

var rivals = []rival{
	{"kvindex", newKvindex, false},
	{"maps", newMaps, false},
	{"xsync", newCopyOnWrite, false},
	{"lru", newLRU, true},
}

func main() {
	log.SetFlags(log.Ltime)
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	scale := flag.Int("scale", 1, "millions of unique blocks")
	chosen := flag.String("engines", "kvindex,maps,xsync,lru", "what to measure, separated by commas")
	turnovers := flag.Int("turnovers", 20, "how often the long churn replaces everything")
	profile := flag.String("cpuprofile", "", "write a profile to this file")
	flag.Parse()
	if *profile != "" {
		out, err := os.Create(*profile)
		if err == nil {
			err = pprof.StartCPUProfile(out)
		}
		if err != nil {
			return fmt.Errorf("cannot write a profile: %w", err)
		}
		defer pprof.StopCPUProfile()
	}

	w := newWorkload(*scale*1_000_000, 8)
	log.Printf("%d unique blocks, %d pairs, %d pods, %d events of 8", w.unique, w.pairs, numPods, len(w.events))
	trace, err := traceRequests()
	if err != nil {
		return fmt.Errorf("cannot read the trace: %w", err)
	}
	all := map[string]figures{}
	names := strings.Split(*chosen, ",")
	for _, r := range rivals {
		if !slices.Contains(names, r.name) {
			continue
		}
		start := time.Now()
		f := figures{}
		if err := f.measure(r, w); err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		f.events1(r, w)
		if !r.slow {
			f.churned(r, w, *turnovers)
		}
		e := r.open()
		ds, ns := playTrace(e, trace, 4000)
		e.close()
		f["trace: match"], f["trace: match p99"], f["trace: events, wall ns a pair"] = percentile(ds, 0.5), percentile(ds, 0.99), ns
		all[r.name] = f
		log.Printf("%s measured in %.0f s", r.name, time.Since(start).Seconds())
	}
	return printTable(all, names)
}

// measure fills an engine with the workload and takes all figures that need it
// full, then removes half of everything.
func (f figures) measure(r rival, w *workload) error {
	heap0, rss0 := heap(), rss()
	gc0 := fullGC() // of the workload, which is of no interest
	e := r.open()
	defer e.close()
	start := cpu()
	for i := range w.events {
		e.store(&w.events[i])
	}
	f["ingest, events of 8"] = float64((cpu() - start).Nanoseconds()) / float64(w.pairs)
	f["heap bytes a unique block"] = (heap() - heap0) / float64(w.unique)
	f["RSS bytes a unique block"] = (rss() - rss0) / float64(w.unique)
	if k, ok := e.(*kvindex); ok {
		f["counted bytes a unique block"] = float64(k.table.Stats().Bytes) / float64(w.unique)
	}

	f["full GC, ms"] = max(0.1, fullGC()-gc0)

	var cold sweepCaches
	if !r.slow {
		cold = make(sweepCaches, 8<<20)
		for i := range cold {
			cold[i] = 1
		}
	}
	for _, s := range shapes {
		if r.slow && s.blocks > 10_000 {
			continue
		}
		patience := 3 * time.Second
		if r.slow {
			patience = time.Second
		}
		if err := f.questions(e, s, w.asked[s], "", cold, patience); err != nil {
			return err
		}
	}
	f["documents, ns a block"], f["documents, us"] = documents(e, prompts(w.docs, 4000))
	f["linear path, ns a block"] = f[shape{blocks: 6250, pods: 1}.row()] * 1000 / 6250
	f["allocations a match"] = allocs(e, w)
	f.underIngest(e, w, w.asked[shape{632, 8, false, 40}], 2*time.Second)

	pairs := 0
	start = cpu()
	for i := len(w.events) - 1; i >= len(w.events)/2; i-- {
		e.remove(&w.events[i])
		pairs += w.events[i].blocks()
	}
	f["remove, events of 8"] = float64((cpu() - start).Nanoseconds()) / float64(pairs)
	begin := time.Now()
	e.retire(1)
	f["retire a pod, ms"] = time.Since(begin).Seconds() * 1e3
	return nil
}

// fullGC returns how many ms of processors a garbage collection takes: the least
// of three.
func fullGC() float64 {
	least := time.Duration(math.MaxInt64)
	for range 3 {
		start := cpu()
		runtime.GC()
		least = min(least, cpu()-start)
	}
	return least.Seconds() * 1e3
}

func allocs(e engine, w *workload) float64 {
	var out [numPods]int32
	asks := w.asked[shape{632, 8, false, 40}]
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 10 {
		for i := range asks {
			e.match(asks[i].seq, &out)
		}
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / float64(10*len(asks))
}

// events1 measures events of one block, in an engine with a tenth of the
// documents.
func (f figures) events1(r rival, w *workload) {
	e := r.open()
	defer e.close()
	n := len(w.events) / 4
	ones := make([]event, 0, 8*n)
	for _, ev := range w.events[:n] {
		ones = cut(ones, int(ev.pod), ev.doc, int(ev.from), int(ev.to), 1)
	}
	start := cpu()
	for i := range ones {
		e.store(&ones[i])
	}
	f["ingest, events of 1"] = float64((cpu() - start).Nanoseconds()) / float64(len(ones))
	start = cpu()
	for i := len(ones) - 1; i >= 0; i-- {
		e.remove(&ones[i])
	}
	f["remove, events of 1"] = float64((cpu() - start).Nanoseconds()) / float64(len(ones))
}

// churned measures what is left of speed and memory after the pods have
// replaced all they hold several times.
func (f figures) churned(r rival, w *workload, turnovers int) {
	capacity := 20_000
	c := newChurn(capacity, w.systems)
	heap0 := heap()
	e := r.open()
	storeSystems(e, w.systems)
	for t := range turnovers {
		start := cpu()
		c.run(e, numPods*capacity)
		if t == 7 {
			f["churn: store and remove, CPU ns a block"] = float64((cpu() - start).Nanoseconds()) / float64(numPods*capacity)
			docs, _ := c.live()
			f["after 8 turnovers: ns a block"], f["after 8 turnovers: documents, us"] = documents(e, prompts(docs, 2000))
		}
	}
	docs, unique := c.live()
	asks := prompts(docs, 2000)
	used, _ := documents(e, asks)
	old := heap() - heap0
	oldSets := 0
	if k, ok := e.(*kvindex); ok {
		oldSets = k.table.Stats().Sets
		old = float64(k.table.Stats().Bytes)
	}
	e.close()
	heap1 := heap()
	fresh := r.open()
	storeSystems(fresh, w.systems)
	c.again(fresh)
	best, _ := documents(fresh, asks)
	now := heap() - heap1
	if k, ok := fresh.(*kvindex); ok {
		f["after the long churn: sets / fresh"] = float64(oldSets) / float64(k.table.Stats().Sets)
		now = float64(k.table.Stats().Bytes)
	}
	fresh.close()
	f["after the long churn: memory / fresh"] = old / now
	f["after the long churn: match / fresh"] = used / best
	f["after the long churn: bytes a unique block"] = old / float64(unique)
	runtime.KeepAlive(e)
}
