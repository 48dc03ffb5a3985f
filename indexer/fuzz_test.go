package indexer

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzHistory plays the history that the input stands for, four bytes a step, on
// an index and on a model of it, and compares what they answer after each step.
func FuzzHistory(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 1))
	for n := 1; n <= 512; n *= 2 {
		seed := make([]byte, 4*n)
		for i := range seed {
			seed[i] = byte(rng.Uint32())
		}
		f.Add(byte(0), seed)
		f.Add(byte(12), seed)
	}
	f.Add(byte(0), []byte{0, 0, 2, 7, 0, 0, 0, 1, 5, 0, 0, 2, 0, 0, 0, 7}) // a parent that comes late; a hole
	f.Add(byte(0), []byte{0, 0, 0, 7, 0, 1, 0, 7, 7, 0, 0, 0, 0, 0, 0, 3}) // a restart
	f.Fuzz(func(t *testing.T, bound byte, steps []byte) {
		x, err := New(Options{MaxBlocks: int(bound)})
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		m := newMachine(x)
		for ; len(steps) >= 4 && !t.Failed(); steps = steps[4:] {
			m.fuzzStep(t, [4]byte(steps))
		}
		checkInvariants(t, m.table)
		waitSwept(t, x)
		checkInvariants(t, m.table)
	})
}

// fuzzStep plays one step. With a bound every run begins at the root, so that
// nothing is parked, and what is refused is clear.
func (m *machine) fuzzStep(t *testing.T, b [4]byte) {
	id := machineStreams[int(b[1])%len(machineStreams)]
	tier := Tier(b[1] / 16 % NumTiers)
	p := m.paths[int(b[2])%len(m.paths)]
	from := int(b[2]/16) % len(p.seq)
	if m.bounded {
		from = 0
	}
	to := from + 1 + int(b[3])%(len(p.seq)-from)
	h, have := m.holders[id], m.model[id]
	names := spaceOf(id).engines(p.seq[from:to])
	switch b[0] % 10 {
	default:
		r := spaceOf(id).run(tier, p.chain, from, to)
		r.Scope = p.scope
		res := h.Store(r)
		to -= res.Refused
		if res.Stored+res.Duplicates+res.Orphaned != to-from {
			t.Errorf("%d blocks gave %+v", to-from, res)
		}
		for _, seq := range p.seq[from:to] {
			m.add(id, tier, seq)
		}
	case 5, 6:
		h.Remove(tier, names)
		for _, seq := range p.seq[from:to] {
			have[tier][seq] = max(0, have[tier][seq]-1)
		}
	case 7:
		h.Retire()
		m.open(id)
	case 8:
		h.Clear(tier)
		clear(have[tier])
	case 9:
		if known, _ := h.Locate(tier, names[:1]); known == 1 {
			m.add(id, tier, p.seq[from])
		}
	}
	m.table.MatchSeq(p.seq, 0, &m.result)
	if d := cmp.Diff(m.model.match(p.seq), byStream(m.result)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
