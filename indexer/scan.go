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
		// Most often the chain goes on where the slab says.
		id, n, more := m.next, 0, true
		if id != 0 && seq[i] != 0 && id>>(slabBits+chunkBits) < uint32(len(dir)) {
			n, more = t.scanRun(dir, id, base+i, seq[i:], r)
		}
		if n == 0 && more {
			if id = t.find(seq[i]); id == 0 {
				r.step(base+i, nil, 0)
				return false
			}
			dir = t.arena.chunks()
			n, more = t.scanRun(dir, id, base+i, seq[i:], r)
		}
		switch {
		case !more:
			return false
		case n == 0: // the slab changed meanwhile: one block, by itself
			m.next = 0
			if n = 1; !t.scanOne(base+i, seq[i], r) {
				return false
			}
		}
		i += n
	}
	r.ScannedBlocks = base + len(seq)
	return true
}

// scanRun matches blocks from the first of seq on, block number at of the
// request, as far as they lie one after another from the entry id on. It returns
// how many it has matched, and whether any stream still matches. It is (0, true)
// if the first block is not there, or the slab changed while it was read.
func (t *Table) scanRun(dir []*chunk, id uint32, at int, seq []SeqHash, r *Result) (int, bool) {
	m := &r.matching
	s, o := slabOf(dir, id), id&(slabSize-1)
	next := atomic.LoadUint32(&s.next)
	if o+uint32(len(seq)) >= slabSize && next>>(slabBits+chunkBits) < uint32(len(dir)) {
		// Have the slab after this one on its way while this one is read.
		ahead := slabOf(dir, next)
		atomic.LoadUint32(&ahead.next)
		atomic.LoadUint32(&ahead.sets[slabSize/2])
		atomic.LoadUint64((*uint64)(&ahead.keys[slabSize-1]))
	}
	runs := atomic.LoadUint64(&s.runs)
	n := 1 + uint32(bits.TrailingZeros32(^uint32(uint64(uint32(runs))>>(o+1))))
	n = uint32(s.agree(o, seq[:min(int(n), len(seq))]))
	if m.next = next; int(n) == len(seq) && o+n < slabSize {
		m.next = id + n // the request goes on in the next window
	}
	done := 0 // blocks that are matched, and were true
	for j := uint32(0); j < n; j++ {
		if at > 0 || j > 0 {
			if j += s.same(o+j, n-j, m.last); j == n {
				break
			}
		}
		set := atomic.LoadUint32(&s.sets[o+j])
		if set == 0 {
			return done, true
		}
		words, width, v := t.sets.view(set, m.set)
		m.set = words
		if atomic.LoadUint32(&s.sets[o+j]) != set || !v.valid() || t.sets.pool.Load() != v.pool ||
			atomic.LoadUint64(&s.runs) != runs || !m.view.valid() {
			return done, true
		}
		m.last, m.view = set, v
		done = int(j) + 1
		if !r.step(at+int(j), words, width) {
			return done, false
		}
	}
	if atomic.LoadUint64(&s.runs) != runs || !m.view.valid() {
		return done, true
	}
	return int(n), true
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
		s, o := slabOf(t.arena.chunks(), id), id&(slabSize-1)
		runs := atomic.LoadUint64(&s.runs)
		if atomic.LoadUint64((*uint64)(&s.keys[o])) != uint64(seq) {
			continue
		}
		sid := atomic.LoadUint32(&s.sets[o])
		set, words, v := t.sets.view(sid, m.set)
		m.set = set
		if atomic.LoadUint32(&s.sets[o]) != sid || !v.valid() || t.sets.pool.Load() != v.pool || atomic.LoadUint64(&s.runs) != runs {
			continue
		}
		m.last, m.view = sid, v
		return r.step(at, set, words)
	}
}

// agree returns how many of the entries from o on have the keys of seq, given
// that each is the parent of the next.
func (s *slab) agree(o uint32, seq []SeqHash) int {
	key := func(j int) SeqHash { return SeqHash(atomic.LoadUint64((*uint64)(&s.keys[o+uint32(j)]))) }
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

// same returns how many of the n entries from o on have the given set. It reads
// two at a time, eight between branches.
func (s *slab) same(o, n, set uint32) uint32 {
	i, end := o, o+n
	if i&1 != 0 {
		if atomic.LoadUint32(&s.sets[i]) != set {
			return 0
		}
		i++
	}
	both := uint64(set)<<32 | uint64(set)
	for ; i+8 <= end; i += 8 {
		p := unsafe.Pointer(&s.sets[i])
		if (atomic.LoadUint64((*uint64)(p))^both)|(atomic.LoadUint64((*uint64)(unsafe.Add(p, 8)))^both)|
			(atomic.LoadUint64((*uint64)(unsafe.Add(p, 16)))^both)|(atomic.LoadUint64((*uint64)(unsafe.Add(p, 24)))^both) != 0 {
			break
		}
	}
	for i < end && atomic.LoadUint32(&s.sets[i]) == set {
		i++
	}
	return i - o
}

// view is a reader's look at a set: valid says whether what was read of it is
// true, also after a while.
type view struct {
	pool *setPool
	gen  *uint64
	was  uint64
}

// view returns the set of an id that was just read from an entry, as words of
// planes one after another, in dst. The caller checks that the entry still has
// the set.
func (st *sets) view(id uint32, dst []uint64) ([]uint64, int, view) {
	p := st.pool.Load()
	n := p.stride()
	i := int(id%setPart) * n
	set := p.chunks[id/setPart][i : i+n]
	v := view{pool: p, gen: &set[0], was: atomic.LoadUint64(&set[0])}
	dst = dst[:0]
	for i := 1; i < len(set); i++ {
		dst = append(dst, atomic.LoadUint64(&set[i]))
	}
	return dst, p.words, v
}

// valid reports whether the id of the view still means what it meant.
func (v view) valid() bool { return v.gen == nil || atomic.LoadUint64(v.gen) == v.was }
