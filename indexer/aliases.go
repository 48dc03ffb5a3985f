package indexer

// alias is what an engine hash means to a stream.
//
// An engine hash names one block, for it stands for the whole prefix. Engines
// whose hashes do not (or collide) may name a second block while they hold the
// first; then the name is ambiguous. It still removes, but leads no longer
// from a parent to a child: better to forget blocks than to invent them.
type alias struct {
	place          // parent only if held
	ref    nameRef // 0: the stream removed the block lately
	unseen bool    // removed by the stream, never stored: nothing but that is known
}

// recentNames is how many entries a holder remembers, by their names: the parent
// of a run is most often what the stream has stored a moment ago.
const recentNames = 4

// isOnly reports whether e is the only name of the entry id, and means nothing
// else. id may be any that has been an entry once, or 0.
func (t *Table) isOnly(id uint32, e EngineHash) bool {
	if id == 0 {
		return false
	}
	s, o := t.arena.at(id)
	return (s.used&^s.many)>>o&1 != 0 && s.name[o] == e && !t.names.isAmbiguous(e)
}

// known returns the block that e names, held or lately removed. It is false
// if e names none or more than one.
func (h *Holder) known(e EngineHash) (alias, bool) {
	a, ok, ambiguous := h.own(e)
	return a, ok && !ambiguous && !a.unseen
}

// own returns all that h knows of e: one of the blocks that it names.
func (h *Holder) own(e EngineHash) (a alias, ok, ambiguous bool) {
	if id := h.recent[uint64(e)%recentNames]; h.table.isOnly(id, e) && h.table.sets.tiers(h.table.arena.set(id), h.slot) != 0 {
		return h.aliasOf(nameRef(id)), true, false
	}
	if ref, more := h.heldAnywhere(e); ref != 0 {
		return h.aliasOf(ref), true, more
	}
	if l := h.late.get(e); l != nil {
		p := place{seq: l.seq, before: l.before, pos: l.pos, scope: l.scope}
		return alias{place: p, unseen: l.unseen}, true, false
	}
	return alias{}, false, false
}

func (h *Holder) aliasOf(ref nameRef) alias {
	p := h.table.arena.place(h.table.blockOf(ref))
	if ref&recordFlag != 0 {
		p.before = h.table.beforeOf(ref)
	}
	return alias{place: p, ref: ref}
}

// bury keeps the name of a block that h no longer holds for a while.
func (h *Holder) bury(e EngineHash, p place) {
	h.putLate(lateName{name: e, seq: p.seq, before: p.before, pos: p.pos, scope: p.scope})
}

// buryUnseen keeps the name of a block that h has not stored.
func (h *Holder) buryUnseen(e EngineHash) { h.putLate(lateName{name: e, unseen: true}) }

func (h *Holder) putLate(n lateName) {
	held := int(h.parked.Load()) + h.blocks()
	for _, s := range h.suspects {
		held += s.blocks()
	}
	h.late.put(n, int64(held), h.table.mem)
}

// take takes one copy in tier t of the block that e names, or, where e is
// ambiguous, all copies of all blocks that it names: it is not known which of
// them went. near, if it is some, may be the ref of e. take returns the ref it
// took from; 0 if there was no copy.
func (h *Holder) take(e EngineHash, t Tier, near nameRef) nameRef {
	ref, named := h.takeFrom(h.seat, e, t, near)
	for i := len(h.suspects) - 1; ref == 0 && i >= 0; i-- {
		var too bool
		ref, too = h.takeFrom(h.suspects[i].seat, e, t, 0)
		named = named || too
	}
	if !named && h.partial && h.late.get(e) == nil {
		h.buryUnseen(e)
	}
	return ref
}

// takeFrom is take for one seat. named says whether e names anything there.
func (h *Holder) takeFrom(s *seat, e EngineHash, t Tier, near nameRef) (from nameRef, named bool) {
	tb := h.table
	ref, more := near, false
	if ref == 0 || tb.nameOf(ref) != e || tb.names.isAmbiguous(e) {
		if ref, more = tb.held(e, s.slot); ref == 0 {
			return 0, false
		}
	}
	if more {
		return s.takeAll(e, t), true
	}
	switch tiers := tb.sets.tiers(tb.holdersOf(ref), s.slot); {
	case tiers>>t&1 == 0:
		if tiers == 0 {
			return h.takeFrom(s, e, t, 0) // near was another's
		}
		return 0, true
	case tiers == 1<<t && s.extraOf(ref, t) == 0:
		p := h.aliasOf(ref).place
		s.lose(ref, t, 1)
		if len(h.suspects) == 0 || !h.holds(e) {
			h.bury(e, p)
		}
	default:
		s.lose(ref, t, 1)
	}
	return ref, true
}

// takeAll takes all copies in tier t of all blocks that e names, and returns one
// of the refs it took from.
func (s *seat) takeAll(e EngineHash, t Tier) nameRef {
	var taken nameRef
	for _, ref := range s.of.table.heldRefs(e, s.slot) {
		if c := s.copies(ref, t); c > 0 {
			s.lose(ref, t, c)
			taken = ref
		}
	}
	return taken
}

// near returns the entry with the name e next to that of ref, if there is one:
// engines give up blocks in the order of chains, or against it.
func (t *Table) near(ref nameRef, e EngineHash) nameRef {
	if ref == 0 || ref&recordFlag != 0 {
		return 0
	}
	s, o := t.arena.at(uint32(ref))
	only := s.used &^ s.many
	switch {
	case o > 0 && only>>(o-1)&1 != 0 && s.name[o-1] == e:
		return ref - 1
	case o+1 < slabSize && only>>(o+1)&1 != 0 && s.name[o+1] == e:
		return ref + 1
	}
	return 0
}
