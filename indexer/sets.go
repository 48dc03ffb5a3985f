package indexer

import (
	"sync/atomic"
	"unsafe"
)

// A set says which slots hold a block, one plane of bits for each tier. Sets are
// interned: equal sets have one id, so that a match need only look closer where
// the id changes, and a block that many streams hold costs no more than one that
// one stream holds. Id 0 is the empty set.
const (
	setPart  = 256
	memoBits = 12
)

// setChunk is memory for 256 sets, one after another: first how often the id was
// given another set, a guard for readers, then the words of the planes in order.
type setChunk []uint64

// setPool is what readers see. It is never changed but in the words and
// generations of its chunks; where it must grow, another takes its place.
type setPool struct {
	words  int // of one plane
	chunks []setChunk
}

// stride is how many words a set takes.
func (p *setPool) stride() int { return 1 + NumTiers*p.words }

// setUse counts who has a set.
type setUse struct {
	blocks  uint32
	many    uint32 // of these, blocks that have records of names
	records uint32 // of names
}

func (u setUse) total() uint32 { return u.blocks + u.records }

// sets interns sets. Sets that nobody has are dropped, all at once when there are
// enough of them, and their ids used again. A reader that still has such an id
// notices by its generation.
//
// One writer at a time calls all methods but view.
type sets struct {
	pool    atomic.Pointer[setPool]
	uses    []setUse // by id
	hashes  []uint32 // by id: part of the hash of the words
	intern  []uint32 // ids by hash: open addressing, 0 is free
	ids     int      // interned, in use or not
	free    []uint32
	live    int      // in use
	retired []uint64 // slots that no new set has, because their holder is gone
	memo    []setStep
	buf     []uint64
	mem     *meter
}

// setStep remembers what a set became when a slot was added or taken away.
type setStep struct {
	from, to uint32
	key      uint32 // 0: none
}

const (
	setBytes  = int64(unsafe.Sizeof(setUse{}) + 4)
	stepBytes = int64(unsafe.Sizeof(setStep{}))
)

// words returns the words of one plane, and all words of a set. For the writer.
func (st *sets) words(id uint32) (int, []uint64) {
	p := st.pool.Load()
	if p == nil || id == 0 {
		return 0, nil
	}
	n := p.stride()
	i := int(id%setPart) * n
	return p.words, p.chunks[id/setPart][i+1 : i+n : i+n]
}

// has reports whether slot holds a block with the set in tier t.
func (st *sets) has(id uint32, slot int, t Tier) bool {
	return st.tiers(id, slot)>>t&1 != 0
}

// tiers returns the tiers, as bits, in which slot holds a block with the set.
func (st *sets) tiers(id uint32, slot int) uint32 {
	words, set := st.words(id)
	w := slot >> 6
	if w >= words {
		return 0
	}
	bit := slot & 63
	return uint32(set[w]>>bit&1 | set[words+w]>>bit&1<<CPU | set[2*words+w]>>bit&1<<Disk)
}

// with returns the set with slot in tier t.
func (st *sets) with(id uint32, slot int, t Tier) uint32 { return st.step(id, slot, 1<<t, true) }

// without returns the set without slot in the tiers of mask.
func (st *sets) without(id uint32, slot int, mask uint32) uint32 {
	return st.step(id, slot, mask, false)
}

// clean returns the set without the slots that are retired.
func (st *sets) clean(id uint32) uint32 { return st.step(id, 0, 0, false) }

// isRetired reports whether the set has a slot that is retired.
func (st *sets) isRetired(id uint32) bool {
	words, set := st.words(id)
	for w := range min(words, len(st.retired)) {
		if (set[w]|set[words+w]|set[2*words+w])&st.retired[w] != 0 {
			return true
		}
	}
	return false
}

// step adds or takes away slot in the tiers of mask.
func (st *sets) step(id uint32, slot int, mask uint32, add bool) uint32 {
	key := uint32(slot)<<(NumTiers+2) | mask<<2 | 2
	if add {
		key |= 1
	}
	if st.memo == nil {
		st.memo = make([]setStep, 1<<memoBits)
		st.mem.add(int64(len(st.memo)) * stepBytes)
	}
	m := &st.memo[(uint64(id)<<32|uint64(key))*0x9E3779B97F4A7C15>>(64-memoBits)]
	if m.key == key && m.from == id {
		return m.to
	}
	to := st.changed(id, slot, mask, add)
	*m = setStep{id, to, key} // after that: it may have forgotten all
	return to
}

// changed makes the set that step returns.
func (st *sets) changed(id uint32, slot int, mask uint32, add bool) uint32 {
	if add {
		st.widen(slot>>6 + 1)
	}
	words, set := st.words(id)
	if set == nil {
		if !add {
			return 0
		}
		words = st.pool.Load().words
		set = make([]uint64, NumTiers*words)
	}
	st.buf = append(st.buf[:0], set...)
	buf := st.buf
	some := uint64(0)
	for t := range NumTiers {
		plane := buf[t*words : (t+1)*words]
		for w := range min(words, len(st.retired)) {
			plane[w] &^= st.retired[w]
		}
		if w := slot >> 6; mask>>t&1 != 0 && w < words {
			bit := uint64(1) << (slot & 63)
			plane[w] &^= bit
			if add {
				plane[w] |= bit
			}
		}
		for _, b := range plane {
			some |= b
		}
	}
	if some == 0 {
		return 0
	}
	return st.find(buf)
}

func hashWords(words []uint64) uint32 {
	h := uint64(len(words))
	for _, b := range words {
		h = (h ^ b) * 0xff51afd7ed558ccd
		h ^= h >> 32
	}
	return uint32(h)
}

// find returns the id of the set with these words; it may be new.
func (st *sets) find(words []uint64) uint32 {
	if 4*(st.ids+1) > 3*len(st.intern) {
		st.reclaim()
	}
	hash := hashWords(words)
	mask := uint32(len(st.intern) - 1)
	i := hash & mask
next:
	for ; st.intern[i] != 0; i = (i + 1) & mask {
		id := st.intern[i]
		if st.hashes[id] != hash {
			continue
		}
		_, have := st.words(id)
		for j, b := range words {
			if have[j] != b {
				continue next
			}
		}
		return id
	}
	id := st.newID()
	p := st.pool.Load()
	set := p.chunks[id/setPart][int(id%setPart)*p.stride():]
	atomic.AddUint64(&set[0], 1) // before the words change
	for j, b := range words {
		atomic.StoreUint64(&set[1+j], b)
	}
	st.hashes[id] = hash
	st.intern[i] = id
	st.ids++
	return id
}

func (st *sets) newID() uint32 {
	if n := len(st.free); n > 0 {
		id := st.free[n-1]
		st.free = st.free[:n-1]
		return id
	}
	old := st.pool.Load()
	p := &setPool{words: old.words, chunks: append(old.chunks[:len(old.chunks):len(old.chunks)], st.newChunk(old.words))}
	st.pool.Store(p)
	first := len(old.chunks) * setPart
	st.uses = append(st.uses, make([]setUse, setPart)...)
	st.hashes = append(st.hashes, make([]uint32, setPart)...)
	st.mem.add(setPart * setBytes)
	for id := first + setPart - 1; id >= max(first, 1); id-- {
		st.free = append(st.free, uint32(id))
	}
	return st.newID()
}

func (st *sets) newChunk(words int) setChunk {
	c := make(setChunk, setPart*(1+NumTiers*words))
	st.mem.add(c.bytes())
	return c
}

func (c setChunk) bytes() int64 { return int64(len(c)) * 8 }

// widen makes all sets at least so many words wide. Readers of the narrow ones
// find that the generations have changed.
func (st *sets) widen(words int) {
	old := st.pool.Load()
	if old == nil {
		st.pool.Store(&setPool{words: words})
		return
	}
	if old.words >= words {
		return
	}
	words = max(words, old.words+old.words/2)
	p := &setPool{words: words}
	for _, c := range old.chunks {
		to := st.newChunk(words)
		for i := range setPart {
			from, into := c[i*old.stride():], to[i*p.stride():]
			into[0] = from[0] + 1
			for t := range NumTiers {
				copy(into[1+t*words:], from[1+t*old.words:1+(t+1)*old.words])
			}
		}
		p.chunks = append(p.chunks, to)
	}
	st.pool.Store(p)
	for _, c := range old.chunks {
		for i := range setPart {
			atomic.AddUint64(&c[i*old.stride()], 1)
		}
		st.mem.add(-c.bytes())
	}
	st.rehash()
}

// reclaim drops the sets that nobody has, and makes room for others.
func (st *sets) reclaim() {
	kept := make([]uint32, 0, st.ids)
	for _, id := range st.intern {
		switch {
		case id == 0:
		case st.uses[id].total() > 0:
			kept = append(kept, id)
		default:
			st.free = append(st.free, id)
		}
	}
	st.ids = len(kept)
	size := max(64, len(st.intern)/2)
	for size < 4*(st.ids+1) {
		size *= 2
	}
	st.mem.add(4 * int64(size-len(st.intern)))
	st.intern = make([]uint32, size)
	for _, id := range kept {
		st.insert(id)
	}
	st.forget()
}

func (st *sets) insert(id uint32) {
	mask := uint32(len(st.intern) - 1)
	i := st.hashes[id] & mask
	for st.intern[i] != 0 {
		i = (i + 1) & mask
	}
	st.intern[i] = id
}

// rehash finds the places of all sets again, after their words have changed.
func (st *sets) rehash() {
	ids := st.intern
	st.intern = make([]uint32, len(ids))
	for _, id := range ids {
		if id != 0 {
			_, words := st.words(id)
			st.hashes[id] = hashWords(words)
			st.insert(id)
		}
	}
}

// count notes that n more, or fewer, blocks, blocks with records and records have
// the set. Where one set takes the place of another, the new one is counted
// first: it would else be free to be dropped.
func (st *sets) count(id uint32, blocks, many, records int32) {
	if id == 0 {
		return
	}
	u := &st.uses[id]
	was := u.total() > 0
	u.blocks += uint32(blocks)
	u.many += uint32(many)
	u.records += uint32(records)
	if is := u.total() > 0; is != was {
		if is {
			st.live++
		} else {
			st.live--
		}
	}
}

// each calls f for every set that is in use.
func (st *sets) each(f func(id uint32)) {
	for id := range st.uses {
		if st.uses[id].total() > 0 {
			f(uint32(id))
		}
	}
}

// retire keeps slot out of all sets that are made from now on, until restore.
func (st *sets) retire(slot int) {
	for len(st.retired) <= slot>>6 {
		st.retired = append(st.retired, 0)
	}
	st.retired[slot>>6] |= 1 << (slot & 63)
	st.forget()
}

// restore takes back retire: no block has a set with the slot any more.
func (st *sets) restore(slot int) {
	st.retired[slot>>6] &^= 1 << (slot & 63)
	st.forget()
}

// forget drops the memory of steps, because they no longer hold.
func (st *sets) forget() { clear(st.memo) }
