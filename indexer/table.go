package indexer

import (
	"sync"
	"sync/atomic"
)

// Table says which streams hold which blocks of one model and block size.
//
// Matches and inspections are safe for any number of goroutines at once, also
// while streams write. Writers take turns. A match takes no lock, and sees every
// block as it stands at some moment meanwhile: a chain that does not change
// while it is matched is answered exactly, whatever else changes.
type Table struct {
	key        TableKey
	hasher     Hasher
	policy     DuplicatePolicy
	maxOrphans int
	keepLate   int             // lateNames, but in tests
	wake       chan<- struct{} // tells the sweeper that there is work

	roster atomic.Pointer[roster]
	moves  atomic.Uint64 // grows after holders got seats of suspects, and before they give them up
	arena  arena
	index  buckets // sequence hash -> entry
	sets   sets
	mem    *meter

	mu      sync.Mutex // held by whoever writes anything here but mem
	names   names
	refused Refused
	seqs    []SeqHash // scratch
	slots   []*seat   // by slot, until it is swept
	retired []*seat   // what waits for the sweeper
	sharing sharing
}

// StreamID names a stream: one data-parallel rank of one instance.
type StreamID struct {
	Instance string
	Rank     int
}

// roster is who takes part in matches. It is never changed, only replaced.
type roster struct {
	seats  []*seat    // by slot; nil: nobody
	ids    []StreamID // of their holders
	live   []uint64   // bit for each slot that is matched by itself
	tracks []track    // of the holders of which something is suspect
	track  []int32    // by slot: its place in tracks, -1: none; nil where there are none
}

func newTable(key TableKey, x *Index) *Table {
	t := &Table{
		key: key, hasher: x.hasher,
		policy: x.opts.DuplicatePolicy, maxOrphans: x.opts.MaxOrphanBlocks,
		keepLate: lateNames, wake: x.wake,
		mem: &meter{model: x.quotaOf(key.Model), all: &x.quota},
	}
	t.arena.mem, t.index.mem, t.sets.mem, t.names.index.mem = t.mem, t.mem, t.mem, t.mem
	t.roster.Store(&roster{})
	return t
}

// Key returns what t is the table of.
func (t *Table) Key() TableKey { return t.key }

// Open begins a new incarnation of a stream, which holds nothing. It does not
// touch an older incarnation: the caller retires that one, and does so first,
// for until then matches report both.
func (t *Table) Open(id StreamID) *Holder {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := &Holder{table: t, id: id}
	h.late.keep = t.keepLate
	t.takeSeat(h)
	t.publishRoster()
	return h
}

// publishRoster makes the live seats of t.slots those that matches see.
func (t *Table) publishRoster() {
	ro := &roster{
		seats: make([]*seat, len(t.slots)),
		ids:   make([]StreamID, len(t.slots)),
		live:  make([]uint64, (len(t.slots)+63)/64),
	}
	for slot, s := range t.slots {
		if s == nil || s.ended.Load() || !s.of.has(s) {
			continue
		}
		ro.seats[slot], ro.ids[slot] = s, s.of.id
		if len(s.of.suspects) == 0 && !s.of.unsure {
			ro.live[slot>>6] |= 1 << (slot & 63)
		} else if s == s.of.seat {
			ro.addTrack(s.of, len(t.slots))
		}
	}
	t.roster.Store(ro)
}

// Sequence appends to dst the sequence hashes of the full blocks of tokens:
// those that MatchTokens looks up.
func (t *Table) Sequence(tokens []uint32, scope ScopeKey, dst []SeqHash) []SeqHash {
	var pairs []uint32
	var seq SeqHash
	for i := range t.blocksIn(len(tokens)) {
		seq = t.chain(i, seq, scope, t.localAt(tokens, i, &pairs))
		dst = append(dst, seq)
	}
	return dst
}

// blocksIn returns how many full blocks n tokens have.
func (t *Table) blocksIn(n int) int {
	if t.key.BlockSize < 1 {
		return 0
	}
	if t.key.Bigram {
		n-- // pairs
	}
	return max(0, n) / t.key.BlockSize
}

// localAt hashes block i of tokens. pairs is scratch, used by bigrams only.
func (t *Table) localAt(tokens []uint32, i int, pairs *[]uint32) LocalHash {
	size := t.key.BlockSize
	if !t.key.Bigram {
		return t.hasher.Local(tokens[i*size:(i+1)*size], nil)
	}
	p := (*pairs)[:0]
	for j := i * size; j < (i+1)*size; j++ {
		p = append(p, tokens[j], tokens[j+1])
	}
	*pairs = p
	return t.hasher.Local(p, nil)
}

// chain returns the sequence hash of block i, which follows prev.
func (t *Table) chain(i int, prev SeqHash, scope ScopeKey, local LocalHash) SeqHash {
	if i == 0 {
		return t.hasher.Root(scope, local)
	}
	return t.hasher.Next(prev, local)
}
