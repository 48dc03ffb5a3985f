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
	Retired      int           // holders, and generations of suspects, that wait for the sweeper
	OrphanBlocks int           // parked
	Sets         int           // distinct sets of holders
	Refused      Refused       // blocks that were not admitted, ever

	// Bytes is the memory of the table's blocks, names, sets and parked blocks.
	// It does not shrink where blocks go: what they took is used again. Little of
	// it is estimated: the maps for parked blocks and for further copies.
	Bytes int64
}

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
	s := TableStats{Key: t.key, Retired: len(t.retired), Sets: t.sets.live, Refused: t.refused, Bytes: t.mem.bytes.Load()}
	live := make([]uint64, (len(t.slots)+63)/64)
	for slot, seat := range t.slots {
		if seat == nil || seat.ended.Load() {
			continue
		}
		live[slot>>6] |= 1 << (slot & 63)
		if h := seat.of; seat == h.seat {
			s.Holders++
			s.OrphanBlocks += len(h.lot.nodes)
		}
		for tier := range seat.held {
			s.Pairs[tier] += int(seat.held[tier].Load())
		}
	}
	t.sets.each(func(id uint32) {
		words, set := t.sets.words(id)
		for w := range min(words, len(live)) {
			if (set[w]|set[words+w]|set[2*words+w])&live[w] != 0 {
				s.UniqueBlocks += int(t.sets.uses[id].blocks)
				break
			}
		}
	})
	return s
}
