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
	chunkBits  = 7 // slabs in a chunk
	chunkSlabs = 1 << chunkBits
)

// slab is 32 entries, with an array for each thing that is to be known of them:
// a match reads only what it needs, in order. It has no pointers.
type slab struct {
	// Readers see these. They are written with atomics, by one writer at a time.

	// runs has the links in its lower half: bit i says that entry i-1 is the
	// parent of entry i. The upper half counts changes: a reader that finds the
	// word as it was knows that no entry of the slab was freed meanwhile.
	runs uint64
	next uint32            // a hint: the id at which a chain goes on that leaves the slab
	_    uint32            //
	sets [slabSize]uint32  // who holds the block
	keys [slabSize]SeqHash // 0: no entry

	// The rest is the writer's.
	used uint32 // bit for each entry
	many uint32 // bit for each entry that has records of names
	more uint32 // bit for each entry of which somebody may have had several copies
	_    uint32
	name [slabSize]EngineHash
	head [slabSize]uint32 // where the place of an entry is that is not linked
}

type chunk [chunkSlabs]slab

const (
	chunkBytes = int64(unsafe.Sizeof(chunk{}))
	slabChange = 1 << 32 // in a word of runs

	maxChunks = int(recordFlag) / (chunkSlabs * slabSize)
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
// Readers load the directory of chunks, and of a slab what is marked as theirs.
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

// slabOf returns the slab of an id, which is in the directory.
func slabOf(dir []*chunk, id uint32) *slab {
	return &dir[id>>(slabBits+chunkBits)][id>>slabBits&(chunkSlabs-1)]
}

// at returns the slab of an id, and where in it the entry is.
func (a *arena) at(id uint32) (s *slab, o uint32) { return slabOf(a.all, id), id & (slabSize - 1) }

// slab returns a slab by its number.
func (a *arena) slab(n uint32) *slab { return slabOf(a.all, n<<slabBits) }

func (a *arena) key(id uint32) SeqHash {
	s, o := a.at(id)
	return s.keys[o]
}

func (a *arena) set(id uint32) uint32 {
	s, o := a.at(id)
	return s.sets[o]
}

func (a *arena) setSet(id, set uint32) {
	s, o := a.at(id)
	atomic.StoreUint32(&s.sets[o], set)
}

func (a *arena) isUsed(id uint32) bool {
	s, o := a.at(id)
	return s.used>>o&1 != 0
}

func (a *arena) hasMany(id uint32) bool {
	s, o := a.at(id)
	return s.many>>o&1 != 0
}

func (a *arena) setMany(id uint32) {
	s, o := a.at(id)
	s.many |= 1 << o
}

func (a *arena) setMore(id uint32) {
	s, o := a.at(id)
	s.more |= 1 << o
}

func (a *arena) hasMore(id uint32) bool {
	s, o := a.at(id)
	return s.more>>o&1 != 0
}

func (a *arena) name(id uint32) EngineHash {
	s, o := a.at(id)
	return s.name[o]
}

// place returns where the block of id stands.
func (a *arena) place(id uint32) place {
	s, o := a.at(id)
	back := uint32(bits.LeadingZeros32(^(uint32(s.runs) << (slabSize - 1 - o))))
	p := *a.heads.at(s.head[o-back])
	p.seq = s.keys[o]
	if back > 0 {
		p.parent, p.before = s.keys[o-1], s.name[o-1]
		p.pos += back
	}
	return p
}

// before returns the name of the parent of id.
func (a *arena) before(id uint32) EngineHash {
	s, o := a.at(id)
	if s.runs>>o&1 != 0 {
		return s.name[o-1]
	}
	return a.heads.at(s.head[o]).before
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
	if int(a.slabs)>>chunkBits == len(a.all) && !a.grow() {
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
		used := a.slab(a.hand).used
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

// regionSize returns how many chunks are made at once, where there are so many:
// few for small tables, then enough that most of them are in huge pages.
func regionSize(have int) int {
	switch {
	case have < 16:
		return 1
	case have < 62:
		return 32
	}
	return min(max(62, have/4), 256) // 62 chunks are a little less than three huge pages
}

// grow makes more chunks. It is false if there is no memory for them.
func (a *arena) grow() bool {
	n := regionSize(len(a.all))
	if len(a.all)+n > maxChunks {
		return false
	}
	if !a.mem.try(int64(n) * chunkBytes) {
		if n = 1; !a.mem.try(chunkBytes) {
			return false
		}
	}
	a.all = append(a.all, newChunks(n)...)
	dir := a.all
	a.dir.Store(&dir)
	a.slabs = max(a.slabs, 1)
	return true
}

// put makes an entry for a block at an id that room returned. The set comes
// first and the key then, so that whoever sees the key sees the set.
func (a *arena) put(id, set uint32, p *place, e EngineHash) {
	s, o := a.at(id)
	switch n := len(a.empty); {
	case s.used != 0:
	case n > 0 && a.empty[n-1] == id>>slabBits:
		a.empty = a.empty[:n-1]
	default:
		a.slabs++
	}
	a.count++
	s.used |= 1 << o
	s.name[o] = e
	atomic.StoreUint32(&s.sets[o], set)
	atomic.StoreUint64((*uint64)(&s.keys[o]), uint64(p.seq))

	runs := s.runs
	if o > 0 && p.pos > 0 && s.used>>(o-1)&1 != 0 && s.keys[o-1] == p.parent && s.name[o-1] == p.before {
		runs |= 1 << o
	} else {
		s.head[o] = a.heads.add(a.mem, *p)
	}
	if o+1 < slabSize && s.used>>(o+1)&1 != 0 {
		if h := a.heads.at(s.head[o+1]); h.pos > 0 && h.parent == p.seq && h.before == e {
			a.heads.drop(s.head[o+1])
			runs |= 1 << (o + 1)
		}
	}
	if runs != s.runs {
		atomic.StoreUint64(&s.runs, runs+slabChange)
	}
}

// free makes id no entry. The slab's word changes before and after the key
// does: a reader that had seen the one sees the other.
func (a *arena) free(id uint32) {
	s, o := a.at(id)
	runs := s.runs
	if o+1 < slabSize && runs>>(o+1)&1 != 0 {
		p := a.place(id)
		s.head[o+1] = a.heads.add(a.mem, place{parent: p.seq, before: s.name[o], pos: p.pos + 1, scope: p.scope})
		runs &^= 1 << (o + 1)
	}
	if runs>>o&1 == 0 {
		a.heads.drop(s.head[o])
	}
	runs &^= 1 << o
	atomic.StoreUint64(&s.runs, runs+slabChange)
	atomic.StoreUint64((*uint64)(&s.keys[o]), 0)
	atomic.StoreUint64(&s.runs, runs+2*slabChange)

	a.count--
	s.many &^= 1 << o
	s.more &^= 1 << o
	if s.used &^= 1 << o; s.used == 0 {
		a.empty = append(a.empty, id>>slabBits)
		atomic.StoreUint32(&s.next, 0)
	}
}

// hint notes that after the entry id a chain goes on at next.
func (a *arena) hint(id, next uint32) {
	s, o := a.at(id)
	if old := s.next; old != next && (old == 0 || o == slabSize-1) {
		atomic.StoreUint32(&s.next, next)
	}
}

// each calls f for the entries of n slabs, from the given one on, and returns
// the slab after them; 0 when there are no more.
func (a *arena) each(slab uint32, n int, f func(id uint32)) uint32 {
	for ; n > 0 && slab < a.slabs; n-- {
		for used := a.slab(slab).used; used != 0; used &= used - 1 {
			f(slab<<slabBits + uint32(bits.TrailingZeros32(used)))
		}
		slab++
	}
	if slab >= a.slabs {
		return 0
	}
	return slab
}
