package main

import (
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/kvindex/kvindex/indexer"
)

// lruOfLRUs is the design of a router that is widely used: an LRU of blocks, each
// with an LRU of the pods that hold it, and an LRU from the engine's names to
// blocks. A match makes a map of all blocks with all their pods first.
type lruOfLRUs struct {
	mu    sync.Mutex
	data  *lru.Cache[uint64, *podCache]
	names *lru.Cache[uint64, []uint64]
	pods  map[string]int
}

type podEntry struct {
	pod, tier string
	_         bool
}

type podCache struct {
	mu    sync.Mutex
	cache *lru.Cache[podEntry, struct{}]
}

func newLRU() engine {
	const size = 100_000_000
	m := &lruOfLRUs{pods: map[string]int{}}
	m.data, _ = lru.New[uint64, *podCache](size)
	m.names, _ = lru.New[uint64, []uint64](size)
	for i := range numPods {
		m.pods[podName(i)] = i
	}
	return m
}

func (m *lruOfLRUs) entry(pod int32) podEntry { return podEntry{pod: podName(int(pod)), tier: "gpu"} }

func (m *lruOfLRUs) store(e *event) {
	requests := make(map[uint64][]uint64)
	for i := e.from; i < e.to; i++ {
		n := uint64(e.doc.name[i])
		requests[n] = append(requests[n], uint64(e.doc.seq[i]))
	}
	for n, keys := range requests {
		m.names.Add(n, keys)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	entry := m.entry(e.pod)
	for _, k := range e.doc.seq[e.from:e.to] {
		c, ok := m.data.Get(uint64(k))
		if !ok {
			inner, _ := lru.New[podEntry, struct{}](numPods)
			c = &podCache{cache: inner}
			m.data.ContainsOrAdd(uint64(k), c)
		}
		c.mu.Lock()
		c.cache.Add(entry, struct{}{})
		c.mu.Unlock()
	}
}

func (m *lruOfLRUs) remove(e *event) {
	entry := m.entry(e.pod)
	for _, n := range e.doc.name[e.from:e.to] {
		keys, _ := m.names.Get(uint64(n))
		for _, k := range keys {
			if c, ok := m.data.Get(k); ok {
				m.drop(k, c, entry)
			}
		}
	}
}

func (m *lruOfLRUs) drop(k uint64, c *podCache, entry podEntry) {
	c.mu.Lock()
	c.cache.Remove(entry)
	empty := c.cache.Len() == 0
	c.mu.Unlock()
	if empty {
		m.data.Remove(k)
	}
}

func (m *lruOfLRUs) retire(pod int) {
	entry := m.entry(int32(pod))
	for _, k := range m.data.Keys() {
		if c, ok := m.data.Peek(k); ok {
			m.drop(k, c, entry)
		}
	}
}

func (m *lruOfLRUs) match(seq []indexer.SeqHash, out *[numPods]int32) {
	found := make(map[uint64][]podEntry, len(seq))
	for _, k := range seq {
		if c, ok := m.data.Get(uint64(k)); ok {
			c.mu.Lock()
			found[uint64(k)] = c.cache.Keys()
			c.mu.Unlock()
		}
	}
	scores := map[string]int{}
	active := map[string]struct{}{}
	for _, p := range found[uint64(seq[0])] {
		scores[p.pod] = 1
		active[p.pod] = struct{}{}
	}
	for i := 1; i < len(seq) && len(active) > 0; i++ {
		now := make(map[string]struct{})
		for _, p := range found[uint64(seq[i])] {
			now[p.pod] = struct{}{}
		}
		for p := range active {
			if _, ok := now[p]; ok {
				scores[p]++
			} else {
				delete(active, p)
			}
		}
	}
	for p, n := range scores {
		out[m.pods[p]] = int32(n)
	}
}

func (m *lruOfLRUs) close() {}
