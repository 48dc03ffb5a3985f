package indexer

import "sync/atomic"

// holderSet says which slots hold a block, one plane of bits for each tier.
// It is interned: equal sets are one object, which never changes once it is
// made. Readers keep pointers to it for as long as they like.
type holderSet struct {
	bits  []uint64 // NumTiers planes of words each
	words int      // no plane needs more
	id    uint32   // where setTable.byID has it; 0 is the empty set, which has no object

	// Only the table's writer uses these.
	refs int // blocks that have this set; 0: no longer interned
	hash uint64
	next *holderSet // with the same hash
}

// word returns word w of the planes.
func (s *holderSet) word(w int) (gpu, cpu, disk uint64) {
	if w >= s.words {
		return 0, 0, 0
	}
	return s.bits[w], s.bits[s.words+w], s.bits[2*s.words+w]
}

// has reports whether slot holds the block in tier t.
func (s *holderSet) has(slot int, t Tier) bool {
	w := slot >> 6
	return s != nil && w < s.words && s.bits[int(t)*s.words+w]>>(slot&63)&1 != 0
}

// setTable interns holder sets. Sets are reference counted: one that no block
// has any more is dropped and its id is used again.
//
// One writer at a time. Readers only call get, while they hold the lock of a
// shard that has the id: the writer replaces ids under that lock, so a set that
// can still be asked for is still there.
type setTable struct {
	byID   atomic.Pointer[[]*holderSet]
	free   []uint32
	byHash map[uint64]*holderSet
	live   int
	memo   []setStep
	buf    []uint64
}

// setStep remembers what a set became when a slot was added or taken away.
type setStep struct {
	from, to *holderSet
	key      uint32
}

const memoBits = 11

// get returns the set with the given id, nil for the empty one.
func (st *setTable) get(id uint32) *holderSet {
	if id == 0 {
		return nil
	}
	return (*st.byID.Load())[id]
}

// with returns s with slot in tier t. nil is the empty set, here and below.
func (st *setTable) with(s *holderSet, slot int, t Tier) *holderSet {
	return st.step(s, slot, 1<<t, true)
}

// without returns s without slot in tier t.
func (st *setTable) without(s *holderSet, slot int, t Tier) *holderSet {
	return st.step(s, slot, 1<<t, false)
}

// withoutSlot returns s without slot in any tier.
func (st *setTable) withoutSlot(s *holderSet, slot int) *holderSet {
	return st.step(s, slot, 1<<NumTiers-1, false)
}

// step adds or takes away slot in the tiers of mask.
func (st *setTable) step(s *holderSet, slot int, mask uint32, add bool) *holderSet {
	key := uint32(slot)<<(NumTiers+1) | mask<<1
	var id uint32
	if s != nil {
		id = s.id
	}
	if add {
		key |= 1
	}
	if st.memo == nil {
		st.memo = make([]setStep, 1<<memoBits)
	}
	m := &st.memo[(uint64(id)<<32|uint64(key))*0x9E3779B97F4A7C15>>(64-memoBits)]
	// key is never 0, mask is not. A set that was dropped meanwhile is no answer.
	if m.key == key && m.from == s && (m.to == nil || m.to.refs > 0) {
		return m.to
	}
	to := st.change(s, slot, mask, add)
	*m = setStep{s, to, key}
	return to
}

// change makes the set that step returns.
func (st *setTable) change(s *holderSet, slot int, mask uint32, add bool) *holderSet {
	words := 0
	if s != nil {
		words = s.words
	}
	if add {
		words = max(words, slot>>6+1)
	} else if slot>>6 >= words {
		return s
	}
	buf := st.buf[:0]
	for t := range NumTiers {
		for w := range words {
			var b uint64
			if s != nil && w < s.words {
				b = s.bits[t*s.words+w]
			}
			if w == slot>>6 && mask>>t&1 != 0 {
				bit := uint64(1) << (slot & 63)
				b &^= bit
				if add {
					b |= bit
				}
			}
			buf = append(buf, b)
		}
	}
	st.buf = buf
	return st.intern(trim(buf, words))
}

// trim cuts words off the planes that none needs, so that equal sets have
// equal bits.
func trim(buf []uint64, words int) ([]uint64, int) {
	need := words
	for need > 0 && buf[need-1]|buf[words+need-1]|buf[2*words+need-1] == 0 {
		need--
	}
	if need < words {
		for t := 1; t < NumTiers; t++ {
			copy(buf[t*need:(t+1)*need], buf[t*words:])
		}
	}
	return buf[:NumTiers*need], need
}

// intern returns the one set with these bits; it may be new, with no block.
func (st *setTable) intern(bits []uint64, words int) *holderSet {
	if words == 0 {
		return nil
	}
	hash := uint64(words)
	for _, b := range bits {
		hash = (hash ^ b) * 0xff51afd7ed558ccd
		hash ^= hash >> 32
	}
next:
	for s := st.byHash[hash]; s != nil; s = s.next {
		if s.words != words {
			continue
		}
		for i, b := range bits {
			if s.bits[i] != b {
				continue next
			}
		}
		return s
	}
	s := &holderSet{bits: append([]uint64(nil), bits...), words: words, id: st.newID(), hash: hash, next: st.byHash[hash]}
	if st.byHash == nil {
		st.byHash = make(map[uint64]*holderSet)
	}
	st.byHash[hash] = s
	(*st.byID.Load())[s.id] = s
	st.live++
	return s
}

func (st *setTable) newID() uint32 {
	if n := len(st.free); n > 0 {
		id := st.free[n-1]
		st.free = st.free[:n-1]
		return id
	}
	// Double the directory; readers of the old one find there what they may ask for.
	var old []*holderSet
	if p := st.byID.Load(); p != nil {
		old = *p
	}
	ids := make([]*holderSet, max(64, 2*len(old)))
	copy(ids, old)
	st.byID.Store(&ids)
	for id := len(ids) - 1; id >= max(1, len(old)); id-- {
		st.free = append(st.free, uint32(id))
	}
	return st.newID()
}

// retain notes that one more block has s.
func (st *setTable) retain(s *holderSet) {
	if s != nil {
		s.refs++
	}
}

// release notes that one block less has s. The caller has already replaced it
// in that block, under the shard's lock.
func (st *setTable) release(s *holderSet) {
	if s == nil {
		return
	}
	if s.refs--; s.refs > 0 {
		return
	}
	(*st.byID.Load())[s.id] = nil
	st.free = append(st.free, s.id)
	st.live--
	if st.byHash[s.hash] == s {
		if s.next == nil {
			delete(st.byHash, s.hash)
		} else {
			st.byHash[s.hash] = s.next
		}
		return
	}
	for p := st.byHash[s.hash]; p != nil; p = p.next {
		if p.next == s {
			p.next = s.next
			return
		}
	}
}

// each calls f for every set that some block has. For the writer.
func (st *setTable) each(f func(*holderSet)) {
	if p := st.byID.Load(); p != nil {
		for _, s := range *p {
			if s != nil {
				f(s)
			}
		}
	}
}
