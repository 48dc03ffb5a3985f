package indexer

// nameRef is a name of a block: an entry of the arena, whose only name is in
// the entry itself, or a record.
type nameRef uint32

const recordFlag nameRef = 1 << 30

// record is one name of a block that has several: engines with other hash seeds
// hold it, too, or one engine keeps it under two names.
type record struct {
	name   EngineHash
	before EngineHash // name of the block before it, of the same engines
	seq    SeqHash    // the block's: where all holders of a block retired, its
	block  uint32     // entry may be free before the sweeper gets to the record
	set    uint32     // who holds the block under this name
}

func (r *record) is(block uint32, seq SeqHash, before EngineHash) bool {
	return r.block == block && r.seq == seq && r.before == before
}

// names maps engine hashes to blocks, for all streams of a table at once. It is a
// multimap: what a name means to a stream is the block that this stream holds
// under it, which the sets tell. So a name costs nothing more where another
// stream with the same hashes holds the block, too; and a name cannot lead to
// an entry that was used again, for a block that is held is not freed.
type names struct {
	index   buckets // name -> nameRef
	records numbered[record]
	shared  map[EngineHash]int // how many refs the names have that have several
}

func (t *Table) nameOf(r nameRef) EngineHash {
	if r&recordFlag != 0 {
		return t.names.records.at(uint32(r &^ recordFlag)).name
	}
	return t.arena.name(uint32(r))
}

// blockOf returns the entry of the block that r is a name of.
func (t *Table) blockOf(r nameRef) uint32 {
	if r&recordFlag != 0 {
		return t.names.records.at(uint32(r &^ recordFlag)).block
	}
	return uint32(r)
}

// holdersOf returns the set of those who hold the block under this name.
func (t *Table) holdersOf(r nameRef) uint32 {
	if r&recordFlag != 0 {
		return t.names.records.at(uint32(r &^ recordFlag)).set
	}
	return t.arena.set(uint32(r))
}

func (t *Table) beforeOf(r nameRef) EngineHash {
	if r&recordFlag != 0 {
		return t.names.records.at(uint32(r &^ recordFlag)).before
	}
	return t.arena.before(uint32(r))
}

// isAmbiguous reports whether e may mean several blocks, or one in several
// ways. Nearly always there is no such name at all.
func (n *names) isAmbiguous(e EngineHash) bool {
	if len(n.shared) == 0 {
		return false
	}
	_, yes := n.shared[e]
	return yes
}

// addName makes ref findable under e. fresh says that e is known to have no ref.
func (t *Table) addName(e EngineHash, ref nameRef, fresh bool) {
	n := &t.names
	if fresh {
		n.index.put(uint64(e), uint32(ref))
		return
	}
	others := 0
	p := n.index.probe(uint64(e))
	for id := p.next(); id != 0; id = p.next() {
		if t.nameOf(nameRef(id)) == e {
			others++
		}
	}
	n.index.put(uint64(e), uint32(ref))
	if others > 0 {
		if n.shared == nil {
			n.shared = make(map[EngineHash]int)
		}
		n.shared[e] = others + 1
	}
}

// drop makes ref no longer findable.
func (n *names) drop(e EngineHash, ref nameRef) {
	n.index.replace(uint64(e), uint32(ref), 0)
	if c, ok := n.shared[e]; ok {
		if c > 2 {
			n.shared[e] = c - 1
		} else {
			delete(n.shared, e)
		}
	}
}

// refs calls f for all refs of e until it returns false.
func (t *Table) refs(e EngineHash, f func(nameRef) bool) {
	p := t.names.index.probe(uint64(e))
	for id := p.next(); id != 0; id = p.next() {
		if r := nameRef(id); t.nameOf(r) == e && !f(r) {
			return
		}
	}
}

// onlyRef returns the ref of a name that is not ambiguous, 0 if there is none.
func (t *Table) onlyRef(e EngineHash) nameRef {
	p := t.names.index.probe(uint64(e))
	for id := p.next(); id != 0; id = p.next() {
		if r := nameRef(id); t.nameOf(r) == e {
			return r
		}
	}
	return 0
}

// held returns the ref under which slot holds a block by the name e, 0 if there
// is none, and whether there are more.
func (t *Table) held(e EngineHash, slot int) (ref nameRef, more bool) {
	if !t.names.isAmbiguous(e) {
		if r := t.onlyRef(e); r != 0 && t.sets.tiers(t.holdersOf(r), slot) != 0 {
			return r, false
		}
		return 0, false
	}
	t.refs(e, func(r nameRef) bool {
		if t.sets.tiers(t.holdersOf(r), slot) == 0 {
			return true
		}
		more = ref != 0
		if !more {
			ref = r
		}
		return !more
	})
	return ref, more
}

// heldRefs returns all refs under which slot holds a block by the name e.
func (t *Table) heldRefs(e EngineHash, slot int) []nameRef {
	var all []nameRef
	t.refs(e, func(r nameRef) bool {
		if t.sets.tiers(t.holdersOf(r), slot) != 0 {
			all = append(all, r)
		}
		return true
	})
	return all
}

// split moves the name of an entry into a record, so that it can have others.
func (t *Table) split(id uint32) {
	e, set := t.nameOf(nameRef(id)), t.arena.set(id)
	r := nameRef(t.names.records.add(t.mem, record{e, t.arena.before(id), t.arena.key(id), id, set})) | recordFlag
	t.names.index.replace(uint64(e), id, uint32(r))
	t.arena.setMany(id)
	t.sets.count(set, 0, 1, 1)
	for _, s := range t.slots {
		if s == nil || len(s.extra) == 0 {
			continue
		}
		for tier := range Tier(NumTiers) {
			if n, ok := s.extra[copyKey{nameRef(id), tier}]; ok {
				s.setExtra(copyKey{r, tier}, n)
			}
		}
	}
}

// nameFor returns the ref for the block id under the name e, whose parent's name
// is before. It makes one if there is none; then it is 0 if there is no memory.
func (t *Table) nameFor(id uint32, e, before EngineHash) nameRef {
	if !t.arena.hasMany(id) {
		if t.nameOf(nameRef(id)) == e && t.arena.before(id) == before {
			return nameRef(id)
		}
	} else {
		var found nameRef
		t.refs(e, func(r nameRef) bool {
			if r&recordFlag != 0 && t.names.records.at(uint32(r&^recordFlag)).is(id, t.arena.key(id), before) {
				found = r
			}
			return found == 0
		})
		if found != 0 {
			return found
		}
	}
	if !t.recordRoom() || !t.names.index.room(uint64(e)) {
		return 0
	}
	if !t.arena.hasMany(id) {
		t.split(id)
	}
	r := nameRef(t.names.records.add(t.mem, record{name: e, before: before, seq: t.arena.key(id), block: id})) | recordFlag
	t.addName(e, r, false)
	return r
}

// recordRoom reports whether there is memory for two more records.
func (t *Table) recordRoom() bool {
	p := &t.names.records
	if int(p.n)-len(p.gone)+2 <= len(p.parts)*numberedPart || !t.mem.limited() {
		return true
	}
	if !t.mem.try(p.partBytes()) {
		return false
	}
	t.mem.add(-p.partBytes()) // add will take it
	return true
}
