package bpe

import "slices"

// longMerge merges words of any length in n log n steps, mostly fewer: the
// pairs that may merge wait in an agenda, and the tokens are a linked list.
// It can be used again, by one goroutine at a time.
type longMerge struct {
	ids        []uint32
	ranks      []uint32 // of the pair that begins at each position; noMerge where there is none
	prev, next []int32  // positions of the neighbours; -1 for none
	agenda     agenda
	steps      int // for tests
}

// append appends the ids of w.
//
// The order is the library's: the lowest rank first, of equal ones the
// leftmost. A pair on the agenda may have changed since; like the library,
// it counts if the tokens now there merge to the same token.
func (l *longMerge) append(dst []uint32, w string, m *model) []uint32 {
	n := len(w)
	l.ids, l.ranks = resized(l.ids, n), resized(l.ranks, n)
	l.prev, l.next = resized(l.prev, n), resized(l.next, n)
	for i := range n {
		l.ids[i] = m.byteIDs[w[i]]
		l.prev[i], l.next[i] = int32(i-1), int32(i+1)
		l.ranks[i] = noMerge
		if i+1 < n {
			l.pair(int32(i), m.bytePair(w[i], w[i+1]))
		}
	}
	l.next[n-1] = -1
	for {
		rank, at, ok := l.agenda.pop()
		if !ok {
			break
		}
		id := m.merged[rank]
		if now := l.ranks[at]; now != rank && (now == noMerge || m.merged[now] != id) {
			continue
		}
		right := l.next[at]
		after, before := l.next[right], l.prev[at]
		l.ids[at], l.next[at] = id, after
		l.ranks[at], l.ranks[right] = noMerge, noMerge
		if before >= 0 {
			l.pair(before, m.pairs.rank(l.ids[before], id))
		}
		if after >= 0 {
			l.prev[after] = at
			l.pair(at, m.pairs.rank(id, l.ids[after]))
		}
	}
	l.steps += n + l.agenda.steps
	l.agenda.steps = 0
	for i := int32(0); i >= 0; i = l.next[i] {
		dst = append(dst, l.ids[i])
	}
	return dst
}

// pair notes the rank of the pair that begins at pos.
func (l *longMerge) pair(pos int32, rank uint32) {
	l.ranks[pos] = rank
	if rank != noMerge {
		l.agenda.push(rank, pos)
	}
}

// resized returns a slice of n elements, of any content, in s's array if it is
// large enough.
func resized[T any](s []T, n int) []T {
	return slices.Grow(s[:0], n)[:n]
}

// size is the bytes that l keeps for the next word.
func (l *longMerge) size() int {
	n := 4 * (cap(l.ids) + cap(l.ranks) + cap(l.prev) + cap(l.next) + cap(l.agenda.laneOf) + cap(l.agenda.ranks))
	for i := range l.agenda.lanes {
		n += 4 * (cap(l.agenda.lanes[i].queue) + cap(l.agenda.lanes[i].late))
	}
	return n
}
