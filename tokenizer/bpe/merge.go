package bpe

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

// appendShort appends the ids of a word of 1 to shortMerge bytes: merges the
// leftmost of the pairs with the lowest rank until no pair merges.
func (m *model) appendShort(dst []uint32, w string) []uint32 {
	var ids, ranks [shortMerge]uint32 // ranks[i] is of ids[i] and ids[i+1]
	n := len(w)
	for i := range n {
		ids[i] = m.byteIDs[w[i]]
		if i+1 < n {
			ranks[i] = m.bytePair(w[i], w[i+1])
		}
	}
	for n > 1 {
		at, lowest := 0, uint32(noMerge)
		for i, r := range ranks[:n-1] {
			if r < lowest {
				at, lowest = i, r
			}
		}
		if lowest == noMerge {
			break
		}
		ids[at] = m.merged[lowest]
		copy(ids[at+1:n-1], ids[at+2:n])
		copy(ranks[at:n-2], ranks[at+1:n-1])
		n--
		if at < n-1 {
			ranks[at] = m.pairs.rank(ids[at], ids[at+1])
		}
		if at > 0 {
			ranks[at-1] = m.pairs.rank(ids[at-1], ids[at])
		}
	}
	return append(dst, ids[:n]...)
}
