package bpe

import "math/bits"

// shortMerge is the length in bytes of the longest word that is merged by
// looking for the lowest rank again and again. For so few pairs this is faster
// than an agenda.
const shortMerge = 64

// model is what of a tokenizer.json the merging needs. It does not change.
type model struct {
	byteIDs   [256]uint32
	pairs     *pairs
	bytePairs []uint32 // the ranks of pairs of bytes: a good part of all look-ups
	merged    []uint32 // by rank: the token that the pair becomes
	lengths   []uint16 // by token: its bytes; nil if an id stands for several tokens
}

// bytePair returns the rank of the pair of two bytes.
func (m *model) bytePair(left, right byte) uint32 { return m.bytePairs[int(left)<<8|int(right)] }

// tabulate makes the table of pairs of bytes.
func (m *model) tabulate() {
	m.bytePairs = make([]uint32, 1<<16)
	for l, left := range m.byteIDs {
		for r, right := range m.byteIDs {
			m.bytePairs[l<<8|r] = m.pairs.rank(left, right)
		}
	}
}

// A key is the rank of a pair above the position where it begins, so that the
// least key is of the leftmost pair with the lowest rank.
const (
	positionBits = 6 // shortMerge is 1<<positionBits
	noKey        = noMerge << positionBits
)

// appendShort appends the ids of a word of 1 to shortMerge bytes: merges the
// leftmost of the pairs with the lowest rank until no pair merges.
func (m *model) appendShort(dst []uint32, w string) []uint32 {
	var ids, keys [shortMerge]uint32 // keys[i] is of ids[i] and the next living one
	n := len(w)
	for i := range n {
		ids[i] = m.byteIDs[w[i]]
		keys[i] = noKey
		if i+1 < n {
			keys[i] = m.bytePair(w[i], w[i+1])<<positionBits | uint32(i)
		}
	}
	for i := n; i%4 != 0; i++ {
		keys[i] = noKey
	}
	living := ^uint64(0) >> (shortMerge - n) // positions where a token begins
	for {
		lowest := least(keys[:(n+3)&^3])
		if lowest >= noKey {
			break
		}
		at := lowest % shortMerge
		right := at + 1 + uint32(bits.TrailingZeros64(living>>(at+1)))
		living &^= 1 << right
		id := m.merged[lowest>>positionBits]
		ids[at], keys[at], keys[right] = id, noKey, noKey
		if after := living >> (at + 1); after != 0 {
			i := at + 1 + uint32(bits.TrailingZeros64(after))
			keys[at] = m.pairs.rank(id, ids[i%shortMerge])<<positionBits | at
		}
		if before := living & (1<<at - 1); before != 0 {
			i := uint32(bits.Len64(before)) - 1
			keys[i%shortMerge] = m.pairs.rank(ids[i%shortMerge], id)<<positionBits | i
		}
	}
	for ; living != 0; living &= living - 1 {
		dst = append(dst, ids[bits.TrailingZeros64(living)])
	}
	return dst
}

// least returns the least of keys, of which there are a multiple of four. It
// has no branch that depends on them: which key it is cannot be predicted.
func least(keys []uint32) uint32 {
	a, b, c, d := int32(noKey), int32(noKey), int32(noKey), int32(noKey)
	for i := 0; i+4 <= len(keys); i += 4 {
		k := (*[4]uint32)(keys[i:])
		a, b, c, d = lesser(a, int32(k[0])), lesser(b, int32(k[1])), lesser(c, int32(k[2])), lesser(d, int32(k[3]))
	}
	return uint32(lesser(lesser(a, b), lesser(c, d)))
}

// lesser returns the lower of two numbers that are not negative.
func lesser(a, b int32) int32 {
	over := b - a
	return a + over&(over>>31)
}
