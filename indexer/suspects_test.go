package indexer

import (
	"os"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// sure returns what a stream matches of c in gpu, and how much of that is certain.
func sure(t rapid.TB, tb *Table, c chain, id StreamID) [2]int {
	t.Helper()
	matched(t, tb, c) // all ways to ask agree
	var r Result
	tb.MatchSeq(c.seq, 0, &r)
	for _, s := range r.Streams {
		if s.Stream == id {
			return [2]int{s.Blocks[GPU], s.Sure[GPU]}
		}
	}
	return [2]int{}
}

func TestSuspects(t *testing.T) {
	c := newChain(1, 10)
	start := time.Unix(1_800_000_000, 0)
	setUp := func(t *testing.T) (*Table, *Holder) {
		x := newIndex(t, Options{})
		tb := x.Table(TableKey{"m", testBlockSize, false})
		h := tb.Open(streamA)
		t.Cleanup(func() {
			waitSwept(t, x)
			checkInvariants(t, tb)
		})
		h.Store(space(1).run(GPU, c, 0, 8))
		want(t, "before", sure(t, tb, c, streamA), [2]int{8, 8})
		h.Doubt(start)
		want(t, "after the doubt", sure(t, tb, c, streamA), [2]int{8, 0})
		want(t, "counts", h.Counts(), HolderCounts{Blocks: [NumTiers]int{8}, Suspect: 8})
		return tb, h
	}
	t.Run("stored again", func(t *testing.T) {
		tb, h := setUp(t)
		want(t, "store", h.Store(space(1).run(GPU, c, 0, 3)), StoreResult{Stored: 3})
		want(t, "match", sure(t, tb, c, streamA), [2]int{8, 3})
		want(t, "counts", h.Counts(), HolderCounts{Blocks: [NumTiers]int{8}, Suspect: 5})
		b, _ := tb.Block(c.seq[2])
		want(t, "holders", b.Holders, []BlockHolder{{Stream: streamA, Tier: GPU, Copies: 1}})
		b, _ = tb.Block(c.seq[3])
		want(t, "holders", b.Holders, []BlockHolder{{Stream: streamA, Tier: GPU, Copies: 1, Suspect: true}})
	})
	t.Run("a child is stored", func(t *testing.T) {
		tb, h := setUp(t)
		h.Store(space(1).run(GPU, c.branch(2, 4, 2), 4, 6)) // after block 3
		want(t, "match", sure(t, tb, c, streamA), [2]int{8, 4})
		h.Store(space(1).run(GPU, c, 8, 10))
		want(t, "match", sure(t, tb, c, streamA), [2]int{10, 10})
		want(t, "counts", h.Counts(), HolderCounts{Blocks: [NumTiers]int{12}})
		if n := len(tb.roster.Load().tracks); n != 0 || len(h.suspects) != 0 {
			t.Errorf("%d tracks and %d seats are left", n, len(h.suspects))
		}
	})
	t.Run("a child in cpu proves nothing", func(t *testing.T) {
		tb, h := setUp(t)
		h.Store(space(1).run(CPU, c, 8, 10))
		want(t, "match", sure(t, tb, c, streamA), [2]int{8, 0})
		var r Result
		tb.MatchSeq(c.seq, 0, &r)
		want(t, "tiers", r.Streams[0].Blocks, [NumTiers]int{8, 10, 10})
	})
	t.Run("removed", func(t *testing.T) {
		tb, h := setUp(t)
		removed, unknown := h.Remove(GPU, space(1).engines(c.seq[5:9]))
		want(t, "removed, unknown", [2]int{removed, unknown}, [2]int{3, 1})
		want(t, "match", sure(t, tb, c, streamA), [2]int{5, 0})
		if known, _ := h.Locate(CPU, space(1).engines(c.seq[7:8])); known != 1 {
			t.Error("the name of a block that went lately is not known")
		}
		h.Remove(GPU, space(1).engines(c.seq[:5]))
		want(t, "counts", h.Counts(), HolderCounts{Blocks: [NumTiers]int{0, 1, 0}})
	})
	t.Run("copies", func(t *testing.T) {
		tb, h := setUp(t)
		h.Store(space(1).run(GPU, c, 0, 1))
		h.Store(space(1).run(GPU, c, 0, 1))
		h.Doubt(start) // two copies of block 0
		h.Store(space(1).run(GPU, c, 0, 1))
		h.Remove(GPU, space(1).engines(c.seq[:1]))
		want(t, "match", sure(t, tb, c, streamA), [2]int{0, 0})
	})
	t.Run("dropped", func(t *testing.T) {
		tb, h := setUp(t)
		h.Store(space(1).run(GPU, c, 0, 4))
		h.Doubt(start.Add(time.Minute))
		h.Store(space(1).run(GPU, c, 0, 2))
		want(t, "match", sure(t, tb, c, streamA), [2]int{8, 2})
		want(t, "dropped", h.DropSuspects(start), 0)
		want(t, "dropped", h.DropSuspects(start.Add(time.Minute)), 4)
		want(t, "match", sure(t, tb, c, streamA), [2]int{4, 2})
		want(t, "dropped", h.DropSuspects(start.Add(time.Hour)), 2)
		want(t, "match", sure(t, tb, c, streamA), [2]int{2, 2})
	})
	t.Run("unsure", func(t *testing.T) {
		tb, h := setUp(t)
		h.Store(space(1).run(GPU, c, 0, 4))
		h.SetUnsure(true)
		want(t, "match", sure(t, tb, c, streamA), [2]int{8, 0})
		want(t, "counts", h.Counts(), HolderCounts{Blocks: [NumTiers]int{8}, Suspect: 8})
		h.Doubt(start.Add(time.Minute))
		h.Store(space(1).run(GPU, c, 0, 2))
		want(t, "match", sure(t, tb, c, streamA), [2]int{8, 2})
	})
	t.Run("cleared", func(t *testing.T) {
		tb, h := setUp(t)
		h.Store(space(1).run(CPU, c, 0, 2))
		h.Clear(GPU)
		want(t, "match", sure(t, tb, c, streamA), [2]int{0, 0})
		want(t, "counts", h.Counts(), HolderCounts{Blocks: [NumTiers]int{0, 2, 0}})
	})
	t.Run("retired", func(t *testing.T) {
		tb, h := setUp(t)
		h.Store(space(1).run(GPU, c, 0, 2))
		h.Retire()
		want(t, "match", sure(t, tb, c, streamA), [2]int{0, 0})
		h.Doubt(start)
		h.SetUnsure(true)
		want(t, "dropped", h.DropSuspects(start.Add(time.Hour)), 0)
	})
	t.Run("what waits is dropped", func(t *testing.T) {
		_, h := setUp(t)
		d := newChain(9, 6)
		h.Store(space(1).run(GPU, d, 3, 6))
		want(t, "counts", h.Counts(), HolderCounts{Blocks: [NumTiers]int{8}, Suspect: 8, Orphans: 3})
		h.Doubt(start)
		want(t, "counts", h.Counts(), HolderCounts{Blocks: [NumTiers]int{8}, Suspect: 8})
	})
}

// TestManySuspects: seats in every word of a set, several of a stream.
func TestManySuspects(t *testing.T) {
	x := newIndex(t, Options{})
	tb := x.Table(TableKey{"m", testBlockSize, false})
	c := newChain(1, 20)
	const streams = 90
	for i := range streams {
		h := tb.Open(StreamID{"pod", i})
		h.Store(space(i).run(GPU, c, 0, 20))
		for n := 15; n > i%4*5; n -= 5 {
			h.Doubt(time.Unix(int64(n), 0))
			h.Store(space(i).run(GPU, c, 0, n))
		}
	}
	var r Result
	tb.MatchSeq(c.seq, 0, &r)
	if len(r.Streams) != streams {
		t.Fatalf("%d streams match", len(r.Streams))
	}
	for _, s := range r.Streams {
		want := [NumTiers]int{20, 20, 20}
		if n := s.Stream.Rank%4*5 + 5; s.Stream.Rank%4 < 3 {
			want = [NumTiers]int{n, n, n}
		}
		if s.Blocks != [NumTiers]int{20, 20, 20} || s.Sure != want {
			t.Errorf("%+v, want %v to be certain", s, want)
		}
	}
	checkInvariants(t, tb)
}

// TestSuspectsAgainstEngine: streams that lose announcements, and set apart what
// they hold each time, never say of a block that it is certain which the engine
// does not have. Nor do they say more than streams that do not doubt.
func TestSuspectsAgainstEngine(t *testing.T) {
	trunk := newChain(1, 8)
	paths := []chain{trunk, trunk.branch(2, 3, 4), trunk.branch(3, 6, 5), newChain(4, 3)}
	certain, suspected := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		x, err := New(Options{})
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { x.Close() }()
		key := TableKey{"m", testBlockSize, false}
		tb := x.Table(key)
		now := time.Unix(1_800_000_000, 0)
		pools := []*pool{{space: 1, copies: map[SeqHash]int{}}, {space: 2, copies: map[SeqHash]int{}}}
		ids := []StreamID{streamA, streamB}
		for i, p := range pools {
			p.listen = []*Holder{tb.Open(ids[i])}
		}
		engine := rapid.IntRange(0, len(pools)-1)
		step := func(rt *rapid.T, deaf bool) {
			i := engine.Draw(rt, "engine")
			p := pools[i]
			heard := p.listen
			if deaf {
				p.listen = nil
			}
			c := rapid.SampledFrom(paths).Draw(rt, "prompt")
			if rapid.Bool().Draw(rt, "evict") {
				p.evict(rapid.SampledFrom(c.seq).Draw(rt, "block"))
			} else {
				n := rapid.IntRange(1, len(c.seq)).Draw(rt, "blocks")
				p.serve(chain{local: c.local[:n], seq: c.seq[:n]})
			}
			if p.listen = heard; deaf {
				heard[0].SetPartial(true)
				heard[0].Doubt(now)
			}
		}
		heard := func(rt *rapid.T) { step(rt, false) }
		rt.Repeat(map[string]func(*rapid.T){
			"heard": heard, "heard 2": heard, "heard 3": heard,
			"lost":  func(rt *rapid.T) { step(rt, true) },
			"later": func(*rapid.T) { now = now.Add(time.Minute) },
			"drop": func(rt *rapid.T) {
				pools[engine.Draw(rt, "engine")].listen[0].DropSuspects(now.Add(-time.Minute))
			},
			"unsure": func(rt *rapid.T) {
				i := engine.Draw(rt, "engine")
				pools[i].listen[0].SetUnsure(true)
				if got := sure(rt, tb, trunk, ids[i]); got[1] != 0 {
					rt.Fatalf("%d blocks are certain of a holder that is not", got[1])
				}
				pools[i].listen[0].SetUnsure(false)
			},
			"snapshot": func(rt *rapid.T) {
				y, err := New(Options{})
				if err != nil {
					rt.Fatal(err)
				}
				list, _, err := y.Restore(x.AppendSnapshot(nil))
				if err != nil || len(list) != len(pools) {
					rt.Fatal(len(list), err)
				}
				for _, r := range list {
					for i, id := range ids {
						if r.Stream == id {
							pools[i].listen[0] = r.Holder
						}
					}
				}
				waitSwept(rt, x)
				x.Close()
				x, tb = y, y.Table(key)
			},
			"": func(rt *rapid.T) {
				for _, c := range paths {
					for i, p := range pools {
						has, says := p.match(c), sure(rt, tb, c, ids[i])
						if says[1] > has || says[0] < says[1] {
							rt.Fatalf("engine %d holds %d blocks, the index says %d and is certain of %d", i, has, says[0], says[1])
						}
						certain += says[1]
						if says[0] > says[1] {
							suspected++
						}
					}
				}
				checkInvariants(rt, tb)
			},
		})
		waitSwept(rt, x)
		checkInvariants(rt, tb)
	})
	if certain == 0 || suspected == 0 {
		t.Errorf("%d blocks were certain, %d answers had suspects", certain, suspected)
	}
}

// TestSuspectsDuringMatch: blocks move out of suspicion while they are matched,
// and are there all the time.
func TestSuspectsDuringMatch(t *testing.T) {
	x := newIndex(t, Options{})
	tb := x.Table(TableKey{"m", testBlockSize, false})
	c := newChain(1, 60)
	h := tb.Open(streamA)
	h.Store(space(1).run(GPU, c, 0, 60))
	stop := make(chan struct{})
	done := make(chan int)
	go func() {
		n := 0
		defer func() { done <- n }()
		for ; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			h.Doubt(time.Unix(int64(n), 0))
			h.Store(space(1).run(GPU, c, 0, 1+n%60))
			h.Store(space(1).run(GPU, c, 0, 60))
		}
	}()
	var r Result
	for i := range 20_000 {
		tb.MatchSeq(c.seq, 0, &r)
		if len(r.Streams) != 1 || r.Streams[0].Blocks[GPU] != 60 {
			// Blocks may move more often than a match begins anew.
			if r.matching.exhausted {
				continue
			}
			t.Fatalf("match %d: %+v", i, r.Streams)
		}
	}
	close(stop)
	t.Logf("%d doubts", <-done)
}

// TestSnapshotOfVersion1: what the version before wrote is read.
func TestSnapshotOfVersion1(t *testing.T) {
	b, err := os.ReadFile("testdata/version-1.snapshot")
	if err != nil {
		t.Fatal(err)
	}
	x, holders := restore(t, b, Options{})
	now := sampleIndex(t, Options{})
	waitSwept(t, now)
	key := TableKey{Model: "m", BlockSize: testBlockSize}
	for _, c := range []chain{newChain(1, 40), newChain(1, 40).branch(2, 5, 4), newChain(5, 6)} {
		want(t, "match", matched(t, x.Table(key), c), matched(t, now.Table(key), c))
	}
	for id, h := range holders {
		if n := h.Counts().Suspect; n != 0 {
			t.Errorf("%s: %d blocks are suspect", id, n)
		}
	}
	checkInvariants(t, x.Table(key))
}
