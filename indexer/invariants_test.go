package indexer

import (
	"slices"

	"pgregory.net/rapid"
)

// checkInvariants recounts everything that tb keeps twice.
func checkInvariants(t rapid.TB, tb *Table) {
	t.Helper()
	tb.mu.Lock()
	defer tb.mu.Unlock()

	// What names and blocks say, for the live.
	type hold struct {
		ref  nameRef
		slot int
		tier Tier
	}
	names := map[hold]int{}  // copies by name
	blocks := map[hold]int{} // by block
	perName := map[EngineHash]int{}
	uses := make([]setUse, len(tb.sets.uses))
	live := func(slot int) *seat {
		if slot >= len(tb.slots) || tb.slots[slot] == nil || tb.slots[slot].ended.Load() {
			return nil
		}
		return tb.slots[slot]
	}
	count := func(into map[hold]int, ref nameRef, set uint32) {
		words, _ := tb.sets.words(set)
		for slot := range 64 * words {
			s := live(slot)
			for tier := range Tier(NumTiers) {
				if !tb.sets.has(set, slot, tier) {
					continue
				}
				if slot >= len(tb.slots) || tb.slots[slot] == nil {
					t.Errorf("%x is held by slot %d, which is nobody's", ref, slot)
				}
				if s != nil {
					into[hold{ref, slot, tier}] = 1 + s.extra[copyKey{ref, tier}]
				}
			}
		}
	}
	always := func() bool { return true }
	entries := 0
	tb.eachBlock(func(id uint32) {
		entries++
		set := tb.arena.set(id)
		if set == 0 {
			t.Errorf("block %d has no set", id)
		}
		uses[set].blocks++
		count(blocks, nameRef(id), set)
		if tb.arena.hasMany(id) {
			uses[set].many++
		} else {
			perName[tb.nameOf(nameRef(id))]++
			count(names, nameRef(id), set)
			checkFindable(t, tb, nameRef(id))
		}
		if got := tb.find(tb.arena.key(id)); got != id {
			t.Errorf("block %d is found at %d", id, got)
		}
	}, always)
	recs := 0
	tb.eachRecord(func(ref nameRef) {
		recs++
		r := tb.names.records.at(uint32(ref &^ recordFlag))
		uses[r.set].records++
		perName[r.name]++
		count(names, ref, r.set)
		checkFindable(t, tb, ref)
		if there := tb.arena.isUsed(r.block) && tb.arena.key(r.block) == r.seq; !there {
			for k := range names {
				if k.ref == ref {
					t.Errorf("record %x is of a block that is not there", ref)
				}
			}
		}
	}, always)
	if recs != tb.names.records.len() {
		t.Errorf("%d records, %d counted", recs, tb.names.records.len())
	}
	for e, n := range perName {
		if n == 1 {
			n = 0
		}
		if tb.names.shared[e] != n {
			t.Errorf("name %x has %d meanings, %d counted", e, n, tb.names.shared[e])
		}
	}
	for e := range tb.names.shared {
		if perName[e] < 2 {
			t.Errorf("name %x is thought ambiguous", e)
		}
	}

	// What the holders say.
	waits := map[EngineHash]map[*Holder]bool{}
	for slot, s := range tb.slots {
		if s == nil {
			continue
		}
		h := s.of
		if s.slot != slot {
			t.Errorf("the seat of slot %d stands in slot %d", s.slot, slot)
		}
		if s.ended.Load() {
			continue
		}
		if h.retired.Load() || !slices.Contains(h.seats(), s) {
			t.Errorf("%v has lost the seat in slot %d, which has not ended", h.id, slot)
		}
		for k, n := range s.extra {
			got, ok := blocks[hold{k.ref, slot, k.tier}]
			if k.ref&recordFlag != 0 {
				got, ok = names[hold{k.ref, slot, k.tier}]
			}
			if !ok || got != n+1 || n < 1 {
				t.Errorf("%v has %d extra copies of %x, which it holds %d times", h.id, n, k.ref, got)
			}
		}
		if s != h.seat {
			if s.blocks() == 0 {
				t.Errorf("%v keeps a seat for suspects, and has none there", h.id)
			}
			continue
		}
		checkLate(t, h)
		checkLot(t, h)
		for e := range h.lot.kids {
			if h.lot.nodes[e] == nil {
				if waits[e] == nil {
					waits[e] = map[*Holder]bool{}
				}
				waits[e][h] = true
			}
		}
		for o, r := range h.relations {
			if o.retired.Load() || o.relations[h] != r {
				t.Errorf("%v and %v disagree about their relation, or are retired", h.id, o.id)
			}
		}
	}
	for k := range names {
		e, s := tb.nameOf(k.ref), tb.slots[k.slot]
		for _, o := range s.of.seats() {
			for _, ref := range tb.heldRefs(e, o.slot) {
				if o != s && o.copies(ref, k.tier) > 0 {
					t.Errorf("%v has %x in %v both in slot %d and in %d", s.of.id, e, k.tier, s.slot, o.slot)
				}
			}
		}
	}

	// The sums.
	byBlock := map[hold]int{}
	for k, c := range names {
		byBlock[hold{nameRef(tb.blockOf(k.ref)), k.slot, k.tier}] += c
	}
	held := make([][NumTiers]int, len(tb.slots))
	for k, c := range blocks {
		held[k.slot][k.tier]++
		if byBlock[k] != c {
			t.Errorf("%v has %d copies, %d under its names", k, c, byBlock[k])
		}
	}
	if len(byBlock) != len(blocks) {
		t.Errorf("blocks say %d pairs, names %d", len(blocks), len(byBlock))
	}
	for slot := range tb.slots {
		s := live(slot)
		if s == nil {
			continue
		}
		for tier, n := range held[slot] {
			if got := int(s.held[tier].Load()); got != n {
				t.Errorf("%v counts %d blocks in %v, has %d", s.of.id, got, Tier(tier), n)
			}
		}
	}
	inUse := 0
	for id, u := range uses {
		if u != tb.sets.uses[id] {
			t.Errorf("set %d has %+v uses, %+v counted", id, u, tb.sets.uses[id])
		}
		if u.total() > 0 {
			inUse++
		}
	}
	if inUse != tb.sets.live {
		t.Errorf("%d sets, %d counted", inUse, tb.sets.live)
	}
	if entries != tb.arena.count {
		t.Errorf("%d entries, %d counted", entries, tb.arena.count)
	}
	checkArena(t, tb)
	checkMemory(t, tb)

	// Who is to be told what.
	for e, hs := range waits {
		for h := range hs {
			found := false
			for _, w := range tb.sharing.waiting[e] {
				found = found || w == h
			}
			if !found {
				t.Errorf("%v waits for %x and would not be told", h.id, e)
			}
		}
	}
	for e, hs := range tb.sharing.waiting {
		for _, h := range hs {
			if h.lot.kids[e] == nil && !h.retired.Load() {
				t.Errorf("%v would be told about %x in vain", h.id, e)
			}
		}
	}
	if len(tb.sharing.learnt)+len(tb.sharing.proven) > 0 {
		t.Error("news was left untold")
	}
}

// checkLot checks that h's lot is a forest without dead ends.
func checkLot(t rapid.TB, h *Holder) {
	t.Helper()
	inKids := 0
	for e, first := range h.lot.kids {
		if a, ok, _ := h.own(e); ok && !a.unseen {
			t.Errorf("%v: %x is known, and blocks wait under it", h.id, e)
		}
		for n := first; n != nil; n = n.next {
			inKids++
			if n.parent != e || h.lot.nodes[n.engine] != n {
				t.Errorf("%v: parked %x is in the wrong place", h.id, n.engine)
			}
		}
	}
	if inKids != len(h.lot.nodes) || inKids != int(h.parked.Load()) {
		t.Errorf("%v: %d parked blocks, %d under parents, %d counted", h.id, len(h.lot.nodes), inKids, h.parked.Load())
	}
	for e, n := range h.lot.nodes {
		if h.holds(e) {
			t.Errorf("%v: %x is an alias and parked", h.id, e)
		}
		if !n.held() && h.lot.kids[e] == nil {
			t.Errorf("%v: parked %x is kept for nothing", h.id, e)
		}
		steps := 0
		for up := h.lot.nodes[n.parent]; up != nil; up = h.lot.nodes[up.parent] {
			if steps++; steps > len(h.lot.nodes) {
				t.Fatalf("%v: cycle over %x", h.id, e)
			}
		}
	}
}

// checkFindable checks that a name leads to ref.
func checkFindable(t rapid.TB, tb *Table, ref nameRef) {
	t.Helper()
	found := false
	tb.refs(tb.nameOf(ref), func(r nameRef) bool {
		found = r == ref
		return !found
	})
	if !found {
		t.Errorf("ref %x is not found under its name", ref)
	}
}

// checkLate checks that late names are found, and are not held.
func checkLate(t rapid.TB, h *Holder) {
	t.Helper()
	h.late.each(func(l *lateName) bool {
		if h.late.get(l.name) != l {
			t.Errorf("%v: late name %x is not found, or is there twice", h.id, l.name)
		}
		if h.holds(l.name) {
			t.Errorf("%v: late name %x is held", h.id, l.name)
		}
		return true
	})
}

// checkArena checks the slabs: which are empty, what is linked, and that there
// is a place for each entry.
func checkArena(t rapid.TB, tb *Table) {
	t.Helper()
	a := &tb.arena
	empty := map[uint32]bool{}
	for _, s := range a.empty {
		empty[s] = true
	}
	if len(empty) != len(a.empty) {
		t.Error("a slab is twice among the empty")
	}
	heads := 0
	for n := uint32(1); n < a.slabs; n++ {
		s := a.slab(n)
		links := uint32(s.runs)
		if (s.used == 0) != empty[n] {
			t.Errorf("slab %d has entries %x, is among the empty: %v", n, s.used, empty[n])
		}
		if links&^s.used != 0 || s.many&^s.used != 0 || links&1 != 0 {
			t.Errorf("slab %d has entries %x, links %x, names %x", n, s.used, links, s.many)
		}
		for o := range uint32(slabSize) {
			id := n<<slabBits + o
			if (s.keys[o] != 0) != (s.used>>o&1 != 0) {
				t.Errorf("entry %d: used %v, key %x", id, s.used>>o&1 != 0, s.keys[o])
			}
			if s.used>>o&1 == 0 {
				continue
			}
			p := a.place(id)
			if links>>o&1 == 0 {
				heads++
				if o > 0 && s.used>>(o-1)&1 != 0 && p.pos > 0 && p.parent == s.keys[o-1] && p.before == s.name[o-1] {
					t.Errorf("entry %d is not linked to its parent", id)
				}
			} else if s.used>>(o-1)&1 == 0 || a.place(id-1).pos+1 != p.pos {
				t.Errorf("entry %d is linked to what is not before it", id)
			}
		}
	}
	if heads != a.heads.len() {
		t.Errorf("%d places, %d counted", heads, a.heads.len())
	}
}

// checkMemory recounts what the table takes.
func checkMemory(t rapid.TB, tb *Table) {
	t.Helper()
	n := int64(len(tb.arena.all))*chunkBytes + tb.arena.heads.bytes() + tb.names.records.bytes() +
		tb.index.bytes() + tb.names.index.bytes() +
		int64(len(tb.sets.uses))*setBytes + 4*int64(len(tb.sets.intern)) + int64(len(tb.sets.memo))*stepBytes
	if p := tb.sets.pool.Load(); p != nil {
		for _, c := range p.chunks {
			n += c.bytes()
		}
	}
	for _, s := range tb.slots {
		if s == nil {
			continue
		}
		n += int64(len(s.extra)) * bytesPerExtra
		if h := s.of; s == h.seat {
			n += h.late.bytes() + int64(len(h.lot.nodes))*bytesPerOrphan
		}
	}
	if got := tb.mem.bytes.Load(); got != n {
		t.Errorf("%d bytes, %d counted", n, got)
	}
	all := int64(0)
	for i := range tb.index.segments {
		for _, x := range []*buckets{&tb.index, &tb.names.index} {
			s := x.segments[i].Load()
			if s == nil {
				continue
			}
			ids, marks := 0, 0
			for j := range s.b {
				for _, tag := range s.b[j].tags {
					if tag != 0 {
						ids++
					}
				}
				if s.b[j].ids[bucketSize-1]&overflow != 0 {
					marks++
				}
			}
			if ids != s.count || marks != s.marks {
				t.Errorf("segment %d has %d ids and %d marks, %d and %d counted", i, ids, marks, s.count, s.marks)
			}
			all += int64(ids)
		}
	}
	if want := int64(tb.arena.count+tb.names.records.len()) + int64(tb.arena.count) - int64(countMany(tb)); all != want {
		t.Errorf("%d ids in buckets, want %d", all, want)
	}
}

// countMany returns how many entries have records of names.
func countMany(tb *Table) int {
	n := 0
	tb.eachBlock(func(id uint32) {
		if tb.arena.hasMany(id) {
			n++
		}
	}, func() bool { return true })
	return n
}
