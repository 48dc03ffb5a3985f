package indexer

import "math/bits"

// BlockInfo describes a block that some live holder has.
type BlockInfo struct {
	Seq       SeqHash
	Parent    SeqHash // if HasParent
	HasParent bool
	Position  int // blocks before it in its prompt
	Holders   []BlockHolder
}

// BlockHolder is one stream that holds a block in one tier.
type BlockHolder struct {
	Stream  StreamID
	Tier    Tier
	Copies  int  // at least 1
	Suspect bool // see Holder.Doubt
}

// Block describes the block with the given hash; false if no live stream holds
// it. It is for people who look, not for the query path: it makes writers wait.
func (t *Table) Block(seq SeqHash) (BlockInfo, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	info, _, ok := t.describe(t.find(seq), nil)
	return info, ok
}

// describe describes the block of an entry. Its holders are appended to buf,
// which is returned. The caller has the table's mutex.
func (t *Table) describe(id uint32, buf []BlockHolder) (BlockInfo, []BlockHolder, bool) {
	if id == 0 {
		return BlockInfo{}, buf, false
	}
	words, set := t.sets.words(t.arena.set(id))
	first := len(buf)
	for w := range words {
		for some := set[w] | set[words+w] | set[2*words+w]; some != 0; some &= some - 1 {
			bit := bits.TrailingZeros64(some)
			s := t.slots[w<<6+bit]
			if s.ended.Load() {
				continue
			}
			for tier := range Tier(NumTiers) {
				if set[int(tier)*words+w]>>bit&1 != 0 {
					buf = append(buf, BlockHolder{s.of.id, tier, 1 + s.extraOf(nameRef(id), tier), s != s.of.seat || s.of.unsure})
				}
			}
		}
	}
	if len(buf) == first {
		return BlockInfo{}, buf, false
	}
	p := t.arena.place(id)
	info := BlockInfo{Seq: p.seq, Position: int(p.pos), Holders: buf[first:len(buf):len(buf)]}
	if p.pos > 0 {
		info.Parent, info.HasParent = p.parent, true
	}
	return info, buf, true
}

// walkSlabs is how many slabs Walk describes at a time.
const walkSlabs = 2

// Walk calls f for each block that a live holder has, in no particular order,
// until f returns false. Holders is valid during the call only. No lock is held
// meanwhile, so f may take its time, and may use the table. A block that is
// there all the time is shown once; one that comes or goes meanwhile may be
// shown or not.
func (t *Table) Walk(f func(BlockInfo) bool) {
	infos := make([]BlockInfo, 0, walkSlabs*slabSize)
	var holders []BlockHolder
	for slab := uint32(1); slab != 0; {
		infos, holders, slab = t.describeSlabs(slab, infos[:0], holders[:0])
		for _, info := range infos {
			if !f(info) {
				return
			}
		}
	}
}

// describeSlabs describes the blocks of some slabs, with the holders in one
// buffer, and returns the slab after them, 0 if there is none.
func (t *Table) describeSlabs(slab uint32, infos []BlockInfo, holders []BlockHolder) ([]BlockInfo, []BlockHolder, uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	slab = t.arena.each(slab, walkSlabs, func(id uint32) {
		info, more, ok := t.describe(id, holders)
		if ok {
			infos = append(infos, info)
		}
		holders = more // if the buffer has moved, earlier infos keep the old one
	})
	return infos, holders, slab
}
