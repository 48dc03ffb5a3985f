package indexer

import "sync"

// block is what the table knows of one sequence hash that somebody holds.
type block struct {
	parent SeqHash // meaningless at position 0
	set    uint32  // id of its holderSet
	pos    uint32  // blocks before it in its prompt
}

// blocks maps sequence hashes to blocks, in shards by the hash's top bits.
//
// One writer at a time: the holder of the table's mutex. It changes a shard
// under the shard's lock and reads without. Readers take a shard's lock for
// the time of one look-up.
type blocks struct {
	shards [numShards]shard
	sets   setTable
}

const (
	shardBits = 8
	numShards = 1 << shardBits
)

type shard struct {
	mu sync.RWMutex
	m  map[SeqHash]block
	_  [32]byte // the next shard's lock is in another cache line
}

func (b *blocks) shard(seq SeqHash) *shard { return &b.shards[seq>>(64-shardBits)] }

// setOf returns who holds seq, nil if nobody does. For readers.
func (b *blocks) setOf(seq SeqHash) *holderSet {
	s := b.shard(seq)
	s.mu.RLock()
	set := b.sets.get(s.m[seq].set)
	s.mu.RUnlock()
	return set
}

// at returns the block of seq. For the writer.
func (b *blocks) at(seq SeqHash) (block, bool) {
	e, ok := b.shard(seq).m[seq]
	return e, ok
}

// add makes slot hold p in tier t, and reports whether it did not before.
func (b *blocks) add(p place, slot int, t Tier) bool {
	s := b.shard(p.seq)
	e, ok := s.m[p.seq]
	if !ok {
		e = block{parent: p.parent, pos: p.pos}
	}
	old := b.sets.get(e.set)
	if old.has(slot, t) {
		return false
	}
	b.replace(s, p.seq, e, old, b.sets.with(old, slot, t))
	return true
}

// remove makes slot no longer hold seq in tier t.
func (b *blocks) remove(seq SeqHash, slot int, t Tier) {
	s := b.shard(seq)
	if e, ok := s.m[seq]; ok {
		old := b.sets.get(e.set)
		b.replace(s, seq, e, old, b.sets.without(old, slot, t))
	}
}

// removeSlot makes slot no longer hold seq in any tier.
func (b *blocks) removeSlot(seq SeqHash, slot int) {
	s := b.shard(seq)
	if e, ok := s.m[seq]; ok {
		old := b.sets.get(e.set)
		b.replace(s, seq, e, old, b.sets.withoutSlot(old, slot))
	}
}

// replace gives block e of seq another set; without one the block is dropped.
func (b *blocks) replace(s *shard, seq SeqHash, e block, from, to *holderSet) {
	if from == to {
		return
	}
	b.sets.retain(to)
	s.mu.Lock()
	if to == nil {
		delete(s.m, seq)
	} else {
		e.set = to.id
		if s.m == nil {
			s.m = make(map[SeqHash]block)
		}
		s.m[seq] = e
	}
	s.mu.Unlock()
	b.sets.release(from)
}

// len returns how many blocks somebody holds, swept or not. For the writer.
func (b *blocks) len() int {
	n := 0
	for i := range b.shards {
		n += len(b.shards[i].m)
	}
	return n
}
