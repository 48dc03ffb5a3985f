package enginesim

import (
	"errors"
	"slices"
	"testing"

	"github.com/kvindex/kvindex/indexer"
)

func mustPool(t testing.TB, o PoolOptions) *Pool {
	t.Helper()
	p, err := NewPool(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustRun(t testing.TB, p *Pool, req Request, wantCached int) []Event {
	t.Helper()
	cached, batches, err := p.Run(req)
	if err != nil {
		t.Fatal(err)
	}
	if cached != wantCached {
		t.Errorf("%d cached tokens of %d, want %d", cached, len(req.Tokens), wantCached)
	}
	if err := p.check(); err != nil {
		t.Error(err)
	}
	return slices.Concat(batches...)
}

// counts sums up events: blocks stored and removed on the GPU and in the host
// tier, and clears.
func counts(events []Event) (c struct{ stored, removed, cpuStored, cpuRemoved, cleared int }) {
	for _, ev := range events {
		n := len(ev.Hashes)
		switch gpu := ev.Medium == MediumGPU; {
		case ev.Kind == Cleared:
			c.cleared++
		case ev.Kind == Stored && gpu:
			c.stored += n
		case ev.Kind == Stored:
			c.cpuStored += n
		case gpu:
			c.removed += n
		default:
			c.cpuRemoved += n
		}
	}
	return c
}

var hash1337 = indexer.NewHasher(indexer.DefaultSeed)

func TestRunReuses(t *testing.T) {
	p := mustPool(t, PoolOptions{Blocks: 16})
	ev := mustRun(t, p, Request{Tokens: upTo(0, 50)}, 0)
	if len(ev) != 1 || len(ev[0].Hashes) != 3 || ev[0].HasParent || len(ev[0].Tokens) != 48 || ev[0].BlockSize != 16 {
		t.Errorf("got %+v", ev)
	}
	if ev := mustRun(t, p, Request{Tokens: upTo(0, 50)}, 48); len(ev) != 0 {
		t.Errorf("got %+v", ev)
	}
	// A prompt of whole blocks recomputes its last one: a second copy.
	ev = mustRun(t, p, Request{Tokens: upTo(0, 48)}, 32)
	if len(ev) != 1 || len(ev[0].Hashes) != 1 || !ev[0].HasParent {
		t.Errorf("got %+v", ev)
	}
	copies := 0
	for _, s := range p.Truth(hash1337) {
		copies += s.Copies
	}
	if copies != 4 || len(p.Truth(hash1337)) != 3 {
		t.Errorf("%d copies of %d blocks, want 4 of 3", copies, len(p.Truth(hash1337)))
	}
}

func TestRunGenerates(t *testing.T) {
	p := mustPool(t, PoolOptions{Blocks: 16})
	j, err := p.Begin(Request{Tokens: upTo(0, 15), Generate: 18, Output: upTo(15, 20)})
	if err != nil {
		t.Fatal(err)
	}
	var sizes []int
	for !j.Done() {
		sizes = append(sizes, len(p.Step()))
	}
	// 15 tokens of the prompt, then one a step; the 33rd is never computed.
	if want := []int{0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}; !slices.Equal(sizes, want) {
		t.Errorf("got %v", sizes)
	}
	if tokens := j.Tokens(); len(tokens) != 33 || !slices.Equal(tokens[:20], upTo(0, 20)) {
		t.Errorf("got %d tokens, %v", len(tokens), tokens)
	}
	mustRun(t, p, Request{Tokens: j.Tokens()}, 32)
	p.Finish(j) // once more is nothing
}

func TestScopesShareNothing(t *testing.T) {
	for _, mode := range []HashMode{HashUint64, HashBytes, HashSGLang} {
		p := mustPool(t, PoolOptions{Blocks: 64, Hash: mode, Tenant: "acme"})
		tokens := upTo(0, 40)
		reqs := []Request{{}, {LoRA: "a"}, {LoRA: "b"}, {Salt: "a"}, {LoRA: "a", Salt: "b"}, {LoRA: "b", Salt: "a"}}
		for _, req := range reqs {
			req.Tokens = tokens
			if ev := mustRun(t, p, req, 0); len(ev) != 1 || ev[0].LoRAName != req.LoRA || (ev[0].LoRAID == 0) != (req.LoRA == "") {
				t.Errorf("%v: got %+v", mode, ev)
			}
		}
		for _, req := range reqs {
			req.Tokens = tokens
			mustRun(t, p, req, 32)
		}
		engine := map[indexer.EngineHash]bool{}
		truth := p.Truth(hash1337)
		for _, s := range truth {
			engine[s.Engine] = true
		}
		if len(truth) != 2*len(reqs) || len(engine) != len(truth) {
			t.Errorf("%v: %d blocks under %d engine hashes, want %d", mode, len(truth), len(engine), 2*len(reqs))
		}
	}
}

func TestEvictsWhenReused(t *testing.T) {
	p := mustPool(t, PoolOptions{Blocks: 1 + 6})
	a, b := upTo(0, 48), upTo(1000, 1048)
	mustRun(t, p, Request{Tokens: a}, 0)
	if c := counts(mustRun(t, p, Request{Tokens: b}, 0)); c.removed != 0 || c.stored != 3 {
		t.Errorf("got %+v", c)
	}
	// Everything is cached, nothing in use: a third prompt takes the oldest
	// first, a's tail before its head, one event a block.
	ev := mustRun(t, p, Request{Tokens: upTo(2000, 2032)}, 0)
	if len(ev) != 3 || ev[0].Kind != Removed || len(ev[0].Hashes) != 1 || ev[2].Kind != Stored {
		t.Errorf("got %+v", ev)
	}
	mustRun(t, p, Request{Tokens: a[:17]}, 16)
	mustRun(t, p, Request{Tokens: b}, 32) // the run before took b's tail

	p = mustPool(t, PoolOptions{Blocks: 1 + 3, MergeRemoved: true})
	mustRun(t, p, Request{Tokens: a}, 0)
	if ev := mustRun(t, p, Request{Tokens: b}, 0); len(ev) != 2 || len(ev[0].Hashes) != 3 {
		t.Errorf("got %+v", ev)
	}
}

// TestOvertaking has two jobs compute one prompt: the second reuses the first
// one's chunk, is ahead of it then, and both store what follows.
func TestOvertaking(t *testing.T) {
	p := mustPool(t, PoolOptions{Blocks: 32, ChunkTokens: 16})
	var jobs []*Job
	for range 2 {
		j, err := p.Begin(Request{Tokens: upTo(0, 64)})
		if err != nil {
			t.Fatal(err)
		}
		jobs = append(jobs, j)
	}
	var all []Event
	for !p.Idle() {
		all = append(all, p.Step()...)
		if err := p.check(); err != nil {
			t.Fatal(err)
		}
	}
	if jobs[0].Cached() != 0 || jobs[1].Cached() != 16 {
		t.Errorf("cached %d and %d, want 0 and 16", jobs[0].Cached(), jobs[1].Cached())
	}
	if c := counts(all); c.stored != 7 {
		t.Errorf("got %+v, want 7 stored", c)
	}
	two := 0
	for _, s := range p.Truth(hash1337) {
		if s.Copies == 2 {
			two++
		}
	}
	if two != 3 {
		t.Errorf("%d blocks have two copies, want 3", two)
	}
}

func TestPreempts(t *testing.T) {
	p := mustPool(t, PoolOptions{Blocks: 1 + 4, BlockSize: 4})
	a, err := p.Begin(Request{Tokens: upTo(0, 8), Generate: 8})
	if err != nil {
		t.Fatal(err)
	}
	b, err := p.Begin(Request{Tokens: upTo(100, 107), Generate: 8})
	if err != nil {
		t.Fatal(err)
	}
	for !p.Idle() {
		p.Step()
		if err := p.check(); err != nil {
			t.Fatal(err)
		}
	}
	if a.Preemptions() != 0 || b.Preemptions() == 0 || len(b.Tokens()) != 15 {
		t.Errorf("preempted %d and %d times, %d tokens", a.Preemptions(), b.Preemptions(), len(b.Tokens()))
	}
}

func TestReset(t *testing.T) {
	p := mustPool(t, PoolOptions{StartupClear: true})
	j, err := p.Begin(Request{Tokens: upTo(0, 40), Generate: 2})
	if err != nil {
		t.Fatal(err)
	}
	if c := counts(p.Step()); c.cleared != 1 || c.stored != 2 {
		t.Errorf("got %+v", c)
	}
	if err := p.Reset(); !errors.Is(err, ErrInUse) {
		t.Errorf("got %v", err)
	}
	p.Finish(j)
	if err := p.Reset(); err != nil {
		t.Error(err)
	}
	if len(p.Truth(hash1337)) != 0 {
		t.Errorf("got %v", p.Truth(hash1337))
	}
	ev := mustRun(t, p, Request{Tokens: upTo(0, 40)}, 0)
	if len(ev) != 2 || ev[0].Kind != Cleared || ev[1].Kind != Stored {
		t.Errorf("got %+v", ev)
	}
}

func TestHostTier(t *testing.T) {
	p := mustPool(t, PoolOptions{Blocks: 1 + 4, CPUBlocks: 6})
	a, b := upTo(0, 49), upTo(1000, 1049)
	ev := mustRun(t, p, Request{Tokens: a}, 0)
	if c := counts(ev); c.stored != 3 || c.cpuStored != 3 {
		t.Errorf("got %+v", c)
	}
	if host := ev[len(ev)-1]; host.Medium != MediumCPU || host.BlockSize != 0 || len(host.Tokens) != 0 || host.HasParent || len(host.Hashes) != 3 {
		t.Errorf("got %+v", host)
	}
	mustRun(t, p, Request{Tokens: b}, 0)
	// The GPU has lost a, the host has it.
	ev = mustRun(t, p, Request{Tokens: a}, 48)
	if c := counts(ev); c.stored != 3 || c.cpuStored != 0 || c.removed != 3 {
		t.Errorf("got %+v", c)
	}
	// The host tier is full: its least recently used blocks leave, those of b.
	if c := counts(mustRun(t, p, Request{Tokens: upTo(2000, 2033)}, 0)); c.cpuStored != 2 || c.cpuRemoved != 2 {
		t.Errorf("got %+v", c)
	}
	mustRun(t, p, Request{Tokens: b}, 0)

	p = mustPool(t, PoolOptions{CPUBlocks: 6, OffloadTokens: true, OffloadDelay: 1, ResetCPU: true, Hash: HashSGLang})
	if c := counts(mustRun(t, p, Request{Tokens: a}, 0)); c.cpuStored != 0 {
		t.Errorf("got %+v", c)
	}
	ev = p.Step()
	if len(ev) != 1 || ev[0].Medium != MediumCPUPinned || len(ev[0].Tokens) != 48 || ev[0].BlockSize != 16 {
		t.Errorf("got %+v", ev)
	}
	if err := p.Reset(); err != nil || len(p.Truth(hash1337)) != 0 {
		t.Errorf("got %v, %v", err, p.Truth(hash1337))
	}
	// More than it can ever hold stays out of the host tier.
	if c := counts(append(mustRun(t, p, Request{Tokens: upTo(0, 7*16)}, 0), p.Step()...)); c.cpuStored != 0 {
		t.Errorf("got %+v", c)
	}
}

func TestReportsHits(t *testing.T) {
	p := mustPool(t, PoolOptions{})
	mustRun(t, p, Request{Tokens: upTo(0, 40), Report: true}, 0)
	before := p.Truth(hash1337)
	ev := mustRun(t, p, Request{Tokens: upTo(0, 50), Report: true}, 32)
	if len(ev) != 2 || len(ev[0].Hashes) != 2 || ev[0].HasParent || len(ev[1].Hashes) != 1 || !ev[1].HasParent {
		t.Errorf("got %+v", ev)
	}
	after := p.Truth(hash1337)
	for k, v := range before {
		if after[k] != v {
			t.Errorf("%+v became %+v", v, after[k])
		}
	}
}

func TestPoolRefuses(t *testing.T) {
	for _, o := range []PoolOptions{{Blocks: 1}, {BlockSize: -1}, {CPUBlocks: -1}, {Hash: 9}} {
		if _, err := NewPool(o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
	p := mustPool(t, PoolOptions{Blocks: 1 + 2})
	if _, err := p.Begin(Request{}); err == nil {
		t.Error("an empty prompt is accepted")
	}
	if _, err := p.Begin(Request{Tokens: upTo(0, 33)}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v", err)
	}
	if _, _, err := p.Run(Request{Tokens: upTo(0, 16), Generate: 18}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v", err)
	}
	mustRun(t, p, Request{Tokens: upTo(0, 16), Generate: 17}, 0)
}
