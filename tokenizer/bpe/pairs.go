package bpe

import "math/bits"

// pairs maps pairs of token ids to the ranks of their merges, by open
// addressing. A slot is one number, the pair above the rank: most of the time
// of merging is spent waiting for memory here.
type pairs struct {
	slots []uint64
}

const (
	idBits   = 20 // of a token id
	rankBits = 64 - 2*idBits

	// noMerge is the rank of a pair that does not merge. All others are lower.
	noMerge = 1<<rankBits - 1
)

// newPairs returns pairs with room for n.
func newPairs(n int) *pairs {
	p := &pairs{slots: make([]uint64, n+n/3+1)}
	for i := range p.slots {
		p.slots[i] = noMerge
	}
	return p
}

// slot returns the index of the slot where the pair is or would be put.
func (p *pairs) slot(left, right uint32) int {
	pair := uint64(left)<<idBits | uint64(right)
	h := pair * 0x9e3779b97f4a7c15
	h = (h ^ h>>32) * 0xd6e8feb86659fd93
	hi, _ := bits.Mul64(h, uint64(len(p.slots)))
	for i := int(hi); ; {
		if s := p.slots[i]; s>>rankBits == pair || s&noMerge == noMerge {
			return i
		}
		if i++; i == len(p.slots) {
			i = 0
		}
	}
}

// set stores the rank of a pair. One that is set twice has the last rank, as
// in the library.
func (p *pairs) set(left, right, rank uint32) {
	p.slots[p.slot(left, right)] = (uint64(left)<<idBits|uint64(right))<<rankBits | uint64(rank)
}

// rank returns the rank of a pair, or noMerge.
func (p *pairs) rank(left, right uint32) uint32 {
	return uint32(p.slots[p.slot(left, right)] & noMerge)
}
