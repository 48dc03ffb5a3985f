package indexer

import "slices"

// This file lets streams help each other: where two engines hash blocks alike,
// what one stream tells about a block serves the other, which may have been
// followed too late to hear it itself. Only runs whose parent is unknown come
// here, so that it may cost look-ups over all holders.
//
// That two engines hash alike is never assumed. It is proven by one engine hash
// that both use for the same block (our sequence hashes are equal: the same
// tokens after the same tokens, in the same scope), and disproven for good by
// one that they use for different blocks. A run that is to be led to its place
// may itself be the proof; but the scope of a prompt is not in all engine
// hashes (a tenant never is), so it must have been told in the same scope.

// relation is what is known of the engine hashes of two holders.
type relation uint8

const (
	unrelated relation = iota // nothing yet
	shared                    // they mean the same
	apart                     // they do not
)

// sharing is what a table needs to wake orphans of one holder when another
// learns what they wait for. The table's mutex guards it.
type sharing struct {
	waiting map[EngineHash][]*Holder // unknown parent -> who waits for it
	learnt  []teller                 // to be told to who waits
	proven  [][2]*Holder             // now known to share
	scopes  map[ScopeKey]scopeID
}

// scopeID is a small number for a scope, the same in a whole table.
type scopeID uint16

// manyScopes stands for all scopes beyond the first 65,535, which are not told
// from one another: streams do not help each other there.
const manyScopes scopeID = 1<<16 - 1

// scopeID returns the number of a scope. The caller has the table's mutex.
func (t *Table) scopeID(k ScopeKey) scopeID {
	if k == 0 {
		return 0
	}
	s := &t.sharing
	id, ok := s.scopes[k]
	if !ok {
		if len(s.scopes) >= int(manyScopes)-1 {
			return manyScopes
		}
		if s.scopes == nil {
			s.scopes = make(map[ScopeKey]scopeID)
		}
		id = scopeID(len(s.scopes) + 1)
		s.scopes[k] = id
	}
	return id
}

// sameScope reports whether id is certainly the number of k.
func (t *Table) sameScope(id scopeID, k ScopeKey) bool {
	if k == 0 || id == 0 {
		return k == 0 && id == 0
	}
	return id != manyScopes && t.sharing.scopes[k] == id
}

// teller is a holder that has learnt a name.
type teller struct {
	from *Holder
	name EngineHash
}

func (s *sharing) wait(h *Holder, e EngineHash) {
	if s.waiting == nil {
		s.waiting = make(map[EngineHash][]*Holder)
	}
	if !slices.Contains(s.waiting[e], h) {
		s.waiting[e] = append(s.waiting[e], h)
	}
}

func (s *sharing) unwait(h *Holder, e EngineHash) {
	hs := s.waiting[e]
	i := slices.Index(hs, h)
	if i < 0 {
		return
	}
	if hs = slices.Delete(hs, i, i+1); len(hs) == 0 {
		delete(s.waiting, e)
	} else {
		s.waiting[e] = hs
	}
}

func (s *sharing) noteLearnt(h *Holder, e EngineHash) {
	if len(s.waiting) == 0 {
		return
	}
	if _, ok := s.waiting[e]; ok {
		s.learnt = append(s.learnt, teller{h, e})
	}
}

// settle tells what was learnt to the holders that wait for it. Writers call
// it last, when all blocks of a run are in place.
func (t *Table) settle() {
	s := &t.sharing
	for len(s.learnt)+len(s.proven) > 0 {
		if n := len(s.learnt); n > 0 {
			l := s.learnt[n-1]
			s.learnt[n-1] = teller{} // so that no retired holder is kept
			s.learnt = s.learnt[:n-1]
			for _, h := range slices.Clone(s.waiting[l.name]) {
				h.attachShared(l.from, l.name)
			}
			continue
		}
		n := len(s.proven)
		a, b := s.proven[n-1][0], s.proven[n-1][1]
		s.proven[n-1] = [2]*Holder{}
		s.proven = s.proven[:n-1]
		a.attachAllShared(b)
		b.attachAllShared(a)
	}
	if cap(s.learnt) > 1024 {
		s.learnt = nil
	}
}

// attachAllShared attaches what of h waits for a name that o knows.
func (h *Holder) attachAllShared(o *Holder) {
	for e := range h.lot.kids {
		if _, ok := o.known(e); ok {
			h.attachShared(o, e)
		}
	}
}

// attachShared attaches what of h waits under e, if o shares and knows what e
// is. These blocks were stored earlier, so they prove nothing about what the
// engine holds now: no ancestors are credited.
func (h *Holder) attachShared(o *Holder, e EngineHash) {
	if h == o || h.retired.Load() || o.retired.Load() {
		return
	}
	a, ok := o.known(e)
	if !ok {
		return
	}
	for n := h.lot.kids[e]; n != nil; n = n.next {
		if !h.table.sameScope(a.scope, n.scope) {
			return
		}
		h.compare(o, n.engine, h.table.hasher.Next(a.seq, n.local))
	}
	if !h.shares(o) {
		return
	}
	p, ok := o.placeOf(a)
	if !ok {
		return
	}
	var res StoreResult // of no run of this holder
	h.attach(h.table.tipOf(e, a), p, &res)
}

// storeShared stores a run whose parent another holder knows, if there is one
// that shares h's engine hashes.
func (h *Holder) storeShared(r Run, res *StoreResult) bool {
	for {
		b, o := h.findShared(r)
		if o == nil {
			return false
		}
		if h.partial && r.Tier == GPU {
			chain, ok := h.ancestors(r.Parent, o)
			if !ok {
				continue // o is apart now: ask the others
			}
			res.Implied += h.imply(chain, res)
		}
		h.extend(r, 0, b, res)
		return true
	}
}

// findShared looks for a holder that shares h's engine hashes and knows what r
// continues, and returns that block.
func (h *Holder) findShared(r Run) (tip, *Holder) {
	for _, s := range h.table.slots {
		if s == nil || s.ended.Load() || s != s.of.seat || s.of == h || h.relations[s.of] == apart {
			continue
		}
		o := s.of
		if b, ok := h.askParent(o, r); ok {
			return b, o
		}
		if b, ok := h.askFirst(o, r); ok {
			return b, o
		}
	}
	return tip{}, nil
}

// askParent asks o what the parent of r is.
func (h *Holder) askParent(o *Holder, r Run) (tip, bool) {
	a, ok := o.known(r.Parent)
	if !ok || !h.table.sameScope(a.scope, r.Scope) {
		return tip{}, false
	}
	seq := a.seq
	for i, e := range r.Engine {
		seq = h.table.hasher.Next(seq, r.Local[i])
		h.compare(o, e, seq)
	}
	return h.table.tipOf(r.Parent, a), h.shares(o)
}

// askFirst asks o what the first block of r is. If its tokens are those of r,
// then o shares, and the parent of the one is the parent of the other.
func (h *Holder) askFirst(o *Holder, r Run) (tip, bool) {
	a, ok := o.known(r.Engine[0])
	if !ok || a.pos == 0 || a.before != r.Parent || !h.table.sameScope(a.scope, r.Scope) {
		return tip{}, false
	}
	parent, ok := h.table.parentOf(a)
	if !ok {
		return tip{}, false
	}
	h.relate(o, h.table.hasher.Next(parent, r.Local[0]) == a.seq)
	return tip{engine: r.Parent, seq: parent, pos: a.pos - 1, scope: a.scope, some: true}, h.relations[o] == shared
}

// ancestor is a block of a chain that another holder knows.
type ancestor struct {
	engine EngineHash
	place  place
}

// ancestors returns the block that o calls e and those before it, nearest
// first, as far as o can tell what they are. It is false if h knows one of them
// as another block, so that the two do not share after all.
func (h *Holder) ancestors(e EngineHash, o *Holder) ([]ancestor, bool) {
	var chain []ancestor
	a, known := o.known(e)
	for known {
		p, placed := o.placeOf(a)
		if !placed {
			break
		}
		if own, ok, _ := h.own(e); ok && !own.unseen && own.seq != a.seq {
			h.relate(o, false)
			return nil, false
		}
		chain = append(chain, ancestor{e, p})
		if a.pos == 0 {
			break
		}
		e = a.before
		up, ok := o.known(e)
		known = ok && up.pos+1 == a.pos && up.seq == p.parent
		a = up
	}
	return chain, true
}

// imply credits h with the given blocks in gpu: its engine has just stored a
// block after them, so it held all of them at that moment. What h itself has
// stored or removed before is left as h knows it. imply returns how many blocks
// it credited.
func (h *Holder) imply(chain []ancestor, res *StoreResult) int {
	implied := 0
	for _, a := range chain {
		if own, some, _ := h.own(a.engine); some {
			if own.ref != 0 {
				h.trust(own.ref)
			}
			continue
		}
		id := uint32(0)
		if h.lot.nodes[a.engine] == nil {
			out := h.hold(GPU, a.engine, &a.place, 1, hint{want: 1})
			if out.refusal != admitted {
				h.table.refuse(out.refusal, 1, res)
				continue
			}
			id = out.id
			implied++
		}
		if len(h.lot.nodes) > 0 {
			h.attach(tipAt(a.engine, a.place, id), a.place, res)
		}
	}
	return implied
}

// compare looks whether o uses e, too, and notes what that says if h uses it
// for seq.
func (h *Holder) compare(o *Holder, e EngineHash, seq SeqHash) {
	if a, ok := o.known(e); ok {
		h.relate(o, a.seq == seq)
	}
}

// maxCompared bounds how many names shares compares.
const maxCompared = 1024

// shares reports whether h and o are proven to share. If nothing is known of
// them, it looks for a name that both use: for different blocks, or for one.
func (h *Holder) shares(o *Holder) bool {
	if h.relations[o] == unrelated {
		h.compareShared(o)
	}
	if h.relations[o] == unrelated && h.haveCommonName(o) {
		h.relate(o, true)
	}
	if h.relations[o] == unrelated {
		h.compareLate(o)
		o.compareLate(h)
	}
	return h.relations[o] == shared
}

// compareShared compares names that stand for several blocks.
func (h *Holder) compareShared(o *Holder) {
	n := 0
	for e := range h.table.names.shared {
		if a, ok := h.known(e); ok {
			h.compare(o, e, a.seq)
		}
		if n++; n == maxCompared || h.relations[o] != unrelated {
			return
		}
	}
}

// compareLate compares names of blocks that h has removed lately.
func (h *Holder) compareLate(o *Holder) {
	n := 0
	h.late.each(func(l *lateName) bool {
		if a, ok := h.known(l.name); ok {
			h.compare(o, l.name, a.seq)
		}
		n++
		return n < maxCompared && h.relations[o] == unrelated
	})
}

// haveCommonName reports whether h and o hold some block under one name: then
// some name has both in its set.
func (h *Holder) haveCommonName(o *Holder) bool {
	st := &h.table.sets
	in := func(id uint32, seats []*seat) bool {
		return slices.ContainsFunc(seats, func(s *seat) bool { return st.tiers(id, s.slot) != 0 })
	}
	found, mine, others := false, h.seats(), o.seats()
	st.each(func(id uint32) {
		u := st.uses[id]
		if !found && u.blocks-u.many+u.records > 0 && in(id, mine) && in(id, others) {
			found = true
		}
	})
	return found
}

// relate notes that h and o use one name for the same block, or do not. The
// latter is final.
func (h *Holder) relate(o *Holder, same bool) {
	now := apart
	if same {
		now = shared
	}
	if was := h.relations[o]; was == now || was == apart {
		return
	}
	for _, p := range [...][2]*Holder{{h, o}, {o, h}} {
		if p[0].relations == nil {
			p[0].relations = make(map[*Holder]relation)
		}
		p[0].relations[p[1]] = now
	}
	if same {
		h.table.sharing.proven = append(h.table.sharing.proven, [2]*Holder{h, o})
	}
}

func (h *Holder) forgetRelations() {
	for o := range h.relations {
		delete(o.relations, h)
	}
	h.relations = nil
}
