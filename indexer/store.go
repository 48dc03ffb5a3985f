package indexer

import "math"

// tip is the block that a run continues; the zero value is the beginning of a
// prompt.
type tip struct {
	engine EngineHash
	seq    SeqHash
	pos    uint32
	scope  scopeID
	some   bool
}

// follow returns the place of the block that follows b, which has some.
func (b tip) follow(hs Hasher, local LocalHash) place {
	return place{seq: hs.Next(b.seq, local), parent: b.seq, before: b.engine, pos: b.pos + 1, scope: b.scope}
}

// tipAt is p as the block that a run continues.
func tipAt(e EngineHash, p place) tip {
	return tip{engine: e, seq: p.seq, pos: p.pos, scope: p.scope, some: true}
}

// tipOf is a as the block that a run continues.
func tipOf(e EngineHash, a alias) tip {
	return tip{engine: e, seq: a.seq, pos: a.pos, scope: a.scope, some: true}
}

// extend stores the blocks of r from the given one on, the first of them after
// b.
func (h *Holder) extend(r Run, from int, b tip, res *StoreResult) {
	for i := from; i < len(r.Engine); i++ {
		e := r.Engine[i]
		var p place
		if b.some {
			p = b.follow(h.table.hasher, r.Local[i])
		} else {
			p = place{seq: h.table.hasher.Root(r.Scope, r.Local[i]), scope: h.table.scopeID(r.Scope)}
		}
		out := h.hold(r.Tier, e, p, 1)
		if out.stored {
			res.Stored++
		} else {
			res.Duplicates++
		}
		if out.conflict {
			res.Conflicts++
		}
		if out.learnt && len(h.lot.nodes) > 0 {
			h.attach(tipAt(e, p), p, res)
		}
		b = tipAt(e, p)
	}
}

// aliasAt is an alias of the block at p that holds nothing yet.
func aliasAt(p place) alias {
	return alias{seq: p.seq, before: p.before, pos: p.pos, scope: p.scope}
}

// outcome is what hold did.
type outcome struct {
	stored   bool // the stream did not hold the block in the tier before
	learnt   bool // the name was not known before
	conflict bool // the name stands for another block, too
}

// hold records n more copies in tier t of the block at p, under the name e.
func (h *Holder) hold(t Tier, e EngineHash, p place, n int) outcome {
	var out outcome
	a, ok := h.aliases.m[e]
	switch {
	case ok && !a.unseen && a.seq == p.seq:
	case ok && a.held():
		return h.holdSecond(t, e, p, n)
	default:
		a = aliasAt(p)
		out.learnt = true
	}
	out.stored = h.gain(t, p, h.addCopies(&a.copies[t], n))
	h.aliases.m[e] = a
	if out.learnt {
		h.table.sharing.noteLearnt(h, e)
	}
	return out
}

// holdSecond is hold for a name that stands for another block already.
func (h *Holder) holdSecond(t Tier, e EngineHash, p place, n int) outcome {
	if h.aliases.more == nil {
		h.aliases.more = make(map[EngineHash][]alias)
	}
	out := outcome{}
	more := h.aliases.more[e]
	i := 0
	for i < len(more) && more[i].seq != p.seq {
		i++
	}
	if i == len(more) {
		more = append(more, aliasAt(p))
		out.conflict = true
	}
	out.stored = h.gain(t, p, h.addCopies(&more[i].copies[t], n))
	h.aliases.more[e] = more
	return out
}

// addCopies adds up to n copies, as the policy wants, and returns how many.
func (h *Holder) addCopies(copies *uint16, n int) int {
	limit := math.MaxUint16
	if h.table.policy == Set {
		limit = 1
	}
	n = min(n, limit-int(*copies))
	*copies += uint16(n)
	return n
}

// gain counts n more copies of the block at p in tier t, under whatever name,
// and reports whether the first is among them.
func (h *Holder) gain(t Tier, p place, n int) bool {
	if n == 0 {
		return false
	}
	first := h.table.blocks.add(p, h.slot, t)
	if first {
		h.held[t].Add(1)
		n--
	}
	if n > 0 {
		if h.extra == nil {
			h.extra = make(map[copyKey]int)
		}
		h.extra[copyKey{p.seq, t}] += n
	}
	return first
}

// lose takes back n copies.
func (h *Holder) lose(seq SeqHash, t Tier, n int) {
	k := copyKey{seq, t}
	extra := h.extra[k] // 0 if there is none
	if n < extra {
		h.extra[k] = extra - n
		return
	}
	if extra > 0 {
		delete(h.extra, k)
	}
	if n > extra {
		h.table.blocks.remove(seq, h.slot, t)
		h.held[t].Add(-1)
	}
}
