package indexer

// lot is where blocks wait whose parent is not known yet, each once, as a
// forest: under the engine hash of its parent, which may be parked itself.
// What it holds is bounded by Options.MaxOrphanBlocks.
//
// An engine hash is never in the lot and among the aliases at once, nothing
// waits under an alias, and the lot has no cycles: what would break that is a
// conflict, and is dropped.
type lot struct {
	nodes map[EngineHash]*parked
	kids  map[EngineHash]*parked // first of those that wait under a hash
}

// parked is a block in the lot. One that was removed while it waited stays, with
// no copies, for as long as others wait under it: the place of those depends on
// it.
type parked struct {
	engine, parent EngineHash
	local          LocalHash
	scope          ScopeKey // of the run
	copies         [NumTiers]uint16
	next, prev     *parked // under the same parent
}

func (n *parked) held() bool { return n.copies != [NumTiers]uint16{} }

// bytesPerOrphan is what a parked block takes on average, with its places in
// the maps.
const bytesPerOrphan = 160

// addCopies counts one more copy, as the policy wants.
func (t *Table) addCopies(copies *uint16) {
	if int(*copies) < t.maxCopies() {
		*copies++
	}
}

// add puts n under its parent and reports whether it is the first there.
func (l *lot) add(n *parked) (first bool) {
	if l.nodes == nil {
		l.nodes = make(map[EngineHash]*parked)
		l.kids = make(map[EngineHash]*parked)
	}
	l.nodes[n.engine] = n
	n.next = l.kids[n.parent]
	if n.next != nil {
		n.next.prev = n
	}
	l.kids[n.parent] = n
	return n.next == nil
}

// remove takes n out and reports whether it was the last under its parent.
func (l *lot) remove(n *parked) (last bool) {
	delete(l.nodes, n.engine)
	if n.next != nil {
		n.next.prev = n.prev
	}
	switch {
	case n.prev != nil:
		n.prev.next = n.next
	case n.next != nil:
		l.kids[n.parent] = n.next
	default:
		delete(l.kids, n.parent)
		last = true
	}
	n.next, n.prev = nil, nil
	return last
}

// under reports whether e is parent or an ancestor of it in the lot.
func (l *lot) under(parent, e EngineHash) bool {
	for {
		if parent == e {
			return true
		}
		n := l.nodes[parent]
		if n == nil {
			return false
		}
		parent = n.parent
	}
}

// storeOrphan stores a run whose parent the stream does not know.
func (h *Holder) storeOrphan(r Run, res *StoreResult) {
	i, b := h.ownTip(r)
	if i > 0 {
		if h.storeShared(r, res) {
			return
		}
		h.park(r, i, res)
	}
	if i < len(r.Engine) {
		h.extend(r, i, b, res)
	}
}

// ownTip finds the first block of r that the stream knows already, and from it
// the block before: the same prefix has been stored before its parent was
// forgotten. It returns len(r.Engine) if there is none.
func (h *Holder) ownTip(r Run) (int, tip) {
	before := r.Parent
	for i, e := range r.Engine {
		if a, ok := h.known(e); ok && a.pos > 0 && a.before == before {
			parent, ok := h.table.parentOf(a)
			if ok && h.table.hasher.Next(parent, r.Local[i]) == a.seq {
				return i, tip{engine: before, seq: parent, pos: a.pos - 1, scope: a.scope, some: true}
			}
		}
		before = e
	}
	return len(r.Engine), tip{}
}

// park parks the first n blocks of r.
func (h *Holder) park(r Run, n int, res *StoreResult) {
	before := r.Parent
	for i, e := range r.Engine[:n] {
		switch h.parkOne(r.Tier, parked{engine: e, parent: before, local: r.Local[i], scope: r.Scope}) {
		case parkedNew:
			res.Orphaned++
		case parkedCopy:
			res.Duplicates++
		case parkedFull:
			res.Dropped += n - i
			return
		case parkedRefused:
			h.table.refuse(noBytes, n-i, res)
			return
		case parkedConflict:
			res.Conflicts++
			res.Dropped += n - i
			if node := h.lot.nodes[e]; node != nil {
				res.Dropped += h.dropTree(node)
			}
			return
		}
		before = e
	}
}

type parking int

const (
	parkedNew      parking = iota
	parkedCopy             // of what is parked
	parkedFull             // there is no room
	parkedRefused          // there is no memory
	parkedConflict         // e names another block
)

// parkOne parks one copy of a block in tier t.
func (h *Holder) parkOne(t Tier, b parked) parking {
	if n := h.lot.nodes[b.engine]; n != nil {
		if n.parent != b.parent || n.local != b.local {
			return parkedConflict
		}
		fresh := n.copies[t] == 0
		h.table.addCopies(&n.copies[t])
		if fresh {
			return parkedNew
		}
		return parkedCopy
	}
	if h.holds(b.engine) {
		return parkedConflict
	}
	h.late.drop(b.engine)
	if b.engine == b.parent || h.lot.kids[b.engine] != nil && h.lot.under(b.parent, b.engine) {
		return parkedConflict // a block cannot be its own ancestor
	}
	if len(h.lot.nodes) >= h.table.maxOrphans {
		return parkedFull
	}
	if !h.table.mem.try(bytesPerOrphan) {
		return parkedRefused
	}
	h.table.addCopies(&b.copies[t])
	if h.lot.add(&b) && h.lot.nodes[b.parent] == nil {
		h.table.sharing.wait(h, b.parent)
	}
	h.parked.Add(1)
	return parkedNew
}

// unpark takes n out of the lot, and then those before it that only stayed for
// its sake.
func (h *Holder) unpark(n *parked) {
	for n != nil {
		if h.lot.remove(n) {
			h.table.sharing.unwait(h, n.parent)
		}
		h.parked.Add(-1)
		h.table.mem.add(-bytesPerOrphan)
		n = h.lot.nodes[n.parent]
		if n == nil || n.held() || h.lot.kids[n.engine] != nil {
			return
		}
	}
}

// dropTree takes n and all that waits under it out of the lot, and returns how
// many held blocks that were.
func (h *Holder) dropTree(n *parked) int {
	dropped := 0
	for todo := []*parked{n}; len(todo) > 0; {
		n := todo[len(todo)-1]
		if kid := h.lot.kids[n.engine]; kid != nil {
			todo = append(todo, kid)
			continue
		}
		todo = todo[:len(todo)-1]
		if h.lot.nodes[n.engine] != n {
			continue // it went with its last kid
		}
		if n.held() {
			dropped++
		}
		h.unpark(n)
	}
	return dropped
}

// attach puts in place what waits under b, which stands at p, and what waits
// under that, and so on.
func (h *Holder) attach(b tip, p place, res *StoreResult) {
	if n := h.lot.nodes[b.engine]; n != nil {
		h.attachSelf(n, p, res)
	}
	for todo := []tip{b}; len(todo) > 0; {
		b := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for n := h.lot.kids[b.engine]; n != nil; n = h.lot.kids[b.engine] {
			p := b.follow(h.table.hasher, n.local)
			id := h.moveIn(n, p, b.id, res)
			todo = append(todo, tipAt(n.engine, p, id))
		}
	}
}

// attachSelf handles a parked block whose name has just been learnt without its
// parent's: another stream told what it is, or it is a conflict.
func (h *Holder) attachSelf(n *parked, p place, res *StoreResult) {
	if p.pos > 0 && n.parent == p.before && h.table.hasher.Next(p.parent, n.local) == p.seq {
		h.moveIn(n, p, 0, res)
		return
	}
	res.Conflicts++
	res.Dropped += h.dropTree(n)
}

// moveIn moves n from the lot to its place p, and returns its entry, if it has
// one; after is that of its parent, if that is known. That makes no conflict: the name
// of what is parked is no alias.
func (h *Holder) moveIn(n *parked, p place, after uint32, res *StoreResult) uint32 {
	h.unpark(n)
	if !n.held() {
		h.bury(n.engine, p)
		return 0
	}
	var out outcome
	for t, c := range n.copies {
		if c == 0 {
			continue
		}
		if out = h.hold(Tier(t), n.engine, &p, int(c), hint{after: after, want: 1}); out.refusal != admitted {
			h.bury(n.engine, p) // so that what waits under it does not wait for ever
			h.table.refuse(out.refusal, 1, res)
			return 0
		}
	}
	res.Attached++
	return out.id
}

// removeParked removes one copy of a parked block.
func (h *Holder) removeParked(t Tier, e EngineHash) bool {
	n := h.lot.nodes[e]
	if n.copies[t] == 0 {
		return false
	}
	n.copies[t]--
	if !n.held() && h.lot.kids[e] == nil {
		h.unpark(n)
		if h.partial {
			h.buryUnseen(e)
		}
	}
	return true
}

// clearParked removes all copies in tier t of what is parked.
func (h *Holder) clearParked(t Tier) {
	for e, n := range h.lot.nodes {
		n.copies[t] = 0
		if !n.held() && h.lot.kids[e] == nil {
			h.unpark(n)
		}
	}
}
