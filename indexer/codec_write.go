package indexer

import (
	"encoding/binary"
	"maps"
	"math/bits"
	"slices"
)

// AppendSnapshot appends what the index holds to dst: see ReadSnapshot. It takes
// about 12 ns a block. Writers of a table wait meanwhile, readers do not. For a
// snapshot that agrees with positions in streams the caller keeps the streams
// from writing.
func (x *Index) AppendSnapshot(dst []byte) []byte {
	e := &enc{b: dst}
	d := x.dir.Load()
	e.num(SnapshotVersion)
	e.hash(x.hasher.fingerprint())
	models := slices.Sorted(maps.Keys(d.byModel))
	e.int(len(models))
	for _, m := range models {
		e.str(m)
	}
	loras := slices.Sorted(maps.Keys(d.loras))
	e.int(len(loras))
	for _, name := range loras {
		e.str(name)
		e.int(len(d.loras[name]))
		for _, m := range d.loras[name] {
			e.str(m)
		}
	}
	e.int(len(d.tables))
	for _, m := range models {
		for _, t := range d.byModel[m] {
			t.encode(e)
		}
	}
	return e.b
}

// writer encodes one table.
type writer struct {
	*enc
	t       *Table
	streams []int    // by slot: number of what is there, -1: nothing that lives
	sets    []uint32 // number of the set by its id, +1; 0: not yet
	alive   []uint64 // slots that count
}

// encode appends t.
func (t *Table) encode(e *enc) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.str(t.key.Model)
	e.int(t.key.BlockSize)
	e.bool(t.key.Bigram)
	scopes := make([]ScopeKey, len(t.sharing.scopes))
	for k, id := range t.sharing.scopes {
		scopes[id-1] = k
	}
	e.int(len(scopes))
	for _, k := range scopes {
		e.hash(uint64(k))
	}
	w := &writer{enc: e, t: t, sets: make([]uint32, len(t.sets.uses))}
	holders := w.writeStreams()
	w.writeSets()
	w.writeEntries()
	w.writeParked(holders)
	w.writeLate(holders)
}

func (w *writer) writeStreams() []*Holder {
	var holders []*Holder
	w.streams = make([]int, len(w.t.slots))
	w.alive = make([]uint64, (len(w.t.slots)+63)/64)
	for slot, s := range w.t.slots {
		w.streams[slot] = -1
		if s != nil && s == s.of.seat && !s.ended.Load() {
			holders = append(holders, s.of)
		}
	}
	w.int(len(holders))
	n := 0
	number := func(s *seat) {
		w.streams[s.slot] = n
		w.alive[s.slot>>6] |= 1 << (s.slot & 63)
		n++
	}
	for _, h := range holders {
		number(h.seat)
		w.str(h.id.Instance)
		w.int(h.id.Rank)
		w.byte(byte(boolToInt(h.partial)*streamPartial | boolToInt(h.unsure)*streamUnsure))
		w.int(len(h.suspects))
		for _, s := range h.suspects {
			number(s.seat)
			w.num(uint64(max(0, s.since.UnixMilli())))
		}
	}
	return holders
}

// writeSets writes the sets that are in use, without those who have retired.
func (w *writer) writeSets() {
	at, n := w.reserve(), 0
	w.t.sets.each(func(id uint32) {
		words, set := w.t.sets.words(id)
		members := 0
		mark := len(w.b)
		w.byte(0) // room for the number of members, if that is short
		for i := range min(words, len(w.alive)) {
			for live := (set[i] | set[words+i] | set[2*words+i]) & w.alive[i]; live != 0; live &= live - 1 {
				bit := bits.TrailingZeros64(live)
				w.int(w.streams[i<<6+bit])
				w.byte(byte(set[i]>>bit&1 | set[words+i]>>bit&1<<CPU | set[2*words+i]>>bit&1<<Disk))
				members++
			}
		}
		if members == 0 {
			w.b = w.b[:mark]
			return
		}
		if members < 0x80 {
			w.b[mark] = byte(members)
		} else {
			rest := slices.Clone(w.b[mark+1:])
			w.b = w.b[:mark]
			w.int(members)
			w.b = append(w.b, rest...)
		}
		n++
		w.sets[id] = uint32(n)
	})
	w.fill(at, n)
}

// writeEntries writes the entries that somebody holds who lives. Streams wait for
// it, so what is common, a block after its parent with the same holders, is
// written without a call.
func (w *writer) writeEntries() {
	at, n := w.reserve(), 0
	t := w.t
	e := entries{records: w.recordsByBlock()}
	for slab := uint32(1); slab < t.arena.slabs; slab++ {
		s := t.arena.slab(slab)
		rare := s.many | s.more
		w.b = slices.Grow(w.b, slabSize*plainEntry)
		b, to := w.b[:cap(w.b)], len(w.b)
		for used := s.used; used != 0; used &= used - 1 {
			o := uint32(bits.TrailingZeros32(used))
			set := w.sets[s.sets[o]]
			if set == 0 {
				continue
			}
			n++
			id := slab<<slabBits + o
			if set == e.set && e.id+1 == id && s.runs>>o&1 != 0 && rare>>o&1 == 0 {
				p := b[to : to+plainEntry : to+plainEntry]
				p[0] = entryLinked | entrySameSet
				binary.LittleEndian.PutUint64(p[1:], uint64(s.keys[o]))
				binary.LittleEndian.PutUint64(p[9:], uint64(s.name[o]))
				to += plainEntry
			} else {
				w.b = b[:to]
				w.entry(&e, s, id, set)
				w.b = slices.Grow(w.b, slabSize*plainEntry)
				b, to = w.b[:cap(w.b)], len(w.b)
			}
			e.id, e.set = id, set
		}
		w.b = b[:to]
	}
	w.fill(at, n)
}

// plainEntry is how many bytes an entry takes that is linked to the one before
// and has its set: flags, sequence hash and name.
const plainEntry = 1 + 8 + 8

// entries is what writing an entry depends on.
type entries struct {
	records map[uint32][]nameRef // of blocks that have several names
	id, set uint32               // of the entry before
}

// entry writes one entry of any kind.
func (w *writer) entry(e *entries, s *slab, id, set uint32) {
	o := id & (slabSize - 1)
	var flags byte
	if e.id+1 == id && s.runs>>o&1 != 0 {
		flags |= entryLinked
	}
	if set == e.set {
		flags |= entrySameSet
	}
	if s.many>>o&1 != 0 {
		flags |= entryMany
	}
	mark := len(w.b)
	w.byte(0)
	w.hash(uint64(s.keys[o]))
	if flags&entryLinked == 0 {
		w.place(w.t.arena.place(id))
	}
	if flags&entrySameSet == 0 {
		w.num(uint64(set - 1))
	}
	if flags&entryMany == 0 {
		w.hash(uint64(s.name[o]))
		if s.more>>o&1 != 0 && w.extra(nameRef(id)) {
			flags |= entryExtra
		}
	} else if w.names(e.records[id]) {
		flags |= entryExtra
	}
	w.b[mark] = flags
}

func (w *writer) place(p place) {
	w.num(uint64(p.pos))
	w.num(uint64(p.scope))
	if p.pos > 0 {
		w.hash(uint64(p.parent))
		w.hash(uint64(p.before))
	}
}

// recordsByBlock collects the records of blocks that have several names.
func (w *writer) recordsByBlock() map[uint32][]nameRef {
	by := map[uint32][]nameRef{}
	w.t.eachRecord(func(ref nameRef) {
		if w.sets[w.t.holdersOf(ref)] != 0 {
			by[w.t.blockOf(ref)] = append(by[w.t.blockOf(ref)], ref)
		}
	}, func() bool { return true })
	return by
}

// names writes the names of one block and reports whether copies follow.
func (w *writer) names(refs []nameRef) (extra bool) {
	w.int(len(refs))
	for _, ref := range refs {
		r := w.t.names.records.at(uint32(ref &^ recordFlag))
		w.hash(uint64(r.name))
		w.hash(uint64(r.before))
		w.num(uint64(w.sets[r.set] - 1))
	}
	return w.extra(refs...)
}

// extra writes who has how many copies beyond the first, if anybody has.
func (w *writer) extra(refs ...nameRef) bool {
	mark, n := len(w.b), 0
	w.byte(0)
	for i, ref := range refs {
		for slot, number := range w.streams {
			if number < 0 || len(w.t.slots[slot].extra) == 0 {
				continue
			}
			for tier := range Tier(NumTiers) {
				more, ok := w.t.slots[slot].extra[copyKey{ref, tier}]
				if !ok || n == 0x7f {
					continue
				}
				w.int(i)
				w.int(number)
				w.byte(byte(tier))
				w.int(more)
				n++
			}
		}
	}
	if n == 0 {
		w.b = w.b[:mark]
		return false
	}
	w.b[mark] = byte(n)
	return true
}

// writeParked writes the blocks that wait for their parents.
func (w *writer) writeParked(holders []*Holder) {
	at, n := w.reserve(), 0
	for _, h := range holders {
		for _, p := range h.lot.nodes {
			if !p.held() {
				continue
			}
			n++
			w.int(w.streams[h.slot])
			w.hash(uint64(p.engine))
			w.hash(uint64(p.parent))
			w.hash(uint64(p.local))
			w.hash(uint64(p.scope))
			for _, c := range p.copies {
				w.int(int(c))
			}
		}
	}
	w.fill(at, n)
}

// writeLate writes the names of what was removed lately, the latest of a hash
// last.
func (w *writer) writeLate(holders []*Holder) {
	at, n := w.reserve(), 0
	for _, h := range holders {
		for _, l := range slices.Backward(h.late.names) {
			if !l.some {
				continue
			}
			n++
			w.int(w.streams[h.slot])
			w.hash(uint64(l.name))
			w.hash(uint64(l.seq))
			w.hash(uint64(l.before))
			w.int(int(l.pos))
			w.int(int(l.scope))
			w.bool(l.unseen)
		}
	}
	w.fill(at, n)
}
