package indexer

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// TestSetTable compares interned sets with plain ones.
func TestSetTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type member struct {
			slot int
			tier Tier
		}
		st := sets{mem: newMeter()}
		const blocks = 4
		var have [blocks]uint32
		var model [blocks]map[member]bool
		for i := range model {
			model[i] = map[member]bool{}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			i := rapid.IntRange(0, blocks-1).Draw(t, "block")
			m := member{rapid.SampledFrom([]int{0, 1, 63, 64, 70, 200}).Draw(t, "slot"), Tier(rapid.IntRange(0, NumTiers-1).Draw(t, "tier"))}
			old := have[i]
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0, 1:
				have[i] = st.with(old, m.slot, m.tier)
				model[i][m] = true
			case 2:
				have[i] = st.without(old, m.slot, 1<<m.tier)
				delete(model[i], m)
			case 3:
				have[i] = st.without(old, m.slot, 1<<NumTiers-1)
				for tier := range Tier(NumTiers) {
					delete(model[i], member{m.slot, tier})
				}
			}
			st.count(have[i], 1, 0, 0)
			st.count(old, -1, 0, 0)
			if rapid.IntRange(0, 9).Draw(t, "reclaim") == 0 {
				st.reclaim()
			}

			distinct := map[uint32]bool{}
			for i, s := range have {
				n := 0
				for slot := range 256 {
					for tier := range Tier(NumTiers) {
						if st.has(s, slot, tier) != model[i][member{slot, tier}] {
							t.Fatalf("slot %d in %v is %v", slot, tier, st.has(s, slot, tier))
						}
						if st.has(s, slot, tier) {
							n++
						}
					}
				}
				if (s == 0) != (n == 0) {
					t.Fatalf("a set of %d members has id %d", n, s)
				}
				if s != 0 {
					distinct[s] = true
				}
				for j, o := range have {
					if equal := len(model[i]) == len(model[j]) && subset(model[i], model[j]); equal != (s == o) {
						t.Fatalf("sets %d and %d are equal: %v, one id: %v", i, j, equal, s == o)
					}
				}
			}
			if st.live != len(distinct) {
				t.Fatalf("%d sets, want %d", st.live, len(distinct))
			}
		}
	})
}

func subset[K comparable](a, b map[K]bool) bool {
	for k := range a {
		if !b[k] {
			return false
		}
	}
	return true
}

// TestSetsAreReclaimed: staggered prefixes of many streams make a set for every
// end, over and over. What is left depends on what is held, not on what was.
func TestSetsAreReclaimed(t *testing.T) {
	x := newIndex(t, Options{})
	tb := x.Table(TableKey{"m", testBlockSize, false})
	const streams, turns = 130, 6
	rng := rand.New(rand.NewPCG(1, 1))
	ids := 0
	for turn := range turns {
		c := newChain(uint64(turn), streams)
		hs := make([]*Holder, streams)
		for i := range hs {
			hs[i] = tb.Open(StreamID{"pod", i})
			hs[i].Store(space(i).run(Tier(turn%NumTiers), c, 0, i+1))
		}
		s := tb.Stats()
		if s.Sets > 2*streams { // of blocks, and of their names
			t.Fatalf("%d sets for %d blocks", s.Sets, streams)
		}
		rng.Shuffle(streams, func(i, j int) { hs[i], hs[j] = hs[j], hs[i] })
		for i, h := range hs {
			if i%2 == 0 {
				for _, seq := range c.seq {
					h.Remove(Tier(turn%NumTiers), []EngineHash{space(h.id.Rank).engine(seq)})
				}
			}
			h.Retire()
		}
		waitSwept(t, x)
		s = tb.Stats()
		want(t, "sets, blocks, slots", [3]int{s.Sets, s.UniqueBlocks, len(tb.slots)}, [3]int{})
		if turn == 1 {
			ids = len(tb.sets.uses)
		}
	}
	if n := len(tb.sets.uses); n > 2*ids {
		t.Errorf("room for %d sets, %d after two turns", n, ids)
	}
}

// newMeter makes a meter without bounds.
func newMeter() *meter { return &meter{model: &quota{}, all: &quota{}} }
