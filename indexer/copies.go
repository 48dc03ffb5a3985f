package indexer

import "math"

// Engines keep several physical copies of a block. That there is one is said by
// the sets; how many there are more is in a map of the seat, which is nearly
// always empty. A block with records of names is counted under each name, and
// under its entry for all of them.

type copyKey struct {
	ref  nameRef
	tier Tier
}

const bytesPerExtra = 40 // what an entry of the map takes on average

// setExtra notes that there are n copies beyond the first.
func (s *seat) setExtra(k copyKey, n int) {
	was := len(s.extra)
	if n == 0 {
		delete(s.extra, k)
	} else {
		if s.extra == nil {
			s.extra = make(map[copyKey]int)
		}
		s.extra[k] = n
		if k.ref&recordFlag == 0 {
			s.of.table.arena.setMore(uint32(k.ref))
		}
	}
	if is := len(s.extra); is != was {
		s.of.table.mem.add(int64(is-was) * bytesPerExtra)
	}
}

// extraOf returns how many copies there are beyond the first.
func (s *seat) extraOf(ref nameRef, t Tier) int {
	if len(s.extra) == 0 || ref&recordFlag == 0 && !s.of.table.arena.hasMore(uint32(ref)) {
		return 0
	}
	return s.extra[copyKey{ref, t}]
}

// copies returns how many copies s has under ref in tier t.
func (s *seat) copies(ref nameRef, t Tier) int {
	if !s.of.table.sets.has(s.of.table.holdersOf(ref), s.slot, t) {
		return 0
	}
	return 1 + s.extraOf(ref, t)
}

// maxCopies is how many copies of a block under one name are counted.
func (t *Table) maxCopies() int {
	if t.policy == Set {
		return 1
	}
	return math.MaxUint16
}

// gain counts up to n more copies under ref in tier t, and reports whether s did
// not hold the block there before.
func (s *seat) gain(ref nameRef, t Tier, n int) bool {
	tb := s.of.table
	have := s.copies(ref, t)
	n = min(n, tb.maxCopies()-have)
	if n <= 0 {
		return false
	}
	if have+n > 1 {
		s.setExtra(copyKey{ref, t}, have+n-1)
	}
	if ref&recordFlag == 0 {
		if have > 0 {
			return false
		}
		tb.setBlock(uint32(ref), tb.sets.with(tb.arena.set(uint32(ref)), s.slot, t))
		s.held[t].Add(1)
		return true
	}
	if have == 0 {
		tb.setName(ref, tb.sets.with(tb.holdersOf(ref), s.slot, t))
	}
	id := tb.blockOf(ref)
	all := s.copies(nameRef(id), t)
	if all+n > 1 {
		s.setExtra(copyKey{nameRef(id), t}, all+n-1)
	}
	if all > 0 {
		return false
	}
	tb.setBlock(id, tb.sets.with(tb.arena.set(id), s.slot, t))
	s.held[t].Add(1)
	return true
}

// lose takes back n copies under ref in tier t, of at least as many.
func (s *seat) lose(ref nameRef, t Tier, n int) {
	tb := s.of.table
	id := tb.blockOf(ref)
	if extra := s.extraOf(ref, t); extra > 0 {
		s.setExtra(copyKey{ref, t}, max(0, extra-n))
		if n <= extra && ref&recordFlag == 0 {
			return
		}
		if n > extra && ref&recordFlag != 0 {
			tb.setName(ref, tb.sets.without(tb.holdersOf(ref), s.slot, 1<<t))
		}
	} else if ref&recordFlag != 0 {
		tb.setName(ref, tb.sets.without(tb.holdersOf(ref), s.slot, 1<<t))
	}
	if ref&recordFlag != 0 {
		if all := s.extraOf(nameRef(id), t); all > 0 {
			s.setExtra(copyKey{nameRef(id), t}, max(0, all-n))
			if n <= all {
				return
			}
		}
	}
	tb.setBlock(id, tb.sets.without(tb.arena.set(id), s.slot, 1<<t))
	s.held[t].Add(-1)
}
