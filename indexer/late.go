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
// It is a cache of two names to a hash, of which the oldest, nearly, goes first. A
// holder of few blocks keeps fewer: an eighth of what it holds.
type late struct {
	names []lateName // ways of them for each hash
	ways  int
	turn  int // which of the ways goes next
	keep  int // how many there may be, rounded down to whole ways
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
	lateWays  = 2  // in one cache line
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

// put keeps n. Another name with its hash goes, if there is no room and no more is
// to be made for a holder of so many blocks.
func (l *late) put(n lateName, held int64, mem *meter) {
	n.some = true
	set := l.set(n.name)
	at := -1
	for i := range set {
		if !set[i].some {
			at = i
		} else if set[i].name == n.name {
			at = i
			break
		}
	}
	if at < 0 {
		if size := len(l.names); size < l.limit() && (size == 0 || 2*int64(size) <= held/lateShare) {
			l.grow(mem)
			l.put(n, held, mem)
			return
		}
		at = l.turn % l.ways
		l.turn++
	}
	set[at] = n
}

func (l *late) limit() int { return l.keep - l.keep%min(lateWays, l.keep) }

func (l *late) grow(mem *meter) {
	old := *l
	l.ways = min(lateWays, l.keep)
	l.names = make([]lateName, min(max(lateFirst, 2*len(old.names)), l.limit()))
	mem.add(l.bytes() - old.bytes())
	for _, n := range old.names {
		if n.some {
			l.put(n, 0, mem)
		}
	}
}

// touch fetches where e is, or is going to be.
func (l *late) touch(e EngineHash) bool {
	set := l.set(e)
	return len(set) > 0 && set[0].some && set[len(set)-1].some
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
