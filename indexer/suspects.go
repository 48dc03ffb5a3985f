package indexer

import (
	"slices"
	"time"
)

// What a stream held when some of its events were lost may be no longer held: a
// removal may have been among them. Doubt sets that apart, in the seat where it
// is, and gives the holder a new one for what is stored from then on. So it costs
// nothing a block, and the two can be told apart in every match.
//
// A block leaves suspicion in one of three ways. A removal takes it, wherever it
// is. A store of it shows that the engine has it; so does a store in gpu after
// it, for an engine has all of a prompt in gpu that it computes the next block
// of. Or it is dropped, when it has been suspect for too long.
//
// One name, in one tier, is in one seat only: what is stored anew is taken out of
// suspicion, with all the copies that were counted there, because nobody knows
// how many of them are left. At worst a block is then forgotten too early.

// suspect is what was suspect since some time.
type suspect struct {
	*seat
	since time.Time
}

// Doubt makes all that h holds suspect, since the given time: events of the
// stream were lost, and among them may have been removals. Matches go on to
// answer with it, marked (StreamMatch.Sure), until the engine stores a block
// again or one after it, removes it, or DropSuspects ends it. What waits for its
// parent is dropped at once. The time Doubt takes does not depend on how many
// blocks h holds.
func (h *Holder) Doubt(since time.Time) {
	t := h.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if h.retired.Load() {
		return
	}
	for _, n := range h.lot.nodes {
		h.dropTree(n)
	}
	h.unsure = false
	if h.blocks() > 0 {
		h.suspects = append(h.suspects, suspect{h.seat, since})
		t.takeSeat(h)
	}
	t.publishRoster()
	t.moves.Add(1) // who reads it from now on sees that roster
}

// SetUnsure says whether what is not set apart is suspect, too, also what is
// stored from now on: for streams that lose events so often that setting apart
// what they hold each time is not worth while. Doubt ends it.
func (h *Holder) SetUnsure(unsure bool) {
	t := h.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if h.retired.Load() || h.unsure == unsure {
		return
	}
	h.unsure = unsure
	t.publishRoster()
}

// DropSuspects drops what has been suspect since before the given time, and
// returns how many blocks that were, in all tiers.
func (h *Holder) DropSuspects(before time.Time) int {
	h.table.mu.Lock()
	defer h.table.mu.Unlock()
	dropped := 0
	if h.retired.Load() {
		return 0
	}
	h.endSuspects(func(s suspect) bool {
		if !s.since.Before(before) {
			return false
		}
		dropped += s.blocks()
		return true
	})
	return dropped
}

// endEmpty gives up the seats of suspects of which nothing is left.
func (h *Holder) endEmpty() {
	if len(h.suspects) > 0 {
		h.endSuspects(func(s suspect) bool { return s.blocks() == 0 })
	}
}

func (h *Holder) endSuspects(which func(suspect) bool) {
	var over []*seat
	h.suspects = slices.DeleteFunc(h.suspects, func(s suspect) bool {
		if which(s) {
			over = append(over, s.seat)
			return true
		}
		return false
	})
	if len(over) == 0 {
		return
	}
	// In this order: a match that finds a seat ended has either seen the roster
	// without it, or sees that blocks have moved.
	h.table.publishRoster()
	h.table.moves.Add(1)
	for _, s := range over {
		h.table.endSeat(s)
	}
}

// has reports whether s is a seat of h.
func (h *Holder) has(s *seat) bool {
	return s == h.seat || slices.ContainsFunc(h.suspects, func(o suspect) bool { return o.seat == s })
}

// seats returns all seats of h, its own last.
func (h *Holder) seats() []*seat {
	all := make([]*seat, 0, len(h.suspects)+1)
	for _, s := range h.suspects {
		all = append(all, s.seat)
	}
	return append(all, h.seat)
}

// heldAnywhere returns the ref under which h holds a block by the name e, suspect
// or not, 0 if there is none, and whether there are more in the same seat.
func (h *Holder) heldAnywhere(e EngineHash) (ref nameRef, more bool) {
	ref, more = h.table.held(e, h.slot)
	for i := len(h.suspects) - 1; ref == 0 && i >= 0; i-- {
		ref, more = h.table.held(e, h.suspects[i].slot)
	}
	return ref, more
}

// holds reports whether h holds a block by the name e, suspect or not.
func (h *Holder) holds(e EngineHash) bool {
	ref, _ := h.heldAnywhere(e)
	return ref != 0
}

// supersede takes what e names in tier t out of suspicion: it was stored anew.
func (h *Holder) supersede(t Tier, e EngineHash) {
	for _, s := range h.suspects {
		if ref, more := h.table.held(e, s.slot); more {
			s.takeAll(e, t)
		} else if ref != 0 {
			if c := s.copies(ref, t); c > 0 {
				s.lose(ref, t, c)
			}
		}
	}
}

// maxUnconfirmed bounds how many blocks confirm passes that it can do nothing
// about.
const maxUnconfirmed = 64

// confirm takes the block that e names out of suspicion, and those before it: the
// engine has just stored a block after it in gpu, so it has all of them there.
// What follows a block that is certain need not be looked at again: when that was
// stored, the blocks before it were confirmed.
func (h *Holder) confirm(e EngineHash) {
	tb := h.table
	for passed := 0; passed < maxUnconfirmed; {
		a, ok, ambiguous := h.own(e)
		if !ok || ambiguous || a.unseen {
			return
		}
		if a.ref != 0 && tb.sets.has(tb.holdersOf(a.ref), h.slot, GPU) {
			return
		}
		if a.ref == 0 || !h.trust(a.ref) {
			passed++
		}
		if a.pos == 0 {
			return
		}
		e = a.before
	}
}

// trust takes the block under ref out of suspicion in gpu, and reports whether it
// was suspect there. That there is a copy is certain, not how many.
func (h *Holder) trust(ref nameRef) bool {
	found := false
	for _, s := range h.suspects {
		if c := s.copies(ref, GPU); c > 0 {
			if h.copies(ref, GPU) == 0 {
				h.gain(ref, GPU, 1) // first: it must not be missing meanwhile
			}
			s.lose(ref, GPU, c)
			found = true
		}
	}
	return found
}

// track is how a holder is matched of which something is suspect. What is certain
// of it is matched by itself, and all of it in the place of one of its seats,
// which takes the bits of the others for the time of a match.
type track struct {
	sure int   // slot of what is certain, -1: nothing
	all  int   // slot of the seat in whose place all is matched
	also []int // slots whose bits it takes, beside that of sure
}

// addTrack makes h take part in matches.
func (ro *roster) addTrack(h *Holder, slots int) {
	if ro.track == nil {
		ro.track = make([]int32, slots)
		for i := range ro.track {
			ro.track[i] = -1
		}
	}
	tr := track{sure: h.slot, all: -1}
	if h.unsure {
		tr.sure, tr.all = -1, h.slot
	}
	for _, s := range h.suspects {
		if tr.all < 0 {
			tr.all = s.slot
		} else {
			tr.also = append(tr.also, s.slot)
		}
	}
	for _, s := range h.seats() {
		ro.track[s.slot] = int32(len(ro.tracks))
	}
	for _, slot := range []int{tr.sure, tr.all} {
		if slot >= 0 {
			ro.live[slot>>6] |= 1 << (slot & 63)
		}
	}
	ro.tracks = append(ro.tracks, tr)
}

// trackAt returns the track that a slot is matched in, nil if it is matched by
// itself.
func (ro *roster) trackAt(slot int32) *track {
	if len(ro.tracks) == 0 || ro.track[slot] < 0 {
		return nil
	}
	return &ro.tracks[ro.track[slot]]
}

// join gives the seat in whose place all of a holder is matched the bits of its
// other seats, in the planes of a set.
func (ro *roster) join(set []uint64, words int) {
	for i := range ro.tracks {
		tr := &ro.tracks[i]
		if tr.all>>6 >= words {
			continue // narrower than any set that has a suspect
		}
		for t := range NumTiers {
			plane := set[t*words : (t+1)*words]
			some := uint64(0)
			if tr.sure >= 0 && tr.sure>>6 < words {
				some = plane[tr.sure>>6] >> (tr.sure & 63)
			}
			for _, slot := range tr.also {
				if slot>>6 < words {
					some |= plane[slot>>6] >> (slot & 63)
				}
			}
			plane[tr.all>>6] |= some & 1 << (tr.all & 63)
		}
	}
}

// ended reports whether a seat of tr is no longer what it was when the match
// began.
func (ro *roster) ended(tr *track) bool {
	gone := ro.seats[tr.all].ended.Load() || tr.sure >= 0 && ro.seats[tr.sure].ended.Load()
	for _, slot := range tr.also {
		gone = gone || ro.seats[slot].ended.Load()
	}
	return gone
}
