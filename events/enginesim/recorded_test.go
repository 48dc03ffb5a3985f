package enginesim

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/kvindex/kvindex/indexer"
)

// replayRequests runs the requests that a recording's pod got, one after the
// other, through a pool of the same size, and returns the batches and how many
// answers about cached tokens were the engine's own.
func replayRequests(t *testing.T, rec *Recording, pod string, o PoolOptions) (batches [][]Event, right, wrong int) {
	t.Helper()
	newPool := func() *Pool {
		p, err := NewPool(o)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := newPool()
	for _, s := range rec.Steps {
		switch s := s.(type) {
		case Restart:
			if s.Pod == pod {
				p = newPool()
			}
		case Ask:
			if s.Pod != pod {
				continue
			}
			if reset := strings.HasPrefix(rec.Name, "hand_") && s.ID == "r14"; reset || s.Endpoint == "/reset_prefix_cache" {
				if err := p.Reset(); err != nil {
					t.Fatal(err)
				}
				if reset { // the driver made a step of it
					batches = append(batches, p.Step())
				}
			}
			if len(s.PromptTokens) == 0 {
				continue
			}
			req := Request{Tokens: s.PromptTokens, Salt: s.Salt}
			if len(s.Outputs) > 0 {
				req.Output, req.Generate = s.Outputs[0], len(s.Outputs[0])
			}
			cached, bs, err := p.Run(req)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.check(); err != nil {
				t.Fatal(err)
			}
			batches = append(batches, bs...)
			if !s.HasCached {
				continue
			}
			if right++; cached != s.CachedTokens {
				right, wrong = right-1, wrong+1
			}
		}
	}
	return batches, right, wrong
}

func recordedBatches(t *testing.T, rec *Recording, pod string) (batches []Batch, payloads [][]byte) {
	t.Helper()
	for _, s := range rec.Steps {
		if p, ok := s.(Publish); ok && p.Pod == pod {
			batches = append(batches, decodeBatch(t, p.Payload))
			payloads = append(payloads, p.Payload)
		}
	}
	return batches, payloads
}

// TestPoolEqualsEngine replays the requests of sequential recordings: the pool
// publishes what vLLM published, every byte where hashes can be computed, and
// says the same of cached tokens.
func TestPoolEqualsEngine(t *testing.T) {
	f := func(name string, e Encoding, o PoolOptions) {
		t.Helper()
		rec := loadRecording(t, name)
		o.HashSeed, o.UntaggedKeys = "0", true
		mine, right, wrong := replayRequests(t, rec, "pod-0", o)
		theirs, payloads := recordedBatches(t, rec, "pod-0")
		if len(mine) != len(theirs) || wrong != 0 {
			t.Fatalf("%s: %d batches, want %d; %d of %d answers are wrong", name, len(mine), len(theirs), wrong, right+wrong)
		}
		for i, events := range mine {
			b := Batch{Time: theirs[i].Time, Events: events}
			if got := e.AppendBatch(nil, b); !bytes.Equal(got, payloads[i]) {
				t.Fatalf("%s: batch %d is\n%x, want\n%x", name, i, got, payloads[i])
			}
		}
	}
	f("hand_v0.14.1", R5, PoolOptions{Blocks: 40, QueueEmpty: true})
	f("hand_v0.16.0", R5, PoolOptions{Blocks: 40, QueueEmpty: true})
	f("hand_v0.20.2", R7, PoolOptions{Blocks: 40, QueueEmpty: true})
	f("hand_v0.22.1", R8, PoolOptions{Blocks: 40, QueueEmpty: true})
	f("hand_v0.24.0", R9, PoolOptions{Blocks: 40})
}

// TestPoolEqualsServer does the same with a live `vllm serve`, whose hashes
// cannot be computed: each has to stand for one of ours, and for no other,
// everywhere.
func TestPoolEqualsServer(t *testing.T) {
	rec := loadRecording(t, "demo")
	f := func(pod string) {
		t.Helper()
		mine, right, wrong := replayRequests(t, rec, pod, PoolOptions{Blocks: 200})
		theirs, _ := recordedBatches(t, rec, pod)
		if len(mine) != len(theirs) || wrong != 0 {
			t.Fatalf("%s: %d batches, want %d; %d of %d answers are wrong", pod, len(mine), len(theirs), wrong, right+wrong)
		}
		events := 0
		names := newRenaming()
		for i := range mine {
			if len(mine[i]) != len(theirs[i].Events) {
				t.Fatalf("%s: batch %d has %d events, want %d", pod, i, len(mine[i]), len(theirs[i].Events))
			}
			for k, ev := range mine[i] {
				want := theirs[i].Events[k]
				if err := names.equal(ev, want); err != nil {
					t.Fatalf("%s: batch %d, event %d: %v:\n got %+v\nwant %+v", pod, i, k, err, ev, want)
				}
				events++
			}
		}
		t.Logf("%s: %d batches, %d events, %d answers", pod, len(mine), events, right)
	}
	f("pod-0")
	f("pod-1")
}

// renaming compares events up to the names of hashes.
type renaming struct {
	to, from map[indexer.EngineHash]indexer.EngineHash
}

func newRenaming() renaming {
	return renaming{map[indexer.EngineHash]indexer.EngineHash{}, map[indexer.EngineHash]indexer.EngineHash{}}
}

func (r renaming) hash(a, b Hash) error {
	x, y := a.Engine(), b.Engine()
	if to, ok := r.to[x]; ok && to != y {
		return fmt.Errorf("hash %d is %d and %d", x, to, y)
	}
	if from, ok := r.from[y]; ok && from != x {
		return fmt.Errorf("hashes %d and %d are both %d", x, from, y)
	}
	r.to[x], r.from[y] = y, x
	return nil
}

func (r renaming) equal(a, b Event) error {
	if len(a.Hashes) != len(b.Hashes) || a.HasParent != b.HasParent {
		return fmt.Errorf("%d hashes, parent %v; want %d, %v", len(a.Hashes), a.HasParent, len(b.Hashes), b.HasParent)
	}
	for i := range a.Hashes {
		if err := r.hash(a.Hashes[i], b.Hashes[i]); err != nil {
			return err
		}
	}
	if a.HasParent {
		if err := r.hash(a.Parent, b.Parent); err != nil {
			return err
		}
	}
	a.Hashes, b.Hashes, a.Parent, b.Parent = nil, nil, Hash{}, Hash{}
	a.Salt = "" // vLLM has it in the extra keys
	if !reflect.DeepEqual(a, b) {
		return fmt.Errorf("the other fields differ")
	}
	return nil
}
