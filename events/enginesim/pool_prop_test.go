package enginesim

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvindex/kvindex/indexer"
)

// drawRequest draws a prompt that shares its beginning with others: a walk of
// whole and broken blocks over few alternatives.
func drawRequest(t *rapid.T, blockSize, most int) Request {
	var tokens []uint32
	for len(tokens) < rapid.IntRange(1, most).Draw(t, "length") {
		kind := rapid.Uint32Range(0, 2).Draw(t, "kind")
		for i := range rapid.IntRange(1, 2*blockSize).Draw(t, "piece") {
			tokens = append(tokens, kind*1000+uint32(i%blockSize))
		}
	}
	tokens = tokens[:min(len(tokens), most)]
	req := Request{Tokens: tokens, Generate: rapid.IntRange(0, blockSize).Draw(t, "generate")}
	for range req.Generate { // also outputs are often equal
		req.Output = append(req.Output, rapid.Uint32Range(0, 1).Draw(t, "output"))
	}
	req.LoRA = rapid.SampledFrom([]string{"", "", "", "ada"}).Draw(t, "lora")
	req.Salt = rapid.SampledFrom([]string{"", "", "", "pepper"}).Draw(t, "salt")
	return req
}

// TestPoolProperties drives random pools with random schedules. After each step
// a naive index of the events equals the truth, and what a request had cached
// is what the truth said before.
func TestPoolProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := PoolOptions{
			BlockSize:     rapid.IntRange(1, 4).Draw(t, "block size"),
			Hash:          HashMode(rapid.IntRange(0, int(HashSGLang)).Draw(t, "hash")),
			Tenant:        rapid.SampledFrom([]string{"", "acme"}).Draw(t, "tenant"),
			QueueEmpty:    rapid.Bool().Draw(t, "queue empty"),
			StepTokens:    rapid.SampledFrom([]int{0, 0, 7}).Draw(t, "step tokens"),
			ChunkTokens:   rapid.SampledFrom([]int{0, 0, 3, 4}).Draw(t, "chunk tokens"),
			CPUBlocks:     rapid.SampledFrom([]int{0, 5, 20}).Draw(t, "cpu blocks"),
			OffloadTokens: rapid.Bool().Draw(t, "offload tokens"),
			OffloadDelay:  rapid.SampledFrom([]int{0, 0, 2}).Draw(t, "offload delay"),
			ResetCPU:      rapid.Bool().Draw(t, "reset cpu"),
			MergeRemoved:  rapid.Bool().Draw(t, "merge"),
			StartupClear:  rapid.Bool().Draw(t, "startup clear"),
		}
		most := 6 * o.BlockSize
		o.Blocks = 1 + rapid.IntRange(8, 24).Draw(t, "blocks")
		p, err := NewPool(o)
		if err != nil {
			t.Fatal(err)
		}
		index := newNaive(hash1337, o.Tenant, 0)
		apply := func(batches ...[]Event) {
			for _, events := range batches {
				if err := index.apply(events, o.ResetCPU); err != nil {
					t.Fatal(err)
				}
			}
		}
		var jobs []*Job
		t.Repeat(map[string]func(*rapid.T){
			"begin": func(t *rapid.T) {
				j, err := p.Begin(drawRequest(t, o.BlockSize, most))
				if err != nil {
					t.Fatal(err)
				}
				jobs = append(jobs, j)
			},
			"step": func(t *rapid.T) { apply(p.Step()) },
			"finish": func(t *rapid.T) {
				jobs = slices.DeleteFunc(jobs, (*Job).Done)
				if len(jobs) > 0 {
					p.Finish(rapid.SampledFrom(jobs).Draw(t, "job"))
				}
			},
			"run": func(t *rapid.T) {
				apply(p.Step()) // what is queued is part of the truth
				req := drawRequest(t, o.BlockSize, most)
				want := p.Truth(hash1337).match(hash1337, o.Tenant, 0, o.BlockSize, req, indexer.GPU, indexer.CPU)
				idle := p.Idle()
				j, err := p.Begin(req)
				if err != nil {
					t.Fatal(err)
				}
				for !j.Done() {
					apply(p.Step())
				}
				if got := j.Cached(); idle && got != want {
					t.Fatalf("%d tokens were cached, the truth said %d", got, want)
				}
				if j.Cached() >= len(req.Tokens) || j.Cached()%o.BlockSize != 0 || j.CachedGPU() > j.Cached() {
					t.Fatalf("%d (%d on the GPU) of %d tokens were cached", j.Cached(), j.CachedGPU(), len(req.Tokens))
				}
			},
			"reset": func(t *rapid.T) {
				if p.Reset() == nil {
					apply(p.Step())
				}
			},
			"": func(t *rapid.T) {
				if err := p.check(); err != nil {
					t.Fatal(err)
				}
				truth := p.Truth(hash1337)
				for k, w := range truth {
					if g := index.held[k]; g != w {
						t.Fatalf("%+v: the events say %+v, the truth is %+v", k, g, w)
					}
				}
				if len(index.held) != len(truth) {
					t.Fatalf("the events say %d blocks, the truth is %d", len(index.held), len(truth))
				}
			},
		})
	})
}
