package indexer

import (
	"fmt"
	"testing"
	"time"
)

func TestMatchByTier(t *testing.T) {
	tb := newTestTable(t, Options{})
	c := newChain(1, 10)
	a, b := tb.Open(streamA), tb.Open(streamB)
	a.Store(space(1).run(GPU, c, 0, 3))
	a.Store(space(1).run(CPU, c, 2, 6))
	a.Store(space(1).run(Disk, c, 6, 9))
	b.Store(space(2).run(Disk, c, 0, 1))
	b.Store(space(2).run(GPU, c, 1, 4))
	got := matched(t, tb, c)
	want(t, "matches", got, map[StreamID][NumTiers]int{streamA: {3, 6, 9}, streamB: {0, 0, 4}})

	var r Result
	tb.MatchTokens(c.tokens, 0, 0, &r)
	want(t, "total and scanned", [2]int{r.TotalBlocks, r.ScannedBlocks}, [2]int{10, 10})
}

func TestTotalAndScannedBlocks(t *testing.T) {
	x := newIndex(t, Options{})
	tb := x.Table(TableKey{"m", testBlockSize, false})
	c := newChain(1, 10)
	var r Result
	f := func(tokens []uint32, maxBlocks, total, scanned int) {
		t.Helper()
		tb.MatchTokens(tokens, 0, maxBlocks, &r)
		want(t, "total and scanned", [2]int{r.TotalBlocks, r.ScannedBlocks}, [2]int{total, scanned})
	}
	f(c.tokens, 0, 10, 0) // no stream at all
	h := tb.Open(streamA)
	f(c.tokens, 0, 10, 1) // a stream that holds nothing
	h.Store(space(1).run(GPU, c, 0, 6))
	f(c.tokens, 0, 10, 7)
	f(c.tokens, 6, 10, 6)
	f(c.tokens, 3, 10, 3)
	f(c.tokens, -1, 10, 7)
	f(c.tokens[:9], 0, 2, 2) // the started block does not count
	f(c.tokens[:3], 0, 0, 0)
	f(nil, 0, 0, 0)
	want(t, "streams of an empty prompt", len(r.Streams), 0)
	f(newChain(2, 5).tokens, 0, 5, 1)

	none := x.Table(TableKey{"m", 0, false})
	none.Open(streamA)
	none.MatchTokens(c.tokens, 0, 0, &r)
	want(t, "blocks of size 0", r.TotalBlocks, 0)
}

func TestMatchBigrams(t *testing.T) {
	tb := newIndex(t, Options{}).Table(TableKey{"m", 2, true})
	hs := NewHasher(DefaultSeed)
	tokens := []uint32{10, 11, 12, 13, 14, 15}
	// Pairs: (10,11) (11,12) | (12,13) (13,14) | (14,15) starts a block.
	local := []LocalHash{hs.Local([]uint32{10, 11, 11, 12}, nil), hs.Local([]uint32{12, 13, 13, 14}, nil)}
	tb.Open(streamA).Store(Run{Engine: []EngineHash{1, 2}, Local: local})
	f := func(n, total, blocks int) {
		t.Helper()
		var r Result
		tb.MatchTokens(tokens[:n], 0, 0, &r)
		want(t, "total", r.TotalBlocks, total)
		want(t, "blocks", byStream(r)[streamA][GPU], blocks)
		want(t, "sequence", len(tb.Sequence(tokens[:n], 0, nil)), total)
	}
	f(6, 2, 2)
	f(5, 2, 2)
	f(4, 1, 1)
	f(3, 1, 1)
	f(2, 0, 0)
	f(0, 0, 0)
}

func TestScopesNeverMeet(t *testing.T) {
	tb := newTestTable(t, Options{})
	hs := tb.hasher
	c := newChain(1, 6)
	scopes := []ScopeKey{0, hs.Scope(Scope{Salt: "x"}), hs.Scope(Scope{Salt: "y"}), hs.Scope(Scope{LoRA: "x"}), hs.Scope(Scope{Tenant: "x"})}
	for i, s := range scopes {
		h := tb.Open(StreamID{fmt.Sprint(i), 0})
		r := space(i).run(GPU, c, 0, i+1)
		r.Scope = s
		h.Store(r)
	}
	for i, s := range scopes {
		var r Result
		tb.MatchTokens(c.tokens, s, 0, &r)
		want(t, "matches", byStream(r), map[StreamID][NumTiers]int{{fmt.Sprint(i), 0}: {i + 1, i + 1, i + 1}})
		want(t, "sequence", tb.Sequence(c.tokens, s, nil)[0], hs.Root(s, c.local[0]))
	}
}

// TestPrefixProperty: the match of a prefix is the prefix of the match.
func TestPrefixProperty(t *testing.T) {
	tb := newTestTable(t, Options{})
	c := newChain(1, 40)
	for i, tier := range []Tier{GPU, CPU, Disk} {
		h := tb.Open(StreamID{"pod", i})
		for from := 0; from < 30; from += 3 + i {
			h.Store(space(i).run(tier, c, from, from+3)) // with holes
		}
		h.Store(space(i).run(GPU, c, 0, 5*i))
	}
	all := matched(t, tb, c)
	for n := range c.seq {
		part := chain{tokens: c.tokens[:n*testBlockSize], local: c.local[:n], seq: c.seq[:n]}
		got := matched(t, tb, part)
		var capped Result
		tb.MatchSeq(c.seq, n, &capped)
		if n > 0 {
			want(t, "match with maxBlocks", byStream(capped), got)
		}
		for id, blocks := range all {
			for tier := range blocks {
				want(t, "blocks", got[id][tier], min(n, blocks[tier]))
			}
		}
	}
}

func TestManyStreams(t *testing.T) {
	tb := newTestTable(t, Options{})
	c := newChain(1, 150)
	for i := range 150 { // several words of slots
		tb.Open(StreamID{"pod", i}).Store(space(i).run(Tier(i%NumTiers), c, 0, i+1))
	}
	got := matched(t, tb, c)
	want(t, "streams", len(got), 150)
	for id, blocks := range got {
		var w [NumTiers]int
		for tier := id.Rank % NumTiers; tier < NumTiers; tier++ {
			w[tier] = id.Rank + 1
		}
		want(t, fmt.Sprint(id), blocks, w)
	}
}

func TestSequence(t *testing.T) {
	tb := newTestTable(t, Options{})
	c := newChain(1, 5)
	want(t, "sequence", tb.Sequence(append(c.tokens, 1, 2), 0, []SeqHash{7}), append([]SeqHash{7}, c.seq...))
}

func TestMatchDoesNotAllocate(t *testing.T) {
	x := newIndex(t, Options{})
	f := func(key TableKey) {
		t.Helper()
		tb := x.Table(key)
		tokens := counting(1, 3, 20*key.BlockSize+1)
		per := 1
		if key.Bigram {
			per = 2
		}
		seq := tb.Sequence(tokens, 0, nil)
		local := make([]LocalHash, len(seq))
		var pairs []uint32
		for i := range local {
			local[i] = tb.localAt(tokens, i, &pairs)
		}
		for rank := range 70 {
			n := 1 + rank%len(seq)
			h := tb.Open(StreamID{"pod", rank})
			run := Run{Engine: space(rank).engines(seq[:n]), Local: local[:n]}
			h.Store(run)
			if rank%4 == 0 {
				h.Doubt(time.Time{})
				run.Engine, run.Local = run.Engine[:n/2], run.Local[:n/2]
				h.Store(run)
			}
		}
		var r Result
		for name, match := range map[string]func(){
			"MatchTokens": func() { tb.MatchTokens(tokens, 0, 0, &r) },
			"MatchLocal":  func() { tb.MatchLocal(local, 0, 0, &r) },
			"MatchSeq":    func() { tb.MatchSeq(seq, 0, &r) },
		} {
			match()
			want(t, "streams", len(r.Streams), 70)
			if n := testing.AllocsPerRun(50, match); n != 0 {
				t.Errorf("%s with %+v (%d tokens a block) allocates %v times", name, key, per*key.BlockSize, n)
			}
		}
	}
	f(TableKey{"m", 16, false})
	f(TableKey{"m", 64, false})
	f(TableKey{"m", 784, false})
	f(TableKey{"m", 16, true})
	f(TableKey{"m", 256, true})
}
