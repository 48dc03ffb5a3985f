package indexer

import "sync/atomic"

// find returns the entry of seq, 0 if nobody holds it. Readers may call it: the
// entry had this key when it was looked at.
func (t *Table) find(seq SeqHash) uint32 {
	if seq == 0 {
		return 0
	}
	p := t.index.probe(uint64(seq))
	var dir []*chunk
	for id := p.next(); id != 0; id = p.next() {
		if id>>(slabBits+chunkBits) >= uint32(len(dir)) {
			dir = t.arena.chunks() // it may have grown since the last id
		}
		if atomic.LoadUint64((*uint64)(&slabOf(dir, id).keys[id&(slabSize-1)])) == uint64(seq) {
			return id
		}
	}
	return 0
}

// parentOf returns the parent of the block that a names, if somebody holds that
// block.
func (t *Table) parentOf(a alias) (SeqHash, bool) {
	if a.ref != 0 {
		return a.parent, true
	}
	id := t.find(a.seq)
	if id == 0 {
		return 0, false
	}
	return t.arena.place(id).parent, true
}

// refusal says why a block was not admitted.
type refusal uint8

const (
	admitted refusal = iota
	noBlocks         // the bound on blocks is reached
	noBytes          // the bound on memory is reached
	noKey            // its sequence hash is 0, which is none
)

// hint is what helps to find or make an entry.
type hint struct {
	after uint32 // the entry of the block before, if that is known
	want  int    // how many blocks may follow, this one included
	fresh bool   // the name has no ref
}

// admit makes an entry for the block at p, under the name e, with the given
// set.
func (t *Table) admit(p *place, e EngineHash, set uint32, h hint) (uint32, refusal) {
	if p.seq == 0 {
		return 0, noKey
	}
	if !t.mem.block() {
		return 0, noBlocks
	}
	id := uint32(0)
	if t.index.room(uint64(p.seq)) && t.names.index.room(uint64(e)) {
		id = t.arena.room(h.after, h.want)
	}
	if id == 0 {
		t.mem.unblock()
		return 0, noBytes
	}
	t.sets.count(set, 1, 0, 0)
	t.arena.put(id, set, p, e)
	t.index.put(uint64(p.seq), id)
	t.addName(e, nameRef(id), h.fresh)
	return id, admitted
}

// discard frees the entry of a block that nobody holds.
func (t *Table) discard(id uint32) {
	if !t.arena.hasMany(id) {
		t.names.drop(t.nameOf(nameRef(id)), nameRef(id))
	}
	t.index.replace(uint64(t.arena.key(id)), id, 0)
	t.arena.free(id)
	t.mem.unblock()
}

// setBlock gives the block id another set. Without one it is freed.
func (t *Table) setBlock(id, to uint32) {
	from := t.arena.set(id)
	if from == to {
		return
	}
	many := int32(0)
	if t.arena.hasMany(id) {
		many = 1
	}
	t.sets.count(to, 1, many, 0)
	if to == 0 {
		t.discard(id)
	} else {
		t.arena.setSet(id, to)
	}
	t.sets.count(from, -1, -many, 0)
}

// setName gives a record another set. Without one it is dropped.
func (t *Table) setName(ref nameRef, to uint32) {
	i := uint32(ref &^ recordFlag)
	r := t.names.records.at(i)
	from := r.set
	if from == to {
		return
	}
	t.sets.count(to, 0, 0, 1)
	r.set = to
	if to == 0 {
		t.names.drop(r.name, ref)
		t.names.records.drop(i)
	}
	t.sets.count(from, 0, 0, -1)
}

// eachBlock calls f for all entries, which f may free. Now and then it calls
// pause, which may let other writers pass; it ends, and is false, if pause is.
// What comes or goes meanwhile may be left out.
func (t *Table) eachBlock(f func(id uint32), pause func() bool) bool {
	for slab := uint32(1); slab != 0; {
		slab = t.arena.each(slab, clearSlabs, f)
		if slab != 0 && !pause() {
			return false
		}
	}
	return true
}

// eachRecord is eachBlock for records of names.
func (t *Table) eachRecord(f func(nameRef), pause func() bool) bool {
	for i := uint32(0); i < t.names.records.n; i++ {
		if t.names.records.at(i).set != 0 {
			f(nameRef(i) | recordFlag)
		}
		if i%(clearSlabs*slabSize) == clearSlabs*slabSize-1 && !pause() {
			return false
		}
	}
	return true
}
