package indexer

// tip is the block that a run continues; the zero value is the beginning of a
// prompt.
type tip struct {
	engine EngineHash
	seq    SeqHash
	pos    uint32
	scope  scopeID
	some   bool
	id     uint32 // its entry, 0 if it is not known
}

// follow returns the place of the block that follows b, which has some.
func (b tip) follow(hs Hasher, local LocalHash) place {
	return place{seq: hs.Next(b.seq, local), parent: b.seq, before: b.engine, pos: b.pos + 1, scope: b.scope}
}

// tipAt is p, with its entry, as the block that a run continues.
func tipAt(e EngineHash, p place, id uint32) tip {
	return tip{engine: e, seq: p.seq, pos: p.pos, scope: p.scope, some: true, id: id}
}

// tipOf is a as the block that a run continues.
func (t *Table) tipOf(e EngineHash, a alias) tip {
	id := uint32(0)
	if a.ref != 0 {
		id = t.blockOf(a.ref)
	}
	return tipAt(e, a.place, id)
}

// extend stores the blocks of r from the given one on, the first of them after
// b.
func (h *Holder) extend(r Run, from int, b tip, res *StoreResult) {
	if from == len(r.Engine) {
		return
	}
	tb := h.table
	p := place{pos: b.pos, scope: b.scope, before: b.engine, parent: b.seq}
	if b.some {
		p.pos++
		p.seq = tb.hasher.Next(b.seq, r.Local[from])
	} else {
		p.seq, p.scope = tb.hasher.Root(r.Scope, r.Local[from]), tb.scopeID(r.Scope)
	}
	seqs := tb.follow(p.seq, r.Local[from+1:])
	for i := from; i < len(r.Engine); i++ {
		e := r.Engine[i]
		if i > from {
			p = place{seq: seqs[i-from], parent: b.seq, before: b.engine, pos: b.pos + 1, scope: b.scope}
		}
		if (i-from)%touchAhead == 0 && tb.following(b.id, &p, e) == 0 {
			tb.touch(seqs[i-from:], r.Engine[i:])
		}
		out := h.holdSure(r.Tier, e, &p, 1, hint{after: b.id, want: len(r.Engine) - i})
		if out.refusal != admitted {
			// A hole, and nothing is to be put behind it: the rest of the run would
			// take memory and match nothing.
			tb.refuse(out.refusal, len(r.Engine)-i, res)
			return
		}
		if len(h.suspects) > 0 {
			h.supersede(r.Tier, e)
		}
		if out.stored {
			res.Stored++
		} else {
			res.Duplicates++
		}
		if out.conflict {
			res.Conflicts++
		}
		b = tipAt(e, p, out.id)
		h.recent[uint64(e)%recentNames] = out.id
		if out.learnt && len(h.lot.nodes) > 0 {
			h.attach(b, p, res)
		}
	}
}

// follow returns seq and the hashes of the blocks that follow it. They are valid
// until the next call.
func (t *Table) follow(seq SeqHash, local []LocalHash) []SeqHash {
	t.seqs = append(t.seqs[:0], seq)
	for _, l := range local {
		seq = t.hasher.Next(seq, l)
		t.seqs = append(t.seqs, seq)
	}
	return t.seqs
}

// touchAhead is how many blocks of a run are fetched from memory at once.
const touchAhead = 16

// touch fetches where the blocks and their names are, or are going to be.
func (t *Table) touch(seqs []SeqHash, names []EngineHash) {
	for i := range min(len(seqs), touchAhead) {
		t.index.touch(uint64(seqs[i]))
		t.names.index.touch(uint64(names[i]))
	}
}

// refuse counts n blocks that were not admitted.
func (t *Table) refuse(why refusal, n int, res *StoreResult) {
	switch why {
	case noKey:
		res.Dropped += n
	case noBlocks:
		res.Refused += n
		t.refused.Blocks += int64(n)
	default:
		res.Refused += n
		t.refused.Bytes += int64(n)
	}
}

// outcome is what hold did.
type outcome struct {
	id       uint32  // the block's entry
	refusal  refusal // if it is not admitted, nothing was done
	stored   bool    // the stream did not hold the block in the tier before
	learnt   bool    // the name was not known before
	conflict bool    // the name stands for another block, too
}

// hold records n more copies in tier t of the block at p, under the name e.
func (h *Holder) hold(t Tier, e EngineHash, p *place, n int, near hint) outcome {
	out := h.holdSure(t, e, p, n, near)
	if len(h.suspects) > 0 && out.refusal == admitted {
		h.supersede(t, e)
	}
	return out
}

// holdSure is hold where nothing is suspect.
func (h *Holder) holdSure(t Tier, e EngineHash, p *place, n int, near hint) outcome {
	tb := h.table
	out := outcome{id: tb.following(near.after, p, e)}
	var ref nameRef
	if out.id != 0 && !tb.names.isAmbiguous(e) {
		ref = nameRef(out.id)
		if tb.sets.tiers(tb.arena.set(out.id), h.slot) != 0 {
			out.stored = h.gain(ref, t, n)
			return out
		}
	} else {
		var have nameRef
		var more bool
		if tb.names.isAmbiguous(e) {
			have, more = tb.held(e, h.slot)
		} else if have = tb.onlyRef(e); have == 0 {
			near.fresh = true
		} else if tb.sets.tiers(tb.holdersOf(have), h.slot) == 0 {
			have = 0
		}
		if have != 0 && tb.arena.key(tb.blockOf(have)) != p.seq {
			have = h.heldAs(e, p.seq, more)
			out.conflict = have == 0
		}
		if have != 0 {
			out.id = tb.blockOf(have)
			out.stored = h.gain(have, t, n)
			return out
		}
		if out.id == 0 {
			out.id = tb.find(p.seq)
		}
	}
	var l *lateName
	if !out.conflict {
		out.learnt = true
		if l = h.late.get(e); l != nil && !l.unseen && l.seq == p.seq {
			out.learnt = false
			if p.before != l.before {
				p.before, ref = l.before, 0
			}
		}
	}
	if h.join(t, e, p, n, ref, near, &out); out.refusal != admitted {
		return outcome{refusal: out.refusal}
	}
	if near.after != 0 && out.id != near.after+1 {
		tb.arena.hint(near.after, out.id)
	}
	if l != nil {
		*l = lateName{}
	}
	if out.learnt {
		tb.sharing.noteLearnt(h, e)
	}
	return out
}

// join makes h hold the block at p, which it does not hold under the name e. ref
// is that name of it, if that is known.
func (h *Holder) join(t Tier, e EngineHash, p *place, n int, ref nameRef, near hint, out *outcome) {
	tb := h.table
	if out.id == 0 {
		out.id, out.refusal = tb.admit(p, e, tb.sets.with(0, h.slot, t), near)
		if out.refusal != admitted {
			return
		}
		h.held[t].Add(1)
		out.stored = true
		if n--; n == 0 {
			return
		}
		ref = nameRef(out.id)
	} else if ref == 0 {
		if ref = tb.nameFor(out.id, e, p.before); ref == 0 {
			out.refusal = noBytes
			return
		}
	}
	if n == 1 && ref&recordFlag == 0 && !out.stored {
		from := tb.arena.set(out.id)
		tb.setBlock(out.id, tb.sets.with(from, h.slot, t))
		h.held[t].Add(1)
		out.stored = true
		return
	}
	first := h.gain(ref, t, n)
	out.stored = out.stored || first
}

// heldAs returns the ref under which h holds seq by the name e, if there is one.
func (h *Holder) heldAs(e EngineHash, seq SeqHash, more bool) nameRef {
	if !more {
		return 0
	}
	for _, ref := range h.table.heldRefs(e, h.slot) {
		if h.table.arena.key(h.table.blockOf(ref)) == seq {
			return ref
		}
	}
	return 0
}

// following returns the entry after the given one, if that is the block at p and
// e its only name: most often it is, where the chain is in the table already.
func (t *Table) following(after uint32, p *place, e EngineHash) uint32 {
	if after == 0 {
		return 0
	}
	s, o := t.arena.at(after)
	if o++; o == slabSize || s.runs>>o&1 == 0 || s.many>>o&1 != 0 ||
		s.keys[o] != p.seq || s.name[o] != e || s.name[o-1] != p.before {
		return 0
	}
	return after + 1
}
