package indexer

import "math"

// Engines keep several physical copies of a block. That there is one is said by
// the sets; how many there are more is in a map of the holder, which is nearly
// always empty. A block with records of names is counted under each name, and
// under its entry for all of them.

type copyKey struct {
	ref  nameRef
	tier Tier
}

const bytesPerExtra = 40 // what an entry of the map takes on average

// setExtra notes that there are n copies beyond the first.
func (h *Holder) setExtra(k copyKey, n int) {
	was := len(h.extra)
	if n == 0 {
		delete(h.extra, k)
	} else {
		if h.extra == nil {
			h.extra = make(map[copyKey]int)
		}
		h.extra[k] = n
		if k.ref&recordFlag == 0 {
			h.table.arena.setMore(uint32(k.ref))
		}
	}
	if is := len(h.extra); is != was {
		h.table.mem.add(int64(is-was) * bytesPerExtra)
	}
}

// extraOf returns how many copies there are beyond the first.
func (h *Holder) extraOf(ref nameRef, t Tier) int {
	if len(h.extra) == 0 || ref&recordFlag == 0 && !h.table.arena.hasMore(uint32(ref)) {
		return 0
	}
	return h.extra[copyKey{ref, t}]
}

// copies returns how many copies h has under ref in tier t.
func (h *Holder) copies(ref nameRef, t Tier) int {
	if !h.table.sets.has(h.table.holdersOf(ref), h.slot, t) {
		return 0
	}
	return 1 + h.extraOf(ref, t)
}

// maxCopies is how many copies of a block under one name are counted.
func (t *Table) maxCopies() int {
	if t.policy == Set {
		return 1
	}
	return math.MaxUint16
}

// gain counts up to n more copies under ref in tier t, and reports whether h did
// not hold the block there before.
func (h *Holder) gain(ref nameRef, t Tier, n int) bool {
	tb := h.table
	have := h.copies(ref, t)
	n = min(n, tb.maxCopies()-have)
	if n <= 0 {
		return false
	}
	if have+n > 1 {
		h.setExtra(copyKey{ref, t}, have+n-1)
	}
	if ref&recordFlag == 0 {
		if have > 0 {
			return false
		}
		tb.setBlock(uint32(ref), tb.sets.with(tb.arena.set(uint32(ref)), h.slot, t))
		h.held[t].Add(1)
		return true
	}
	if have == 0 {
		tb.setName(ref, tb.sets.with(tb.holdersOf(ref), h.slot, t))
	}
	id := tb.blockOf(ref)
	all := h.copies(nameRef(id), t)
	if all+n > 1 {
		h.setExtra(copyKey{nameRef(id), t}, all+n-1)
	}
	if all > 0 {
		return false
	}
	tb.setBlock(id, tb.sets.with(tb.arena.set(id), h.slot, t))
	h.held[t].Add(1)
	return true
}

// lose takes back n copies under ref in tier t, of at least as many.
func (h *Holder) lose(ref nameRef, t Tier, n int) {
	tb := h.table
	id := tb.blockOf(ref)
	if extra := h.extraOf(ref, t); extra > 0 {
		h.setExtra(copyKey{ref, t}, max(0, extra-n))
		if n <= extra && ref&recordFlag == 0 {
			return
		}
		if n > extra && ref&recordFlag != 0 {
			tb.setName(ref, tb.sets.without(tb.holdersOf(ref), h.slot, 1<<t))
		}
	} else if ref&recordFlag != 0 {
		tb.setName(ref, tb.sets.without(tb.holdersOf(ref), h.slot, 1<<t))
	}
	if ref&recordFlag != 0 {
		if all := h.extraOf(nameRef(id), t); all > 0 {
			h.setExtra(copyKey{nameRef(id), t}, max(0, all-n))
			if n <= all {
				return
			}
		}
	}
	tb.setBlock(id, tb.sets.without(tb.arena.set(id), h.slot, 1<<t))
	h.held[t].Add(-1)
}
