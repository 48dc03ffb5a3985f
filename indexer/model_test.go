package indexer

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// model is what an index should know, in the plainest form. It knows the place
// of every block, so it needs no parking lot: a block whose parent is unknown
// to the index is one behind a hole here, and matches the same.
type model map[StreamID]*[NumTiers]map[SeqHash]int

func newModelStream() *[NumTiers]map[SeqHash]int {
	var tiers [NumTiers]map[SeqHash]int
	for t := range tiers {
		tiers[t] = map[SeqHash]int{}
	}
	return &tiers
}

// match returns the answers of all streams that hold the first block.
func (m model) match(q []SeqHash) map[StreamID][NumTiers]int {
	got := map[StreamID][NumTiers]int{}
	for id, tiers := range m {
		var blocks [NumTiers]int
		for deepest := range blocks {
			for _, seq := range q {
				held := false
				for t := 0; t <= deepest; t++ {
					held = held || tiers[t][seq] > 0
				}
				if !held {
					break
				}
				blocks[deepest]++
			}
		}
		if blocks[NumTiers-1] > 0 {
			got[id] = blocks
		}
	}
	return got
}

// holders lists who holds what, as Walk shows it.
func (m model) holders() map[SeqHash]map[string]int {
	all := map[SeqHash]map[string]int{}
	for id, tiers := range m {
		for t, held := range tiers {
			for seq, n := range held {
				if n == 0 {
					continue
				}
				if all[seq] == nil {
					all[seq] = map[string]int{}
				}
				all[seq][fmt.Sprint(id, Tier(t))] = n
			}
		}
	}
	return all
}

// machine drives an index and a model with the same steps.
type machine struct {
	index   *Index
	table   *Table
	policy  DuplicatePolicy
	model   model
	holders map[StreamID]*Holder
	old     []*Holder // retired
	paths   []path    // root to leaf
	result  Result
	bounded bool // blocks may be refused: then nothing is parked, and it is clear what is missing
}

type path struct {
	chain
	scope ScopeKey
}

var machineStreams = []StreamID{{"pod-0", 0}, {"pod-0", 1}, {"pod-1", 0}, {"pod-2", 0}}

// spaceOf gives the last two streams one hash space.
func spaceOf(id StreamID) space { return space(min(slices.Index(machineStreams, id), 2)) }

func newMachine(x *Index) *machine {
	m := &machine{
		index:  x,
		table:  x.Table(TableKey{Model: "m", BlockSize: testBlockSize}),
		policy: x.opts.DuplicatePolicy, bounded: x.opts.MaxBlocks > 0,
		model: model{}, holders: map[StreamID]*Holder{},
	}
	hs := x.Hasher()
	for i, scope := range []ScopeKey{0, hs.Scope(Scope{LoRA: "sql"})} {
		trunk := newChain(uint64(i), 8)
		for _, c := range []chain{trunk, trunk.branch(2, 3, 4), trunk.branch(3, 1, 9), newChain(4, 3), newChain(5, 1)} {
			p := path{chain: c, scope: scope}
			p.seq = slices.Clone(p.seq)
			for j, l := range p.local {
				p.seq[j] = m.table.chain(j, p.seq[max(0, j-1)], scope, l)
			}
			m.paths = append(m.paths, p)
		}
	}
	for _, id := range machineStreams {
		m.open(id)
	}
	return m
}

func (m *machine) open(id StreamID) {
	m.holders[id] = m.table.Open(id)
	m.model[id] = newModelStream()
}

func (m *machine) add(id StreamID, tier Tier, seq SeqHash) {
	if m.policy == Set {
		m.model[id][tier][seq] = 1
	} else {
		m.model[id][tier][seq]++
	}
}

func (m *machine) steps(t *rapid.T) map[string]func(*rapid.T) {
	stream := rapid.SampledFrom(machineStreams)
	tier := rapid.SampledFrom([]Tier{GPU, GPU, GPU, CPU, Disk})
	pick := rapid.SampledFrom(m.paths)
	// part draws blocks of a path: most often from the root on.
	part := func(t *rapid.T) (p path, from, to int) {
		p = pick.Draw(t, "path")
		from = max(0, rapid.IntRange(-len(p.seq), len(p.seq)-1).Draw(t, "from"))
		if m.bounded {
			from = 0
		}
		return p, from, rapid.IntRange(from+1, len(p.seq)).Draw(t, "to")
	}
	run := func(id StreamID, tier Tier, p path, from, to int) Run {
		r := spaceOf(id).run(tier, p.chain, from, to)
		r.Scope = p.scope
		return r
	}
	store := func(t *rapid.T) {
		id, tier := stream.Draw(t, "stream"), tier.Draw(t, "tier")
		p, from, to := part(t)
		res := m.holders[id].Store(run(id, tier, p, from, to))
		if m.bounded {
			to -= res.Refused
		}
		if n := res.Stored + res.Duplicates + res.Orphaned; n != to-from || res.Dropped+res.Conflicts+res.Implied > 0 {
			t.Fatalf("%d blocks gave %+v", to-from, res)
		}
		for _, seq := range p.seq[from:to] {
			m.add(id, tier, seq)
		}
	}
	return map[string]func(*rapid.T){
		"store":       store,
		"store again": store,
		"remove": func(t *rapid.T) {
			id, tier := stream.Draw(t, "stream"), tier.Draw(t, "tier")
			p, from, to := part(t)
			seqs := slices.Clone(p.seq[from:to])
			if rapid.Bool().Draw(t, "leaf first") {
				slices.Reverse(seqs)
			}
			wantRemoved := 0
			for _, seq := range seqs {
				if m.model[id][tier][seq] > 0 {
					m.model[id][tier][seq]--
					wantRemoved++
				}
			}
			removed, unknown := m.holders[id].Remove(tier, spaceOf(id).engines(seqs))
			if removed != wantRemoved || removed+unknown != len(seqs) {
				t.Fatalf("removed %d and %d unknown, want %d of %d", removed, unknown, wantRemoved, len(seqs))
			}
		},
		"locate": func(t *rapid.T) {
			id, tier := stream.Draw(t, "stream"), tier.Draw(t, "tier")
			p := pick.Draw(t, "path")
			seq := rapid.SampledFrom(p.seq).Draw(t, "block")
			known, _ := m.holders[id].Locate(tier, []EngineHash{spaceOf(id).engine(seq)})
			here := m.model[id]
			if known == 0 && here[GPU][seq]+here[CPU][seq]+here[Disk][seq] > 0 {
				t.Fatal("a held block was not found")
			}
			if known == 1 { // also if it was removed lately
				m.add(id, tier, seq)
			}
		},
		"clear": func(t *rapid.T) {
			id, tier := stream.Draw(t, "stream"), tier.Draw(t, "tier")
			m.holders[id].Clear(tier)
			clear(m.model[id][tier])
		},
		"retire": func(t *rapid.T) {
			id := stream.Draw(t, "stream")
			m.old = append(m.old, m.holders[id])
			m.holders[id].Retire()
			m.open(id)
		},
		"late event": func(t *rapid.T) {
			if len(m.old) == 0 {
				t.Skip("nothing retired")
			}
			h := rapid.SampledFrom(m.old).Draw(t, "old")
			p, from, to := part(t)
			if res := h.Store(run(h.id, GPU, p, from, to)); res != (StoreResult{}) {
				t.Fatalf("a retired holder stored %+v", res)
			}
			h.Remove(GPU, spaceOf(h.id).engines(p.seq))
			h.Locate(CPU, spaceOf(h.id).engines(p.seq))
			h.Clear(GPU)
		},
		"snapshot": m.restart,
		"":         m.compare,
	}
}

// restart goes on with an index that was made from a snapshot of this one.
func (m *machine) restart(t *rapid.T) {
	x, err := New(m.index.opts)
	if err != nil {
		t.Fatal(err)
	}
	snapshot := m.index.AppendSnapshot([]byte("before"))[len("before"):]
	restored, refused, err := x.Restore(snapshot)
	if err != nil || refused > 0 {
		t.Fatalf("%d blocks refused, %v", refused, err)
	}
	waitSwept(t, m.index)
	m.index.Close()
	m.index, m.old = x, nil
	m.table = x.Table(m.table.key)
	for _, r := range restored {
		if r.Key != m.table.key || m.holders[r.Stream] == nil || r.Holder.Stream() != r.Stream {
			t.Fatalf("restored %+v", r)
		}
		m.holders[r.Stream] = r.Holder
	}
	if len(restored) != len(m.holders) {
		t.Fatalf("%d holders restored of %d", len(restored), len(m.holders))
	}
	checkInvariants(t, m.table)
}

// compare asks a random question.
func (m *machine) compare(t *rapid.T) {
	q := slices.Clone(rapid.SampledFrom(m.paths).Draw(t, "query").seq)
	switch rapid.IntRange(0, 3).Draw(t, "tail") {
	case 0:
		q = append(q, 1, 2)
	case 1:
		q = q[:rapid.IntRange(0, len(q)).Draw(t, "length")]
	}
	m.table.MatchSeq(q, 0, &m.result)
	want := m.model.match(q)
	if d := cmp.Diff(want, byStream(m.result)); d != "" {
		t.Fatalf("(-want +got):\n%s", d)
	}
	longest := 0
	for _, w := range want {
		longest = max(longest, w[Disk])
	}
	if s := min(len(q), longest+1); m.result.ScannedBlocks != s || m.result.TotalBlocks != len(q) {
		t.Fatalf("scanned %d of %d, want %d of %d", m.result.ScannedBlocks, m.result.TotalBlocks, s, len(q))
	}
}

// finish closes every hole, so that nothing is parked any more, and compares
// all that there is.
func (m *machine) finish(t *rapid.T) {
	for id, h := range m.holders {
		for _, p := range m.paths {
			r := spaceOf(id).run(GPU, p.chain, 0, len(p.seq))
			r.Scope = p.scope
			h.Store(r)
			for _, seq := range p.seq {
				m.add(id, GPU, seq)
			}
		}
		if n := h.Counts().Orphans; n != 0 {
			t.Fatalf("%v: %d orphans are left", id, n)
		}
	}
	got := map[SeqHash]map[string]int{}
	m.table.Walk(func(b BlockInfo) bool {
		if got[b.Seq] != nil {
			t.Fatalf("block %x was shown twice", b.Seq)
		}
		got[b.Seq] = map[string]int{}
		for _, h := range b.Holders {
			got[b.Seq][fmt.Sprint(h.Stream, h.Tier)] = h.Copies
		}
		return true
	})
	want := m.model.holders()
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("Walk (-want +got):\n%s", d)
	}
	s := m.table.Stats()
	pairs := 0
	for _, hs := range want {
		pairs += len(hs)
	}
	if s.UniqueBlocks != len(want) || s.Pairs[GPU]+s.Pairs[CPU]+s.Pairs[Disk] != pairs || s.Holders != len(m.holders) || s.OrphanBlocks != 0 {
		t.Fatalf("%+v does not count %d blocks and %d pairs", s, len(want), pairs)
	}
}

// againstModel plays a random history of a table with the given options.
func againstModel(o Options) func(*rapid.T) {
	return func(t *rapid.T) {
		x, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		m := newMachine(x)
		defer func() { m.index.Close() }()
		t.Repeat(m.steps(t))
		checkInvariants(t, m.table)
		if m.bounded {
			// Room is made for all, so that the rest is as if there were no bound.
			if n := int(m.index.quota.blocks.Load()); n > o.MaxBlocks {
				t.Fatalf("%d blocks, at most %d are allowed", n, o.MaxBlocks)
			}
			waitSwept(t, m.index) // the sweeper reads the bound
			m.index.quota.maxBlocks = 1 << 40
		}
		m.finish(t)
		waitSwept(t, m.index)
		checkInvariants(t, m.table)
	}
}

func TestAgainstModel(t *testing.T) {
	for name, o := range map[string]Options{
		"refcount": {},
		"set":      {DuplicatePolicy: Set},
		"bounded":  {MaxBlocks: 20},
	} {
		t.Run(name, func(t *testing.T) { rapid.Check(t, againstModel(o)) })
	}
}
