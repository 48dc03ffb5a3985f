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
	Stream StreamID
	Tier   Tier
	Copies int // at least 1
}

// Block describes the block with the given hash; false if no live stream holds
// it. It is for people who look, not for the query path: it makes writers wait.
func (t *Table) Block(seq SeqHash) (BlockInfo, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	info, _, ok := t.describe(seq, nil)
	return info, ok
}

// describe describes a block. Its holders are appended to buf, which is
// returned. The caller has the table's mutex.
func (t *Table) describe(seq SeqHash, buf []BlockHolder) (BlockInfo, []BlockHolder, bool) {
	b, ok := t.blocks.at(seq)
	if !ok {
		return BlockInfo{}, buf, false
	}
	set := t.blocks.sets.get(b.set)
	ro := t.roster.Load()
	first := len(buf)
	for w := range min(set.words, len(ro.live)) {
		gpu, cpu, disk := set.word(w)
		for live := (gpu | cpu | disk) & ro.live[w]; live != 0; live &= live - 1 {
			slot := w<<6 + bits.TrailingZeros64(live)
			h := ro.holders[slot]
			for tier := Tier(0); tier < NumTiers; tier++ {
				if set.has(slot, tier) {
					buf = append(buf, BlockHolder{h.id, tier, 1 + h.extra[copyKey{seq, tier}]})
				}
			}
		}
	}
	if len(buf) == first {
		return BlockInfo{}, buf, false
	}
	info := BlockInfo{Seq: seq, Position: int(b.pos), Holders: buf[first:len(buf):len(buf)]}
	if b.pos > 0 {
		info.Parent, info.HasParent = b.parent, true
	}
	return info, buf, true
}

// walkChunk is how many blocks Walk describes at a time.
const walkChunk = 64

// Walk calls f for each block that a live holder has, in no particular order,
// until f returns false. Holders is valid during the call only. No lock is held
// meanwhile, so f may take its time, and may use the table. A block that is
// there all the time is shown once; one that comes or goes meanwhile may be
// shown or not. Walk needs memory for a 256th of the table's hashes.
func (t *Table) Walk(f func(BlockInfo) bool) {
	var seqs []SeqHash
	infos := make([]BlockInfo, 0, walkChunk)
	var holders []BlockHolder
	for i := range t.blocks.shards {
		seqs = t.shardKeys(i, seqs[:0])
		for len(seqs) > 0 {
			n := min(walkChunk, len(seqs))
			infos, holders = t.describeAll(seqs[:n], infos[:0], holders[:0])
			seqs = seqs[n:]
			for _, info := range infos {
				if !f(info) {
					return
				}
			}
		}
	}
}

// shardKeys appends the hashes of shard i to dst.
func (t *Table) shardKeys(i int, dst []SeqHash) []SeqHash {
	t.mu.Lock()
	defer t.mu.Unlock()
	for seq := range t.blocks.shards[i].m {
		dst = append(dst, seq)
	}
	return dst
}

// describeAll describes the given blocks, with the holders in one buffer.
func (t *Table) describeAll(seqs []SeqHash, infos []BlockInfo, holders []BlockHolder) ([]BlockInfo, []BlockHolder) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, seq := range seqs {
		info, more, ok := t.describe(seq, holders)
		if ok {
			infos = append(infos, info)
		}
		holders = more // if the buffer has moved, earlier infos keep the old one
	}
	return infos, holders
}
