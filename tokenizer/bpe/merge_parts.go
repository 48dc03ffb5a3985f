package bpe

const (
	// partBytes is how much of a long word is merged at once to begin with.
	partBytes = 24

	// overlap is how much of a part is left to the next one, at least.
	overlap = 3

	// maxRepeat bounds how often each byte of a word may be merged, on average,
	// because parts turn out too short, before all of it is merged at once.
	maxRepeat = 8

	noToken = 1 << idBits // no token has this id
)

// parts merges long words part by part, so that everything it touches stays
// in the processor's caches.
//
// Tokens that follow each other are the ids of their text if each of them is
// what its own bytes merge to, and each two neighbours what theirs do: the
// first merge across a border between two tokens would, with the same merges
// before it, also happen where there is nothing but these two. So whatever
// gives such tokens gives the right ones. Within a part they are
// such tokens, for no merge crossed their borders there; where two parts meet,
// apart looks.
type parts struct {
	*model
	long *longMerge // nil if the word has at most shortMerge bytes
	w    string

	steps int // for tests

	a, b uint32 // the last two that apart has found to stay two
	pair [shortMerge]uint32
}

// appendWord appends the ids of w, which may be of any length.
func (l *longMerge) appendWord(dst []uint32, w string, m *model) []uint32 {
	if m.lengths != nil {
		p := parts{model: m, long: l, w: w, a: noToken, b: noToken}
		ids, ok := p.append(dst)
		l.steps += p.steps
		if ok {
			return ids
		}
		dst = ids
	}
	return l.append(dst, w, m)
}

// appendMedium appends the ids of a word of up to shortMerge bytes.
func (m *model) appendMedium(dst []uint32, w string) []uint32 {
	if len(w) > 2*partBytes && m.lengths != nil {
		p := parts{model: m, w: w, a: noToken, b: noToken}
		ids, ok := p.append(dst)
		if ok {
			return ids
		}
		dst = ids
	}
	return m.appendShort(dst, w)
}

// append appends the ids of the word. It gives up, with ok false, where parts
// meet at a bad place again and again.
func (p *parts) append(dst []uint32) (ids []uint32, ok bool) {
	base := len(dst)
	size := partBytes
	at, from, wide := 0, base, 1             // the part: where it and its ids begin, its length in sizes
	lastAt, lastFrom, lastWide := 0, base, 1 // the part before
	for spent := 0; ; {
		// A repetition has the same tokens again.
		if d := at - lastAt; d > 0 && at+d < len(p.w) && p.w[at:at+d] == p.w[lastAt:at] && p.apart(dst[from-1], dst[lastFrom], at) {
			dst = append(dst, dst[lastFrom:from]...)
			lastAt, lastFrom, lastWide = at, from, 1
			at, from = at+d, len(dst)
			continue
		}
		n := min(size*wide, len(p.w)-at)
		dst = p.merge(dst[:from], p.w[at:at+n])
		if from > base && !p.apart(dst[from-1], dst[from], at) {
			if spent += n; at == lastAt || spent > maxRepeat*len(p.w) {
				return dst[:base], false
			}
			at, from, wide = lastAt, lastFrom, 2*lastWide
			continue
		}
		if at+n == len(p.w) {
			return dst, true
		}
		// What is near the end of the part may be other tokens in the word.
		k, end := len(dst), n
		for k > from && end > n-overlap {
			k--
			end -= int(p.lengths[dst[k]])
		}
		if end < n/2 {
			size *= 2 // long tokens
			continue
		}
		lastAt, lastFrom, lastWide = at, from, wide
		at, from, wide = at+end, k, 1
		dst = dst[:k]
	}
}

// merge appends the ids of a part.
func (p *parts) merge(dst []uint32, part string) []uint32 {
	if len(part) <= shortMerge {
		p.steps += len(part)
		return p.appendShort(dst, part)
	}
	return p.long.append(dst, part, p.model)
}

// apart reports whether the tokens a and b, which meet at p.w[at], are what
// their bytes merge to.
func (p *parts) apart(a, b uint32, at int) bool {
	if a == p.a && b == p.b {
		return true
	}
	ids := p.merge(p.pair[:0], p.w[at-int(p.lengths[a]):at+int(p.lengths[b])])
	if len(ids) != 2 || ids[0] != a || ids[1] != b {
		return false
	}
	p.a, p.b = a, b
	return true
}
