package enginesim

import (
	"fmt"

	"github.com/kvindex/kvindex/indexer"
)

// BlockKey names a block of an instance as the index does.
type BlockKey struct {
	Rank int
	Tier indexer.Tier
	Seq  indexer.SeqHash
}

// BlockState is what the engine has under a BlockKey.
type BlockState struct {
	Engine indexer.EngineHash
	Copies int // physical blocks; always 1 in the host tier
}

// Truth is everything that an instance holds: what a complete index of it
// dumps.
type Truth map[BlockKey]BlockState

// addTruth adds what the pool of a rank holds to t. Sequence hashes are those
// of h, in the scope of the pool's tenant and each block's LoRA and salt. What
// is queued for the next step counts as having happened.
func (p *Pool) addTruth(t Truth, rank int, h indexer.Hasher) {
	memo := map[*prefix]indexer.SeqHash{}
	for _, bs := range p.cache {
		x := bs[0].held
		key := BlockKey{Rank: rank, Tier: indexer.GPU, Seq: x.sequenceHash(h, p.o.Tenant, memo)}
		t[key] = BlockState{Engine: x.hash.Engine(), Copies: len(bs)}
	}
	if p.cpu == nil {
		return
	}
	for e := p.cpu.order.Front(); e != nil; e = e.Next() {
		x := e.Value.(*prefix)
		key := BlockKey{Rank: rank, Tier: indexer.CPU, Seq: x.sequenceHash(h, p.o.Tenant, memo)}
		t[key] = BlockState{Engine: x.hash.Engine(), Copies: 1}
	}
}

// Truth returns what the pool holds, under rank 0.
func (p *Pool) Truth(h indexer.Hasher) Truth {
	t := Truth{}
	p.addTruth(t, 0, h)
	return t
}

// check reports the first broken invariant of the pool: references, the free
// queue and the cache have to agree.
func (p *Pool) check() error {
	refs := make([]int, len(p.blocks))
	for _, j := range p.running {
		for _, b := range j.blocks {
			refs[b.id]++
		}
	}
	free := 0
	for b := p.free.head; b != nil; b = b.next {
		free++
	}
	if free != p.free.len {
		return fmt.Errorf("the free queue counts %d blocks and holds %d", p.free.len, free)
	}
	held := 0
	for i := range p.blocks {
		b := &p.blocks[i]
		switch {
		case b.refs != refs[i]:
			return fmt.Errorf("block %d counts %d users and has %d", i, b.refs, refs[i])
		case b.free != (b.refs == 0 && i != 0):
			return fmt.Errorf("block %d has %d users, free is %v", i, b.refs, b.free)
		}
		if b.held != nil {
			held++
		}
	}
	for id, bs := range p.cache {
		for _, b := range bs {
			held--
			if b.held == nil || b.held.id != id {
				return fmt.Errorf("block %d is in the cache under %x and does not hold it", b.id, id[:4])
			}
		}
	}
	if held != 0 {
		return fmt.Errorf("%d more blocks hold a prefix than the cache knows", held)
	}
	return nil
}
