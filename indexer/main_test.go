package indexer

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newIndex makes an index that is swept, checked and closed when the test ends.
func newIndex(t testing.TB, o Options) *Index {
	t.Helper()
	x, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			waitSwept(t, x)
			for _, tb := range x.dir.Load().tables {
				checkInvariants(t, tb)
			}
		}
		x.Close()
	})
	return x
}

const testBlockSize = 4

func newTestTable(t testing.TB, o Options) *Table {
	t.Helper()
	return newIndex(t, o).Table(TableKey{Model: "m", BlockSize: testBlockSize})
}

// waitSwept waits until no retired holder is left.
func waitSwept(t rapid.TB, x *Index) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
		left := 0
		for _, s := range x.Stats().Tables {
			left += s.Retired
		}
		if left == 0 {
			return
		}
	}
	t.Fatal("retired holders are not swept")
}

// chain is a prompt of full blocks, with its hashes.
type chain struct {
	tokens []uint32
	local  []LocalHash
	seq    []SeqHash
}

// newChain makes the chain of n random blocks.
func newChain(seed uint64, n int) chain {
	rng := rand.New(rand.NewPCG(seed, 1))
	tokens := make([]uint32, n*testBlockSize)
	for i := range tokens {
		tokens[i] = rng.Uint32N(150_000)
	}
	return chainOf(tokens)
}

func chainOf(tokens []uint32) chain {
	hs := NewHasher(DefaultSeed)
	c := chain{tokens: tokens}
	for i := 0; i+testBlockSize <= len(tokens); i += testBlockSize {
		l := hs.Local(tokens[i:i+testBlockSize], nil)
		if i == 0 {
			c.seq = append(c.seq, hs.Root(0, l))
		} else {
			c.seq = append(c.seq, hs.Next(c.seq[len(c.seq)-1], l))
		}
		c.local = append(c.local, l)
	}
	return c
}

// branch is the first n blocks of c, followed by n random ones.
func (c chain) branch(seed uint64, at, n int) chain {
	return chainOf(append(slices.Clone(c.tokens[:at*testBlockSize]), newChain(seed, n).tokens...))
}

// space is the way in which an engine hashes blocks: engines with equal spaces
// give equal blocks equal hashes.
type space uint64

func (s space) engine(seq SeqHash) EngineHash {
	return EngineHash(NewHasher(uint64(s)+7).Next(seq, 1))
}

func (s space) engines(seq []SeqHash) []EngineHash {
	es := make([]EngineHash, len(seq))
	for i := range seq {
		es[i] = s.engine(seq[i])
	}
	return es
}

// run is the blocks from, ..., to-1 of c as an engine announces them.
func (s space) run(t Tier, c chain, from, to int) Run {
	r := Run{Tier: t, Engine: s.engines(c.seq[from:to]), Local: c.local[from:to]}
	if from > 0 {
		r.Parent, r.HasParent = s.engine(c.seq[from-1]), true
	}
	return r
}

// matched returns what each stream matches of c.
func matched(t rapid.TB, tb *Table, c chain) map[StreamID][NumTiers]int {
	t.Helper()
	var byTokens, byLocal, bySeq Result
	tb.MatchTokens(c.tokens, 0, 0, &byTokens)
	tb.MatchLocal(c.local, 0, 0, &byLocal)
	tb.MatchSeq(c.seq, 0, &bySeq)
	got := byStream(byTokens)
	if d := cmp.Diff(got, byStream(byLocal)); d != "" {
		t.Fatalf("MatchTokens and MatchLocal differ:\n%s", d)
	}
	if d := cmp.Diff(got, byStream(bySeq)); d != "" {
		t.Fatalf("MatchTokens and MatchSeq differ:\n%s", d)
	}
	return got
}

func byStream(r Result) map[StreamID][NumTiers]int {
	got := map[StreamID][NumTiers]int{}
	for _, s := range r.Streams {
		got[s.Stream] = s.Blocks
	}
	return got
}

// wantGPU checks how many blocks of c the stream matches in gpu.
func wantGPU(t testing.TB, tb *Table, c chain, id StreamID, want int) {
	t.Helper()
	if got := matched(t, tb, c)[id][GPU]; got != want {
		t.Errorf("%v matches %d blocks in gpu, want %d", id, got, want)
	}
}

func want[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

var streamA, streamB, streamC = StreamID{Instance: "a"}, StreamID{Instance: "b"}, StreamID{Instance: "c", Rank: 1}
