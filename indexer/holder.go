package indexer

import (
	"slices"
	"sync/atomic"
)

// Holder is one incarnation of one stream in one table: what the engine
// process behind the stream has reported since it began, or since its stream
// was last found broken.
//
// Store, Locate, Remove, Clear, SetPartial, Doubt, SetUnsure, DropSuspects and
// Lookup are called by one goroutine, the stream's. Retire and Counts may be called by any. After Retire
// the other methods do nothing and report zero: late events of an old
// incarnation touch nothing. Slices that are passed in are not kept.
type Holder struct {
	table   *Table
	id      StreamID
	retired atomic.Bool  // set once, under table.mu
	parked  atomic.Int64 // blocks in lot

	// The table's mutex guards the rest.
	*seat               // of what is certain
	suspects  []suspect // oldest first
	unsure    bool      // what the seat has is suspect, too
	partial   bool
	late      late
	last      nameRef             // that was removed from
	recent    [recentNames]uint32 // entries of names that were stored or removed last
	lot       lot
	relations map[*Holder]relation
}

// Run is consecutive blocks that were stored together.
type Run struct {
	Tier Tier

	// Parent is the engine hash of the block before the first one. Without
	// HasParent the first block begins a prompt.
	Parent    EngineHash
	HasParent bool

	// Scope of the prompt. Where there is a parent the blocks are in its scope;
	// then Scope matters only if the parent is known from another stream alone:
	// the two must agree.
	Scope ScopeKey

	// Of each block: the engine's hash and ours. They are equally long.
	Engine []EngineHash
	Local  []LocalHash
}

// StoreResult counts what became of the blocks of a Run: each is Stored, a
// duplicate, Orphaned, Dropped or Refused. It also counts other blocks that the run moved.
type StoreResult struct {
	Stored     int // now held in the tier, and were not before
	Duplicates int // one more copy of what was held, or parked, in the tier
	Orphaned   int // parked until their parent is known

	// Dropped counts blocks that were not kept, because too many are parked or
	// because of a conflict, and blocks parked earlier that a conflict showed to
	// be unclear.
	Dropped int

	// Refused counts blocks that were not admitted, because a bound of Options
	// was reached: the first for which there was no room, and those after it in
	// the run. The stream lacks them until the engine stores them again; no match
	// gets past them.
	Refused int

	// Conflicts counts blocks under an engine hash that names another block
	// at the same time, or that would be their own ancestors. An engine whose
	// hashes stand for prefixes has none.
	Conflicts int

	// Attached counts blocks of this stream that were parked earlier and are now
	// in place. (Parked blocks may also get in place by what another stream
	// stores: only Counts tells.)
	Attached int

	// Implied counts blocks that the engine must hold, although it never said
	// so to this holder: see SetPartial.
	Implied int
}

// HolderCounts is how much a holder holds.
type HolderCounts struct {
	Blocks  [NumTiers]int // by tier, each block once whatever its copies
	Suspect int           // of these, in all tiers: see Doubt
	Orphans int           // parked, not in Blocks
}

// Stream returns the stream that h is an incarnation of.
func (h *Holder) Stream() StreamID { return h.id }

// Store records that the engine stored the blocks of r, in this order.
//
// Each block's parent is the one before it in the run. The first block's
// parent is found by its engine hash, among what this stream stored in any
// tier. If it is not known, the run is parked: it is never taken for the
// beginning of a prompt. It gets in place as soon as the parent is known. If
// the hash names several blocks, the run is dropped.
func (h *Holder) Store(r Run) StoreResult {
	var res StoreResult
	t := h.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if h.retired.Load() {
		return res
	}
	if len(r.Engine) != len(r.Local) || r.Tier >= NumTiers {
		res.Dropped = len(r.Engine)
		return res
	}
	if !r.HasParent {
		h.extend(r, 0, tip{}, &res)
	} else if a, ok, ambiguous := h.own(r.Parent); ambiguous {
		res.Dropped = len(r.Engine)
	} else if ok && !a.unseen {
		if r.Tier == GPU && len(h.suspects) > 0 {
			h.confirm(r.Parent)
		}
		h.extend(r, 0, t.tipOf(r.Parent, a), &res)
	} else if len(r.Engine) > 0 {
		h.storeOrphan(r, &res)
	}
	t.settle()
	h.endEmpty()
	return res
}

// Locate records that blocks which the stream stored before are now in tier t,
// too: offload connectors tell that with the engine hash alone. known counts
// those that were found, one more copy each; unknown the others, which are
// ignored.
func (h *Holder) Locate(t Tier, hashes []EngineHash) (known, unknown int) {
	h.table.mu.Lock()
	defer h.table.mu.Unlock()
	if h.retired.Load() {
		return 0, 0
	}
	for _, e := range hashes {
		if t < NumTiers && h.locate(t, e) {
			known++
		} else {
			unknown++
		}
	}
	h.endEmpty()
	return known, unknown
}

func (h *Holder) locate(t Tier, e EngineHash) bool {
	if n := h.lot.nodes[e]; n != nil {
		h.table.addCopies(&n.copies[t])
		return true
	}
	a, ok := h.known(e)
	if !ok {
		return false
	}
	p, ok := h.placeOf(a)
	return ok && h.hold(t, e, &p, 1, hint{want: 1}).refusal == admitted
}

// placeOf completes an alias. It fails only if nobody holds the block any more
// and its parent has been forgotten.
func (h *Holder) placeOf(a alias) (place, bool) {
	p := a.place
	if a.ref != 0 || a.pos == 0 {
		return p, true
	}
	if id := h.table.find(a.seq); id != 0 {
		p.parent = h.table.arena.place(id).parent
		return p, true
	}
	up, ok := h.known(a.before)
	p.parent = up.seq
	return p, ok && up.pos+1 == a.pos
}

// Remove records that the engine gave up one copy of each of the blocks in
// tier t. removed counts the hashes that named a copy there, parked ones
// included; unknown counts the others.
func (h *Holder) Remove(t Tier, hashes []EngineHash) (removed, unknown int) {
	h.table.mu.Lock()
	defer h.table.mu.Unlock()
	if h.retired.Load() {
		return 0, 0
	}
	for i, e := range hashes {
		if i%touchAhead == 0 {
			h.touchNames(hashes[i:min(len(hashes), i+touchAhead)])
		}
		switch {
		case t >= NumTiers:
			unknown++
		case len(h.lot.nodes) > 0 && h.lot.nodes[e] != nil:
			if h.removeParked(t, e) {
				removed++
			} else {
				unknown++
			}
		default:
			if ref := h.take(e, t, h.table.near(h.last, e)); ref != 0 {
				h.last = ref
				removed++
			} else {
				unknown++
			}
		}
	}
	h.endEmpty()
	return removed, unknown
}

// touchNames fetches where names are that are to be removed, and then where
// their blocks are.
func (h *Holder) touchNames(hashes []EngineHash) {
	tb := h.table
	if len(hashes) == 1 {
		h.late.touch(hashes[0])
		if ref := tb.near(h.last, hashes[0]); ref != 0 {
			tb.names.index.touch(uint64(hashes[0]))
			tb.index.touch(uint64(tb.arena.key(uint32(ref))))
		}
		return
	}
	for _, e := range hashes {
		tb.names.index.touch(uint64(e))
		h.late.touch(e)
	}
	last := h.last
	for _, e := range hashes {
		ref := tb.near(last, e)
		if ref == 0 {
			ref = tb.onlyRef(e)
		}
		if last = ref; ref != 0 {
			tb.index.touch(uint64(tb.arena.key(tb.blockOf(ref))))
		}
	}
}

// clearSlabs is how many slabs Clear and the sweeper handle before they let
// other writers pass.
const clearSlabs = 64

// Clear records that the engine dropped everything in tier t. It takes time in
// proportion to what the whole table has; matches meanwhile may see a part of
// it. To clear all tiers at once, Retire h and Open another.
func (h *Holder) Clear(t Tier) {
	tb := h.table
	tb.mu.Lock()
	defer tb.mu.Unlock()
	if h.retired.Load() || t >= NumTiers {
		return
	}
	h.clearParked(t)
	seats := h.seats()
	if !slices.ContainsFunc(seats, func(s *seat) bool { return s.held[t].Load() > 0 }) {
		return
	}
	pause := func() bool {
		tb.mu.Unlock()
		tb.mu.Lock()
		return !h.retired.Load()
	}
	drop := func(ref nameRef) {
		for _, s := range seats {
			if c := s.copies(ref, t); c > 0 {
				s.lose(ref, t, c)
			}
		}
	}
	if tb.eachRecord(drop, pause) {
		tb.eachBlock(func(id uint32) {
			if !tb.arena.hasMany(id) {
				drop(nameRef(id))
			}
		}, pause)
	}
	h.endEmpty()
}

// Retire ends the incarnation: when it has returned, no match answers with it
// any more, not even one that began before. The time it takes does not depend
// on how many blocks h holds; the sweeper frees them in the background. It may
// be called more than once, by any goroutine.
func (h *Holder) Retire() {
	t := h.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if h.retired.Swap(true) {
		return
	}
	for _, s := range h.seats() {
		t.endSeat(s)
	}
	t.publishRoster()
	h.forgetRelations()
}

// SetPartial says whether the stream's history is incomplete, because it was
// first followed when the engine had been running for some time, or because
// events were lost. For a partial holder a store in gpu is also a proof that
// the engine held the ancestors at that moment; they are credited as far as a
// stream with the same engine hashes tells what they are (StoreResult.Implied).
func (h *Holder) SetPartial(partial bool) {
	h.table.mu.Lock()
	defer h.table.mu.Unlock()
	h.partial = partial
}

// Counts returns how much h holds; zero once it is retired. It waits for writers
// of the table.
func (h *Holder) Counts() HolderCounts {
	h.table.mu.Lock()
	defer h.table.mu.Unlock()
	var c HolderCounts
	if h.retired.Load() {
		return c
	}
	for _, s := range h.seats() {
		for t := range s.held {
			c.Blocks[t] += int(s.held[t].Load())
		}
		if s != h.seat || h.unsure {
			c.Suspect += s.blocks()
		}
	}
	c.Orphans = int(h.parked.Load())
	return c
}

// Lookup returns the block that e names, if the stream holds it in any tier.
// It is false also for a block that is parked and for an ambiguous name.
func (h *Holder) Lookup(e EngineHash) (SeqHash, bool) {
	h.table.mu.Lock()
	defer h.table.mu.Unlock()
	if h.retired.Load() {
		return 0, false
	}
	a, ok := h.known(e)
	if !ok || a.ref == 0 {
		return 0, false
	}
	return a.seq, true
}
