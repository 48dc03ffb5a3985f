package bpe

import "slices"

// agenda is a priority queue of positions by rank, then position. It has a
// lane for each rank and a heap of the ranks whose lane is not empty. Pairs of
// one rank nearly always come from left to right, so that a lane is a plain
// queue: a megabyte of one letter has a dozen ranks and takes linear time.
// What comes out of order goes to a heap of the lane's own.
type agenda struct {
	lanes  []lane
	laneOf []int32  // by rank: index into lanes, plus 1; 0 if it has none
	ranks  []uint32 // heap; each has a lane
	steps  int      // for tests
}

type lane struct {
	rank   uint32
	queue  []int32 // ascending from head on
	head   int
	late   []int32 // heap
	listed bool    // its rank is in ranks
}

func (l *lane) empty() bool { return l.head == len(l.queue) && len(l.late) == 0 }

// push puts the pair that begins at pos on the agenda.
func (a *agenda) push(rank uint32, pos int32) {
	a.steps++
	l := a.lane(rank)
	if !l.listed {
		l.listed = true
		a.ranks = append(a.ranks, rank)
		a.steps += up(a.ranks)
	}
	if n := len(l.queue); n == l.head || l.queue[n-1] <= pos {
		l.queue = append(l.queue, pos)
		return
	}
	l.late = append(l.late, pos)
	a.steps += up(l.late)
}

// lane returns the lane of a rank.
func (a *agenda) lane(rank uint32) *lane {
	if int(rank) >= len(a.laneOf) {
		n := int(rank) + 1
		a.laneOf = slices.Grow(a.laneOf, n-len(a.laneOf))[:n]
	}
	i := a.laneOf[rank]
	if i == 0 {
		if len(a.lanes) < cap(a.lanes) {
			a.lanes = a.lanes[:len(a.lanes)+1] // with the arrays of an earlier word
		} else {
			a.lanes = append(a.lanes, lane{})
		}
		i = int32(len(a.lanes))
		a.laneOf[rank] = i
		a.lanes[i-1].rank = rank
	}
	return &a.lanes[i-1]
}

// pop takes the first pair from the agenda. ok is false when it is empty; then
// it is ready for another word.
func (a *agenda) pop() (rank uint32, pos int32, ok bool) {
	for len(a.ranks) > 0 {
		l := &a.lanes[a.laneOf[a.ranks[0]]-1]
		if l.empty() {
			l.queue, l.head, l.listed = l.queue[:0], 0, false
			var n int
			a.ranks, n = down(a.ranks)
			a.steps += n
			continue
		}
		a.steps++
		if len(l.late) > 0 && (l.head == len(l.queue) || l.late[0] < l.queue[l.head]) {
			pos = l.late[0]
			var n int
			l.late, n = down(l.late)
			a.steps += n
		} else {
			pos = l.queue[l.head]
			l.head++
		}
		return l.rank, pos, true
	}
	for i := range a.lanes {
		a.laneOf[a.lanes[i].rank] = 0
	}
	a.lanes = a.lanes[:0]
	return 0, 0, false
}

// up restores the heap h after an append, and returns the number of steps.
func up[T int32 | uint32](h []T) (steps int) {
	for i := len(h) - 1; i > 0; steps++ {
		parent := (i - 1) / 2
		if h[parent] <= h[i] {
			break
		}
		h[parent], h[i] = h[i], h[parent]
		i = parent
	}
	return steps
}

// down takes the first element from the heap h, and returns the number of
// steps.
func down[T int32 | uint32](h []T) (rest []T, steps int) {
	n := len(h) - 1
	h[0] = h[n]
	h = h[:n]
	for i := 0; ; steps++ {
		child := 2*i + 1
		if child >= n {
			return h, steps
		}
		if child+1 < n && h[child+1] < h[child] {
			child++
		}
		if h[i] <= h[child] {
			return h, steps
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}
