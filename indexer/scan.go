package indexer

import (
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// This file is the path of a match through the table. It takes no lock. What it
// reads was true at one moment: the slab's word of runs, read before and after,
// says that no entry was freed and used again meanwhile, and the generation of
// a set that its id was not.

// scan matches the next blocks of a request, and reports whether any stream still
// matches.
//
// Where a chain lies in one slab in order, it need not be compared block by
// block: a key is a hash of the whole prefix, so that the last one that agrees
// speaks for those before it. What must be looked at is every block's set.
func (t *Table) scan(seq []SeqHash, r *Result) bool {
	m := &r.matching
	base := r.ScannedBlocks
	dir := t.arena.chunks()
	for i := 0; i < len(seq); {
		id := m.next
		if id>>chunkBits >= uint32(len(dir)) || id == 0 || loadKey(dir, id) != seq[i] {
			if id = t.find(seq[i]); id == 0 {
				r.step(base+i, nil, 0)
				return false
			}
			dir = t.arena.chunks()
		}
		c, k := dir[id>>chunkBits], id&(chunkSize-1)
		n, more := t.scanRun(c, k, base+i, seq[i:], r)
		if !more {
			return false
		}
		i += n
		m.next = 0
		if n > 0 {
			m.next = id + uint32(n)
			if hint := atomic.LoadUint32(&c.next[k>>slabBits]); hint != 0 {
				m.next = hint
			}
			continue
		}
		// The slab changed meanwhile: one block, by itself.
		if !t.scanOne(base+i, seq[i], r) {
			return false
		}
		i++
	}
	r.ScannedBlocks = base + len(seq)
	return true
}

func loadKey(dir []*chunk, id uint32) SeqHash {
	return SeqHash(atomic.LoadUint64((*uint64)(&dir[id>>chunkBits].keys[id&(chunkSize-1)])))
}

// scanRun matches blocks from the first of seq on, block number at of the
// request, as far as they lie one after another from entry k of c on. It returns
// how many it has matched, and whether any stream still matches. It is (0, true)
// if the slab changed while it was read.
func (t *Table) scanRun(c *chunk, k uint32, at int, seq []SeqHash, r *Result) (int, bool) {
	m := &r.matching
	word := &c.runs[k>>slabBits]
	runs := atomic.LoadUint64(word)
	o := k & (slabSize - 1)
	n := 1 + bits.TrailingZeros32(^uint32(uint64(uint32(runs))>>(o+1)))
	n = c.agree(k, seq[:min(n, len(seq))])
	done := 0 // blocks that are matched, and were true
	for j := 0; j < n; j++ {
		if at+j > 0 {
			if j += c.same(k+uint32(j), n-j, m.last); j == n {
				break
			}
		}
		id := atomic.LoadUint32(&c.sets[k+uint32(j)])
		if id == 0 {
			return done, true
		}
		set, words, v := t.sets.view(id, m.set)
		m.set = set
		if atomic.LoadUint32(&c.sets[k+uint32(j)]) != id || !v.valid() || t.sets.pool.Load() != v.pool ||
			atomic.LoadUint64(word) != runs || !m.view.valid() {
			return done, true
		}
		m.last, m.view = id, v
		done = j + 1
		if !r.step(at+j, set, words) {
			return done, false
		}
	}
	if atomic.LoadUint64(word) != runs || !m.view.valid() {
		return done, true
	}
	return n, true
}

// scanOne matches one block: the entry has the key before and after its set is
// read.
func (t *Table) scanOne(at int, seq SeqHash, r *Result) bool {
	m := &r.matching
	for {
		id := t.find(seq)
		if id == 0 {
			return r.step(at, nil, 0)
		}
		c, k := t.arena.chunks()[id>>chunkBits], id&(chunkSize-1)
		word := &c.runs[k>>slabBits]
		runs := atomic.LoadUint64(word)
		if atomic.LoadUint64((*uint64)(&c.keys[k])) != uint64(seq) {
			continue
		}
		sid := atomic.LoadUint32(&c.sets[k])
		set, words, v := t.sets.view(sid, m.set)
		m.set = set
		if atomic.LoadUint32(&c.sets[k]) != sid || !v.valid() || t.sets.pool.Load() != v.pool || atomic.LoadUint64(word) != runs {
			continue
		}
		m.last, m.view = sid, v
		return r.step(at, set, words)
	}
}

// agree returns how many of the entries from k on have the keys of seq, given
// that each is the parent of the next.
func (c *chunk) agree(k uint32, seq []SeqHash) int {
	key := func(j int) SeqHash { return SeqHash(atomic.LoadUint64((*uint64)(&c.keys[k+uint32(j)]))) }
	n := len(seq)
	if key(n-1) == seq[n-1] {
		return n
	}
	lo, hi := 0, n-1 // the first lo agree, the one at hi does not
	for lo < hi {
		if mid := (lo + hi) / 2; key(mid) == seq[mid] {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// same returns how many of the n entries from k on have the given set. It reads
// two at a time.
func (c *chunk) same(k uint32, n int, set uint32) int {
	i, end := k, k+uint32(n)
	if i&1 != 0 {
		if atomic.LoadUint32(&c.sets[i]) != set {
			return 0
		}
		i++
	}
	both := uint64(set)<<32 | uint64(set)
	for ; i+1 < end; i += 2 {
		if atomic.LoadUint64((*uint64)(unsafe.Pointer(&c.sets[i]))) != both {
			break
		}
	}
	for i < end && atomic.LoadUint32(&c.sets[i]) == set {
		i++
	}
	return int(i - k)
}
