package indexer

import (
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// Entries have ids, which are handed out in slabs of 32: a chain of blocks fills
// a slab before it gets another, so that it stays together however much comes
// and goes around it. Slab 0 is not used: id 0 is no entry.
const (
	slabBits   = 5
	slabSize   = 1 << slabBits
	chunkBits  = 12
	chunkSize  = 1 << chunkBits
	chunkSlabs = chunkSize / slabSize
)

// chunk is memory for 128 slabs, with an array for each thing that is to be
// known of an entry: a match reads only what it needs, in order. It has no
// pointers.
type chunk struct {
	// Readers see these. They are written with atomics, by one writer at a time.

	// runs has the links of a slab in its lower half: bit i says that entry
	// i-1 is the parent of entry i. The upper half counts changes: a reader that
	// finds the word as it was knows that no entry of the slab was freed
	// meanwhile.
	runs [chunkSlabs]uint64
	next [chunkSlabs]uint32 // a hint: the id at which a chain goes on that leaves the slab
	sets [chunkSize]uint32  // who holds the block
	keys [chunkSize]SeqHash // 0: no entry
	_    [0]struct{}        // what follows is the writer's
	name [chunkSize]EngineHash
	head [chunkSize]uint32  // where the place of an entry is that is not linked
	used [chunkSlabs]uint32 // bit for each entry
	many [chunkSlabs]uint32 // bit for each entry that has records of names
}

const (
	chunkBytes = int64(unsafe.Sizeof(chunk{}))
	headBytes  = int64(unsafe.Sizeof(place{}))

	// regionChunks bounds how many chunks are made at once. Larger regions can
	// be in huge pages.
	regionChunks = 32
	maxChunks    = int(recordFlag) / chunkSize
	slabChange   = 1 << 32 // in a word of runs
)

// place is where a block stands in its prompt.
type place struct {
	seq    SeqHash
	parent SeqHash    // of the block before it; meaningless at position 0
	before EngineHash // the engine's name of that block; meaningless at position 0
	pos    uint32     // how many blocks are before it
	scope  scopeID    // of its prompt
}

// arena is the entries of a table: one for each block that somebody holds.
//
// Readers load the directory of chunks, and of a chunk what is marked as theirs.
// They check an entry's key before they believe the rest, and the slab's word
// of runs before and after. All methods are the writer's but chunks.
type arena struct {
	dir   atomic.Pointer[[]*chunk]
	all   []*chunk // what dir points to
	empty []uint32 // slabs without entries, and
	slabs uint32   // from here on, those that never had any
	count int      // entries
	hand  uint32   // where the search for gaps goes on
	heads numbered[place]
	mem   *meter
}

// chunks returns the directory. For readers: what they knew an id from was
// stored after the chunk, so a directory loaded later has it.
func (a *arena) chunks() []*chunk {
	if p := a.dir.Load(); p != nil {
		return *p
	}
	return nil
}

func (a *arena) at(id uint32) (c *chunk, k uint32) { return a.all[id>>chunkBits], id & (chunkSize - 1) }

func (a *arena) key(id uint32) SeqHash {
	c, k := a.at(id)
	return c.keys[k]
}

func (a *arena) set(id uint32) uint32 {
	c, k := a.at(id)
	return c.sets[k]
}

func (a *arena) setSet(id, set uint32) {
	c, k := a.at(id)
	atomic.StoreUint32(&c.sets[k], set)
}

func (a *arena) isUsed(id uint32) bool {
	c, k := a.at(id)
	return c.used[k>>slabBits]>>(k&(slabSize-1))&1 != 0
}

func (a *arena) hasMany(id uint32) bool {
	c, k := a.at(id)
	return c.many[k>>slabBits]>>(k&(slabSize-1))&1 != 0
}

// isLinked reports whether the parent of id is id-1.
func (a *arena) isLinked(id uint32) bool {
	c, k := a.at(id)
	return c.runs[k>>slabBits]>>(k&(slabSize-1))&1 != 0
}

// follows returns the id after id, if that is an entry whose parent is id.
func (a *arena) follows(id uint32) (uint32, bool) {
	next := id + 1
	return next, next&(slabSize-1) != 0 && a.isLinked(next)
}

// place returns where the block of id stands.
func (a *arena) place(id uint32) place {
	c, k := a.at(id)
	o := k & (slabSize - 1)
	back := uint32(bits.LeadingZeros32(^(uint32(c.runs[k>>slabBits]) << (slabSize - 1 - o))))
	p := *a.heads.at(c.head[k-back])
	p.seq = c.keys[k]
	if back > 0 {
		p.parent, p.before = c.keys[k-1], c.name[k-1]
		p.pos += back
	}
	return p
}

// before returns the name of the parent of id.
func (a *arena) before(id uint32) EngineHash {
	c, k := a.at(id)
	if a.isLinked(id) {
		return c.name[k-1]
	}
	return a.heads.at(c.head[k]).before
}

// room finds a free id: after the entry that is given, if that is some, else
// where want blocks have room. It is 0 if there is no memory for one.
func (a *arena) room(after uint32, want int) uint32 {
	if next := after + 1; after != 0 && next&(slabSize-1) != 0 && !a.isUsed(next) {
		return next
	}
	// Up to a fifth of the entries in use may be gaps: what is freed at the end
	// of a chain is best kept for what comes there next.
	if inUse := (int(a.slabs) - len(a.empty)) * slabSize; inUse > a.count+a.count/4+16*slabSize {
		if id := a.gap(want); id != 0 {
			return id
		}
	}
	if n := len(a.empty); n > 0 {
		return a.empty[n-1] << slabBits
	}
	if int(a.slabs)>>(chunkBits-slabBits) == len(a.all) && !a.grow() {
		return a.gap(want)
	}
	return max(a.slabs, 1) << slabBits
}

// gap looks for room for up to want blocks in some slabs that are in use. It
// takes the largest gap it sees.
func (a *arena) gap(want int) uint32 {
	want = min(want, slabSize/2)
	best, length := uint32(0), 0
	for range min(int(a.slabs), 16) {
		if a.hand++; a.hand >= a.slabs {
			a.hand = 1
		}
		c, k := a.at(a.hand << slabBits)
		used := c.used[k>>slabBits]
		if used == 0 {
			continue // it is among the empty, or slab 0
		}
		for o := 0; o < slabSize; {
			if n := bits.TrailingZeros32(used >> o); n > 0 {
				if n = min(n, slabSize-o); n > length {
					best, length = a.hand<<slabBits+uint32(o), n
				}
				o += n
			} else {
				o += bits.TrailingZeros32(^(used >> o))
			}
		}
		if length >= want {
			break
		}
	}
	return best
}

// grow makes more chunks. It is false if there is no memory for them.
func (a *arena) grow() bool {
	n := min(max(len(a.all)/8, 1), regionChunks)
	if len(a.all)+n > maxChunks {
		return false
	}
	if !a.mem.try(int64(n) * chunkBytes) {
		if n = 1; !a.mem.try(chunkBytes) {
			return false
		}
	}
	region := make([]chunk, n)
	adviseHuge(unsafe.Pointer(&region[0]), uintptr(n)*unsafe.Sizeof(region[0]))
	for i := range region {
		a.all = append(a.all, &region[i])
	}
	dir := a.all
	a.dir.Store(&dir)
	a.slabs = max(a.slabs, 1)
	return true
}

// put makes an entry for a block at an id that room returned. The set comes
// first and the key then, so that whoever sees the key sees the set.
func (a *arena) put(id, set uint32, p place, e EngineHash) {
	c, k := a.at(id)
	s, o := k>>slabBits, k&(slabSize-1)
	switch n := len(a.empty); {
	case c.used[s] != 0:
	case n > 0 && a.empty[n-1] == id>>slabBits:
		a.empty = a.empty[:n-1]
	default:
		a.slabs++
	}
	a.count++
	c.used[s] |= 1 << o
	c.name[k] = e
	atomic.StoreUint32(&c.sets[k], set)
	atomic.StoreUint64((*uint64)(&c.keys[k]), uint64(p.seq))

	runs := c.runs[s]
	if o > 0 && p.pos > 0 && c.used[s]>>(o-1)&1 != 0 && c.keys[k-1] == p.parent && c.name[k-1] == p.before {
		runs |= 1 << o
	} else {
		c.head[k] = a.heads.add(a.mem, p)
	}
	if o+1 < slabSize && c.used[s]>>(o+1)&1 != 0 {
		if h := a.heads.at(c.head[k+1]); h.pos > 0 && h.parent == p.seq && h.before == e {
			a.heads.drop(c.head[k+1])
			runs |= 1 << (o + 1)
		}
	}
	if runs != c.runs[s] {
		atomic.StoreUint64(&c.runs[s], runs+slabChange)
	}
}

// free makes id no entry. The slab's word changes before and after the key
// does: a reader that had seen the one sees the other.
func (a *arena) free(id uint32) {
	c, k := a.at(id)
	s, o := k>>slabBits, k&(slabSize-1)
	runs := c.runs[s]
	if o+1 < slabSize && runs>>(o+1)&1 != 0 {
		p := a.place(id)
		c.head[k+1] = a.heads.add(a.mem, place{parent: p.seq, before: c.name[k], pos: p.pos + 1, scope: p.scope})
		runs &^= 1 << (o + 1)
	}
	if runs>>o&1 == 0 {
		a.heads.drop(c.head[k])
	}
	runs &^= 1 << o
	atomic.StoreUint64(&c.runs[s], runs+slabChange)
	atomic.StoreUint64((*uint64)(&c.keys[k]), 0)
	atomic.StoreUint64(&c.runs[s], runs+2*slabChange)

	a.count--
	c.many[s] &^= 1 << o
	if c.used[s] &^= 1 << o; c.used[s] == 0 {
		a.empty = append(a.empty, id>>slabBits)
		atomic.StoreUint32(&c.next[s], 0)
	}
}

// hint notes that after the entry id a chain goes on at next.
func (a *arena) hint(id, next uint32) {
	c, k := a.at(id)
	s := k >> slabBits
	if old := c.next[s]; old != next && (old == 0 || k&(slabSize-1) == slabSize-1) {
		atomic.StoreUint32(&c.next[s], next)
	}
}

// each calls f for the entries of a chunk's worth of slabs, from the given one
// on, and returns the slab after them; 0 when there are no more.
func (a *arena) each(slab uint32, slabs int, f func(id uint32)) uint32 {
	for range slabs {
		if slab >= a.slabs {
			return 0
		}
		c, k := a.at(slab << slabBits)
		for used := c.used[k>>slabBits]; used != 0; used &= used - 1 {
			f(slab<<slabBits + uint32(bits.TrailingZeros32(used)))
		}
		slab++
	}
	if slab >= a.slabs {
		return 0
	}
	return slab
}
