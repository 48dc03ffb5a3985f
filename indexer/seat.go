package indexer

import "sync/atomic"

// seat is a slot in the sets, with what is counted for it. A holder has one, and
// another for each time that all it held became suspect (suspects.go). The
// table's mutex guards it, but for what is atomic.
type seat struct {
	of    *Holder
	slot  int
	ended atomic.Bool // set once: nothing is held here any more, and the slot will be another's

	held  [NumTiers]atomic.Int64 // blocks by tier
	extra map[copyKey]int        // copies beyond the first
}

// blocks counts what is held in all tiers.
func (s *seat) blocks() int {
	n := int64(0)
	for t := range s.held {
		n += s.held[t].Load()
	}
	return int(n)
}

// takeSeat gives h an empty seat.
func (t *Table) takeSeat(h *Holder) {
	slot := 0
	for slot < len(t.slots) && t.slots[slot] != nil {
		slot++
	}
	if slot == len(t.slots) {
		t.slots = append(t.slots, nil)
	}
	h.seat = &seat{of: h, slot: slot}
	t.slots[slot] = h.seat
}

// endSeat ends s: no match answers with it once publishRoster was called, not
// even one that began before. The sweeper frees what is held there.
func (t *Table) endSeat(s *seat) {
	s.ended.Store(true)
	t.sets.retire(s.slot)
	t.retired = append(t.retired, s)
	select {
	case t.wake <- struct{}{}:
	default: // it is awake already
	}
}
