package main

import (
	"math/rand/v2"

	"github.com/kvindex/kvindex/indexer"
)

// churn plays requests over pods that each keep the latest ones: what is evicted
// goes as a whole request, last block first, one block an event. A fifth of a
// request's blocks come one by one, as they do while an engine decodes.
type churn struct {
	rng      *rand.Rand
	capacity int // blocks a pod
	systems  []*doc
	popular  []*doc
	active   []request
	pods     [numPods]lruPod
	stored   int
}

type request struct {
	pod int
	doc *doc
	pos int
}

type lruPod struct {
	used int
	lru  []*doc
	has  map[*doc]int // how often it is in lru or active
}

func newChurn(capacity int, systems []*doc) *churn {
	c := &churn{rng: rand.New(rand.NewPCG(5, 5)), capacity: capacity, systems: systems}
	for range 3000 {
		c.popular = append(c.popular, c.newDoc())
	}
	for i := range c.pods {
		c.pods[i].has = map[*doc]int{}
	}
	return c
}

func (c *churn) newDoc() *doc {
	return newDoc(c.rng, c.systems[c.rng.IntN(len(c.systems))], 32+c.rng.IntN(480))
}

// run stores so many blocks.
func (c *churn) run(e engine, blocks int) {
	for end := c.stored + blocks; c.stored < end; {
		for len(c.active) < 64 {
			r := request{pod: c.rng.IntN(numPods)}
			if c.rng.Float64() < 0.6 {
				r.doc = c.popular[int(float64(len(c.popular))*c.rng.Float64()*c.rng.Float64())]
			} else {
				r.doc = c.newDoc()
			}
			if c.pods[r.pod].has[r.doc] > 0 {
				continue // cached: nothing is announced
			}
			c.pods[r.pod].has[r.doc]++
			c.active = append(c.active, r)
		}
		c.step(e, c.rng.IntN(len(c.active)))
	}
}

func (c *churn) step(e engine, i int) {
	r := &c.active[i]
	pod := r.pod
	n := 64
	if r.pos*5 > len(r.doc.seq)*4 {
		n = 1
	}
	n = min(n, len(r.doc.seq)-r.pos)
	e.store(&event{int32(r.pod), int32(r.pos), int32(r.pos + n), r.doc})
	r.pos += n
	c.stored += n
	p := &c.pods[pod]
	p.used += n
	if r.pos == len(r.doc.seq) {
		p.lru = append(p.lru, r.doc)
		c.active[i] = c.active[len(c.active)-1]
		c.active = c.active[:len(c.active)-1]
	}
	for p.used > c.capacity && len(p.lru) > 0 {
		d := p.lru[0]
		p.lru = p.lru[1:]
		p.used -= len(d.seq)
		delete(p.has, d)
		for j := len(d.seq) - 1; j >= 0; j-- {
			e.remove(&event{int32(pod), int32(j), int32(j + 1), d})
		}
	}
}

// live returns the prompts that pods hold as a whole, and how many blocks that
// are, each counted once.
func (c *churn) live() (docs []*doc, unique int) {
	seen := map[*doc]bool{}
	for i := range c.pods {
		for _, d := range c.pods[i].lru {
			if !seen[d] {
				seen[d] = true
				docs = append(docs, d)
				unique += len(d.seq)
			}
		}
	}
	return docs, unique
}

// again stores in e, in order, what the pods hold now.
func (c *churn) again(e engine) {
	for i := range c.pods {
		for _, d := range c.pods[i].lru {
			for _, ev := range cut(nil, i, d, 0, len(d.seq), 64) {
				e.store(&ev)
			}
		}
	}
}

func storeSystems(e engine, systems []*doc) {
	for _, d := range systems {
		for pod := range numPods {
			e.store(&event{int32(pod), 0, int32(len(d.seq)), d})
		}
	}
}

func prompts(docs []*doc, n int) [][]indexer.SeqHash {
	var all [][]indexer.SeqHash
	for i := 0; i < len(docs) && len(all) < n; i += max(1, len(docs)/n) {
		all = append(all, docs[i].whole())
	}
	return all
}
