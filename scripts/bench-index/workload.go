package main

import (
	"math/rand/v2"
	"slices"

	"github.com/kvindex/kvindex/indexer"
)

// doc is consecutive blocks of a prompt, with their keys. All pods hash alike.
type doc struct {
	base  *doc // the blocks before, nil at the beginning of a prompt
	local []indexer.LocalHash
	seq   []indexer.SeqHash
	name  []indexer.EngineHash
}

// event is the store or the removal of some blocks of a doc by a pod.
type event struct {
	pod      int32
	from, to int32
	doc      *doc
}

func (e *event) blocks() int { return int(e.to - e.from) }

// parent returns the last block before the event.
func (e *event) parent() (*doc, int) {
	if e.from > 0 {
		return e.doc, int(e.from) - 1
	}
	if b := e.doc.base; b != nil {
		return b, len(b.seq) - 1
	}
	return nil, 0
}

// whole returns the keys of d and all that is before it.
func (d *doc) whole() []indexer.SeqHash {
	if d.base == nil {
		return d.seq
	}
	return append(slices.Clone(d.base.whole()), d.seq...)
}

var hasher = indexer.NewHasher(indexer.DefaultSeed)

func newDoc(rng *rand.Rand, base *doc, n int) *doc {
	local := make([]indexer.LocalHash, n)
	for i := range local {
		local[i] = indexer.LocalHash(rng.Uint64())
	}
	return docOf(base, local)
}

func docOf(base *doc, local []indexer.LocalHash) *doc {
	d := &doc{base: base, local: local}
	d.seq = make([]indexer.SeqHash, len(local))
	d.name = make([]indexer.EngineHash, len(local))
	for i, l := range local {
		switch {
		case i > 0:
			d.seq[i] = hasher.Next(d.seq[i-1], l)
		case base != nil:
			d.seq[i] = hasher.Next(base.seq[len(base.seq)-1], l)
		default:
			d.seq[i] = hasher.Root(0, l)
		}
		d.name[i] = indexer.EngineHash(hasher.Next(d.seq[i], 1))
	}
	return d
}

const numPods = 64

// shape is a kind of question: chains of so many blocks on so many pods. The
// first pod has all of it, the others prefixes of random length. With branches,
// another continuation was stored every 20 blocks.
type shape struct {
	blocks, pods int
	branches     bool
	chains       int
}

var shapes = []shape{
	{632, 1, false, 40}, {632, 8, false, 40}, {632, 64, false, 24},
	{6250, 1, false, 6}, {6250, 8, false, 6}, {6250, 64, false, 4},
	{62500, 8, false, 1},
	{632, 8, true, 24}, {6250, 8, true, 4},
}

// workload is what is stored, in order, and what is asked.
type workload struct {
	events  []event
	unique  int
	pairs   int
	systems []*doc
	docs    []*doc          // 4,000 of the documents
	asked   map[shape][]ask // each a chain that pod 0 holds as a whole
}

// ask is a question and its answers, by pod.
type ask struct {
	seq  []indexer.SeqHash
	want [numPods]int32
}

// newWorkload makes documents of 32 to 511 blocks, each after one of 16 system
// prompts of 64 blocks that all pods hold, on 1 to 16 pods (rarely 32), until
// there are so many unique blocks; 64 requests are in flight at a time.
func newWorkload(unique, size int) *workload {
	rng := rand.New(rand.NewPCG(1, 1))
	w := &workload{asked: map[shape][]ask{}}
	for range 16 {
		d := newDoc(rng, nil, 64)
		w.systems = append(w.systems, d)
		w.unique += 64
		for pod := range numPods {
			w.events = append(w.events, event{int32(pod), 0, 64, d})
		}
	}
	var flights [][]event
	add := func(pod int, d *doc, n int) {
		flights = append(flights, cut(nil, pod, d, 0, n, size))
	}
	for _, s := range shapes {
		for range s.chains {
			flights = w.addShape(rng, s, size, flights)
		}
	}
	for w.unique < unique {
		d := newDoc(rng, w.systems[rng.IntN(16)], 32+rng.IntN(480))
		w.unique += len(d.seq)
		pods := 1
		if rng.Float64() < 0.6 {
			for pods = 2; pods < 16 && rng.Float64() < 0.6; pods++ {
			}
			if rng.Float64() < 0.02 {
				pods = numPods / 2
			}
		}
		for _, pod := range rng.Perm(numPods)[:pods] {
			add(pod, d, len(d.seq))
		}
		if len(w.docs) < 4000 {
			w.docs = append(w.docs, d)
		}
	}
	rng.Shuffle(len(flights), func(i, j int) { flights[i], flights[j] = flights[j], flights[i] })
	w.events = interleave(rng, w.events, flights)
	for i := range w.events {
		w.pairs += w.events[i].blocks()
	}
	return w
}

// cut appends the blocks of d from the given one to n, in events of a size.
func cut(evs []event, pod int, d *doc, from, n, size int) []event {
	for ; from < n; from += size {
		evs = append(evs, event{int32(pod), int32(from), int32(min(from+size, n)), d})
	}
	return evs
}

func (w *workload) addShape(rng *rand.Rand, s shape, size int, flights [][]event) [][]event {
	d := newDoc(rng, nil, s.blocks)
	w.unique += s.blocks
	a := ask{seq: d.seq}
	for pod := range s.pods {
		n := s.blocks
		if pod > 0 {
			n = 1 + rng.IntN(s.blocks)
		}
		a.want[pod] = int32(n)
		var f []event
		if !s.branches {
			f = cut(f, pod, d, 0, n, size)
		} else {
			for from := 0; from < n; from += 20 {
				f = cut(f, pod, d, from, min(from+20, n), size)
				if pod == 0 && from+20 < n {
					up := *d // its blocks up to here are what the branch continues
					up.seq, up.name, up.local = d.seq[:from+20], d.name[:from+20], d.local[:from+20]
					b := newDoc(rng, &up, 8)
					w.unique += 8
					f = cut(f, 0, b, 0, 8, size)
				}
			}
		}
		flights = append(flights, f)
	}
	w.asked[s] = append(w.asked[s], a)
	return flights
}

// interleave appends the flights, each in its order, 64 of them at a time.
func interleave(rng *rand.Rand, evs []event, flights [][]event) []event {
	var active [][]event
	for len(flights) > 0 || len(active) > 0 {
		for len(active) < 64 && len(flights) > 0 {
			active = append(active, flights[0])
			flights = flights[1:]
		}
		i := rng.IntN(len(active))
		evs = append(evs, active[i][0])
		if active[i] = active[i][1:]; len(active[i]) == 0 {
			active[i] = active[len(active)-1]
			active = active[:len(active)-1]
		}
	}
	return evs
}
