package indexer

import (
	"cmp"
	"slices"
)

// Stats describes an index.
type Stats struct {
	Tables []TableStats // ordered by model, block size, tokens before bigrams
}

// TableStats describes one table. What retired holders held is counted nowhere
// but in Bytes.
type TableStats struct {
	Key          TableKey
	UniqueBlocks int           // blocks that some live holder has
	Pairs        [NumTiers]int // (block, holder) pairs by tier
	Holders      int           // live
	Retired      int           // holders that wait for the sweeper
	OrphanBlocks int           // parked
	Sets         int           // distinct sets of holders
	Bytes        int64         // memory, estimated from the counts
}

// Sizes for TableStats.Bytes: what map entries take on average, with the room
// that maps leave free.
const (
	bytesPerBlock  = 40
	bytesPerAlias  = 64
	bytesPerExtra  = 40
	bytesPerOrphan = 160
	bytesPerSet    = 128
)

// Stats counts what the index has. It makes the writers of each table wait for
// a moment, about as long as a thousand blocks take.
func (x *Index) Stats() Stats {
	var s Stats
	for _, t := range x.dir.Load().tables {
		s.Tables = append(s.Tables, t.Stats())
	}
	slices.SortFunc(s.Tables, func(a, b TableStats) int {
		return cmp.Or(cmp.Compare(a.Key.Model, b.Key.Model), cmp.Compare(a.Key.BlockSize, b.Key.BlockSize),
			boolToInt(a.Key.Bigram)-boolToInt(b.Key.Bigram))
	})
	return s
}

// Stats counts what the table has.
func (t *Table) Stats() TableStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := TableStats{Key: t.key, Retired: len(t.retired), Sets: t.blocks.sets.live}
	s.Bytes = int64(t.blocks.len()) * bytesPerBlock
	for _, h := range t.slots {
		if h == nil {
			continue
		}
		s.Bytes += int64(len(h.aliases.m))*bytesPerAlias + int64(len(h.extra))*bytesPerExtra +
			int64(len(h.lot.nodes))*bytesPerOrphan
		if h.retired.Load() {
			continue
		}
		s.Holders++
		s.OrphanBlocks += len(h.lot.nodes)
		for tier := range h.held {
			s.Pairs[tier] += int(h.held[tier].Load())
		}
	}
	live := t.roster.Load().live
	t.blocks.sets.each(func(set *holderSet) {
		s.Bytes += bytesPerSet + 8*int64(len(set.bits))
		for w := range min(set.words, len(live)) {
			gpu, cpu, disk := set.word(w)
			if (gpu|cpu|disk)&live[w] != 0 {
				s.UniqueBlocks += set.refs
				break
			}
		}
	})
	return s
}
