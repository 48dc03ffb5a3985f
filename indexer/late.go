package indexer

import "unsafe"

// lateNames is how many names of removed blocks a holder keeps.
const lateNames = 4096

// late keeps the latest names under which a stream has removed a block from its
// last tier: offload connectors announce the copy in cpu after the removal from
// gpu, and events may be lost between a removal and the store of a child. After
// that the name is unknown, and what is stored under it waits as an orphan until
// the parent is stored again. Nothing is lost by that: no match gets past a
// parent that is not held.
//
// It is a ring, in which names that are held again leave gaps, and an index of
// it by open addressing: 16 bits of the hash, 16 of the place in the ring.
type late struct {
	ring  []lateName
	next  int
	index []uint32 // 0: free; else a tag, and the place + 1
	keep  int      // how long the ring may get
}

type lateName struct {
	name   EngineHash
	seq    SeqHash
	before EngineHash // as in place
	pos    uint32
	scope  scopeID
	some   bool
	unseen bool // removed by the stream, never stored: nothing but that is known
}

const lateBytes = int64(unsafe.Sizeof(lateName{}) + 2*4)

func (l *late) bytes() int64 { return int64(len(l.ring)) * lateBytes }

// slot returns where the index has e, or where it would have it.
func (l *late) slot(e EngineHash) int {
	h := mix(uint64(e))
	mask := len(l.index) - 1
	i := int(h>>32) & mask
	for ; l.index[i] != 0; i = (i + 1) & mask {
		if v := l.index[i]; v>>16 == uint32(h)&0xffff && l.ring[v&0xffff-1].name == e {
			break
		}
	}
	return i
}

// get returns what is kept of e, nil if nothing is.
func (l *late) get(e EngineHash) *lateName {
	if len(l.ring) == 0 {
		return nil
	}
	if v := l.index[l.slot(e)]; v != 0 {
		return &l.ring[v&0xffff-1]
	}
	return nil
}

// put keeps n, in place of the oldest name if there is no room.
func (l *late) put(n lateName, mem *meter) {
	n.some = true
	if have := l.get(n.name); have != nil {
		*have = n
		return
	}
	if l.next == len(l.ring) {
		if len(l.ring) < l.keep {
			l.grow(mem)
		} else {
			l.next = 0
		}
	}
	if old := &l.ring[l.next]; old.some {
		l.drop(old.name)
	}
	l.ring[l.next] = n
	l.enter(l.next)
	l.next++
}

func (l *late) enter(at int) {
	h := mix(uint64(l.ring[at].name))
	l.index[l.slot(l.ring[at].name)] = uint32(h)<<16 | uint32(at+1)
}

func (l *late) grow(mem *meter) {
	mem.add(-l.bytes())
	ring := make([]lateName, min(max(16, 2*len(l.ring)), l.keep))
	copy(ring, l.ring)
	l.ring = ring
	size := 16
	for size < 2*len(ring) {
		size *= 2
	}
	l.index = make([]uint32, size)
	for i := range l.ring {
		if l.ring[i].some {
			l.enter(i)
		}
	}
	mem.add(l.bytes())
}

// drop forgets e.
func (l *late) drop(e EngineHash) {
	if len(l.ring) == 0 {
		return
	}
	i := l.slot(e)
	v := l.index[i]
	if v == 0 {
		return
	}
	l.ring[v&0xffff-1] = lateName{}
	// Close the gap with what comes after and would not be found any more.
	mask := len(l.index) - 1
	for j := (i + 1) & mask; l.index[j] != 0; j = (j + 1) & mask {
		home := int(mix(uint64(l.ring[l.index[j]&0xffff-1].name))>>32) & mask
		if (j-home)&mask >= (j-i)&mask {
			l.index[i] = l.index[j]
			i = j
		}
	}
	l.index[i] = 0
}
