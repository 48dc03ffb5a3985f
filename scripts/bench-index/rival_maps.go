package main

import (
	"sync"

	"github.com/kvindex/kvindex/indexer"
)

// maps is how this index was first built: 256 Go maps behind locks, interned
// sets of holders, and for each pod a map from the engine's names to blocks.
type maps struct {
	shards  [256]mapShard
	sets    map[uint64]*podSet // numPods is 64: a set is one word
	aliases [numPods]map[indexer.EngineHash]mapAlias
	live    uint64
}

type mapShard struct {
	mu sync.RWMutex
	m  map[indexer.SeqHash]mapBlock
	_  [32]byte
}

type mapBlock struct {
	parent indexer.SeqHash
	set    *podSet
	pos    uint32
}

type mapAlias struct {
	seq    indexer.SeqHash
	before indexer.EngineHash
	pos    uint32
	copies [3]uint16
	_      uint16
}

type podSet struct {
	bits uint64
	refs int
}

func newMaps() engine {
	m := &maps{sets: map[uint64]*podSet{}, live: 1<<numPods - 1}
	for i := range m.aliases {
		m.aliases[i] = map[indexer.EngineHash]mapAlias{}
	}
	return m
}

func (m *maps) set(bits uint64) *podSet {
	if bits == 0 {
		return nil
	}
	s := m.sets[bits]
	if s == nil {
		s = &podSet{bits: bits}
		m.sets[bits] = s
	}
	s.refs++
	return s
}

func (m *maps) drop(s *podSet) {
	if s != nil {
		if s.refs--; s.refs == 0 {
			delete(m.sets, s.bits)
		}
	}
}

func (m *maps) change(seq, parent indexer.SeqHash, pos uint32, add, take uint64) {
	s := &m.shards[seq>>56]
	b, ok := s.m[seq]
	if !ok {
		b = mapBlock{parent: parent, pos: pos}
	}
	old := b.set
	bits := uint64(0)
	if old != nil {
		bits = old.bits
	}
	to := m.set(bits&^take | add)
	s.mu.Lock()
	if to == nil {
		delete(s.m, seq)
	} else {
		if s.m == nil {
			s.m = map[indexer.SeqHash]mapBlock{}
		}
		b.set = to
		s.m[seq] = b
	}
	s.mu.Unlock()
	m.drop(old)
}

func (m *maps) store(e *event) {
	var up mapAlias
	var before indexer.EngineHash
	some := false
	if d, i := e.parent(); d != nil {
		before, some = d.name[i], true
		up = m.aliases[e.pod][before]
	}
	for i := e.from; i < e.to; i++ {
		a := mapAlias{before: before, copies: [3]uint16{1}}
		if some {
			a.seq, a.pos = hasher.Next(up.seq, e.doc.local[i]), up.pos+1
		} else {
			a.seq = hasher.Root(0, e.doc.local[i])
		}
		if have, ok := m.aliases[e.pod][e.doc.name[i]]; ok {
			have.copies[0]++
			m.aliases[e.pod][e.doc.name[i]] = have
			up = have
		} else {
			m.aliases[e.pod][e.doc.name[i]] = a
			m.change(a.seq, up.seq, a.pos, 1<<e.pod, 0)
			up = a
		}
		before, some = e.doc.name[i], true
	}
}

func (m *maps) remove(e *event) {
	for i := e.from; i < e.to; i++ {
		a, ok := m.aliases[e.pod][e.doc.name[i]]
		if !ok {
			continue
		}
		if a.copies[0]--; a.copies[0] > 0 {
			m.aliases[e.pod][e.doc.name[i]] = a
			continue
		}
		delete(m.aliases[e.pod], e.doc.name[i])
		m.change(a.seq, 0, 0, 0, 1<<e.pod)
	}
}

func (m *maps) match(seq []indexer.SeqHash, out *[numPods]int32) {
	alive := m.live
	var last *podSet
	for i, k := range seq {
		s := &m.shards[k>>56]
		s.mu.RLock()
		set := s.m[k].set
		s.mu.RUnlock()
		if set == last && i > 0 {
			continue
		}
		last = set
		bits := uint64(0)
		if set != nil {
			bits = set.bits
		}
		if i > 0 {
			scoreBits(alive&^bits, int32(i), out)
		}
		if alive &= bits; alive == 0 {
			return
		}
	}
	scoreBits(alive, int32(len(seq)), out)
}

// retire takes the pod out of the answers; the blocks are left to a sweeper.
func (m *maps) retire(pod int) { m.live &^= 1 << pod }
func (m *maps) close()         {}
