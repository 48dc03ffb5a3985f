package bpe

import "math/bits"

// pairs maps pairs of token ids to the ranks of their merges, by open
// addressing. A slot is one number, the pair above the rank: most of the time
// of merging is spent waiting for memory here.
type pairs struct {
	slots  []uint64
	filter []uint64 // a bit for the hash of each pair: it is smaller, and most questions are about pairs that are not here
}

const (
	idBits   = 20 // of a token id
	rankBits = 64 - 2*idBits

	// noMerge is the rank of a pair that does not merge. All others are lower.
	noMerge = 1<<rankBits - 1
)

// newPairs returns pairs with room for n.
func newPairs(n int) *pairs {
	p := &pairs{slots: make([]uint64, n+n/3+1), filter: make([]uint64, n/16+1)}
	for i := range p.slots {
		p.slots[i] = noMerge
	}
	return p
}

// hashPair mixes a pair.
func hashPair(pair uint64) uint64 {
	h := pair * 0x9e3779b97f4a7c15
	return (h ^ h>>32) * 0xd6e8feb86659fd93
}

// slot returns the index of the slot where the pair is or would be put.
func (p *pairs) slot(pair, hash uint64) int {
	hi, _ := bits.Mul64(hash, uint64(len(p.slots)))
	for i := int(hi); ; {
		if s := p.slots[i]; s>>rankBits == pair || s&noMerge == noMerge {
			return i
		}
		if i++; i == len(p.slots) {
			i = 0
		}
	}
}

// bit returns the word and the bit of the filter for a hash.
func (p *pairs) bit(hash uint64) (word *uint64, mask uint64) {
	hi, lo := bits.Mul64(hash, uint64(len(p.filter)))
	return &p.filter[hi], 1 << (lo >> 58)
}

// set stores the rank of a pair. One that is set twice has the last rank, as
// in the library.
func (p *pairs) set(left, right, rank uint32) {
	pair := uint64(left)<<idBits | uint64(right)
	h := hashPair(pair)
	p.slots[p.slot(pair, h)] = pair<<rankBits | uint64(rank)
	word, mask := p.bit(h)
	*word |= mask
}

// rank returns the rank of a pair, or noMerge.
func (p *pairs) rank(left, right uint32) uint32 {
	pair := uint64(left)<<idBits | uint64(right)
	h := hashPair(pair)
	if word, mask := p.bit(h); *word&mask == 0 {
		return noMerge
	}
	return uint32(p.slots[p.slot(pair, h)] & noMerge)
}
