package indexer

import "pgregory.net/rapid"

// checkInvariants recounts everything that tb keeps twice.
func checkInvariants(t rapid.TB, tb *Table) {
	t.Helper()
	tb.mu.Lock()
	defer tb.mu.Unlock()

	// What the holders say.
	type hold struct {
		seq  SeqHash
		slot int
		tier Tier
	}
	copies := map[hold]int{}
	waits := map[EngineHash]map[*Holder]bool{}
	for slot, h := range tb.slots {
		if h == nil {
			continue
		}
		if h.slot != slot {
			t.Errorf("holder of slot %d stands in slot %d", h.slot, slot)
		}
		count := func(e EngineHash, a alias) {
			for tier, c := range a.copies {
				if c > 0 {
					copies[hold{a.seq, slot, Tier(tier)}] += int(c)
				}
			}
			if h.lot.nodes[e] != nil {
				t.Errorf("%v: %x is an alias and parked", h.id, e)
			}
		}
		for e, a := range h.aliases.m {
			count(e, a)
		}
		for e, more := range h.aliases.more {
			if a := h.aliases.m[e]; !a.held() || len(more) == 0 {
				t.Errorf("%v: ambiguous %x does not name two held blocks", h.id, e)
			}
			for _, a := range more {
				count(e, a)
				if !a.held() {
					t.Errorf("%v: further block of %x is not held", h.id, e)
				}
			}
		}
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
			if h.retired.Load() || o.retired.Load() || o.relations[h] != r {
				t.Errorf("%v and %v disagree about their relation, or are retired", h.id, o.id)
			}
		}
	}

	// The holders' sums.
	held := make([][NumTiers]int, len(tb.slots))
	for k, c := range copies {
		held[k.slot][k.tier]++
		if got := tb.slots[k.slot].extra[copyKey{k.seq, k.tier}]; got != c-1 {
			t.Errorf("%v has %d copies, %d of them extra", k, c, got)
		}
	}
	for slot, h := range tb.slots {
		if h == nil {
			continue
		}
		for tier, n := range held[slot] {
			if got := int(h.held[tier].Load()); got != n {
				t.Errorf("%v counts %d blocks in %v, has %d", h.id, got, Tier(tier), n)
			}
		}
		for k, n := range h.extra {
			if copies[hold{k.seq, slot, k.tier}] != n+1 {
				t.Errorf("%v has %d extra copies of a block it holds %d times", h.id, n, copies[hold{k.seq, slot, k.tier}])
			}
		}
	}

	// What the blocks say.
	refs := map[*holderSet]int{}
	pairs := 0
	for i := range tb.blocks.shards {
		for seq, b := range tb.blocks.shards[i].m {
			set := tb.blocks.sets.get(b.set)
			if set == nil {
				t.Fatalf("block %x has no set", seq)
			}
			refs[set]++
			for slot := range 64 * set.words {
				for tier := Tier(0); tier < NumTiers; tier++ {
					if set.has(slot, tier) {
						pairs++
						if copies[hold{seq, slot, tier}] == 0 {
							t.Errorf("block %x is held by slot %d in %v, which knows nothing of it", seq, slot, tier)
						}
					}
				}
			}
		}
	}
	if pairs != len(copies) {
		t.Errorf("blocks say %d pairs, holders %d", pairs, len(copies))
	}
	n := 0
	tb.blocks.sets.each(func(s *holderSet) {
		n++
		if s.refs != refs[s] || s.refs == 0 {
			t.Errorf("set %d has %d references, %d blocks", s.id, s.refs, refs[s])
		}
	})
	if n != len(refs) || n != tb.blocks.sets.live {
		t.Errorf("%d sets, %d counted, %d in use", n, tb.blocks.sets.live, len(refs))
	}

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
			if h.lot.kids[e] == nil {
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
		if a, ok := h.aliases.m[e]; ok && !a.unseen {
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
