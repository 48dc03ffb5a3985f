package indexer

import "unsafe"

// lateNames is about how many names of removed blocks a holder keeps at most.
const lateNames = 4096

// late keeps the latest names under which a stream has removed a block from its
// last tier: offload connectors announce the copy in cpu after the removal from
// gpu, and events may be lost between a removal and the store of a child. After
// that the name is unknown, and what is stored under it waits as an orphan until
// the parent is stored again. Nothing is lost by that: no match gets past a
// parent that is not held.
//
// It is a cache of four names to a hash, the latest first. A holder of few blocks
// keeps fewer: an eighth of what it holds.
type late struct {
	names []lateName // ways of them for each hash
	ways  int
	keep  int // how many there may be
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

const (
	lateWays  = 4
	lateFirst = 64 // how many names there is room for at first
	lateShare = 8
	lateBytes = int64(unsafe.Sizeof(lateName{}))
)

func (l *late) bytes() int64 { return int64(len(l.names)) * lateBytes }

// set returns the names with the hash of e.
func (l *late) set(e EngineHash) []lateName {
	if len(l.names) == 0 {
		return nil
	}
	i := int(mix(uint64(e))>>32*uint64(len(l.names)/l.ways)>>32) * l.ways
	return l.names[i : i+l.ways]
}

// get returns what is kept of e, nil if nothing is.
func (l *late) get(e EngineHash) *lateName {
	set := l.set(e)
	for i := range set {
		if set[i].name == e && set[i].some {
			return &set[i]
		}
	}
	return nil
}

// put keeps n. The oldest name with its hash goes, if there is no room and no
// more is to be made for a holder of so many blocks.
func (l *late) put(n lateName, held int64, mem *meter) {
	n.some = true
	set := l.set(n.name)
	if i := room(set, n.name); i < len(set) {
		copy(set[1:i+1], set[:i])
		set[0] = n
		return
	}
	if size := len(l.names); size < l.keep && (size == 0 || 2*int64(size) <= held/lateShare) {
		l.grow(mem)
		l.put(n, held, mem)
		return
	}
	copy(set[1:], set)
	set[0] = n
}

// room returns where e is, or else the first free place.
func room(set []lateName, e EngineHash) int {
	free := len(set)
	for i := range set {
		if set[i].some && set[i].name == e {
			return i
		}
		if !set[i].some && free == len(set) {
			free = i
		}
	}
	return free
}

func (l *late) grow(mem *meter) {
	old := *l
	l.ways = min(lateWays, l.keep)
	l.names = make([]lateName, min(max(lateFirst, 2*len(old.names)), l.keep)/l.ways*l.ways)
	mem.add(l.bytes() - old.bytes())
	for i := len(old.names) - 1; i >= 0; i-- { // the oldest of a set come first
		if n := old.names[i]; n.some {
			set := l.set(n.name)
			copy(set[1:], set)
			set[0] = n
		}
	}
}

// drop forgets e.
func (l *late) drop(e EngineHash) {
	if n := l.get(e); n != nil {
		*n = lateName{}
	}
}

// each calls f for all names until it is false.
func (l *late) each(f func(*lateName) bool) {
	for i := range l.names {
		if l.names[i].some && !f(&l.names[i]) {
			return
		}
	}
}
