package enginesim

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Errors of Pool.
var (
	// ErrInUse is Reset's answer while a job holds blocks.
	ErrInUse = errors.New("the cache is in use")
	// ErrTooLarge means that a request would not fit an empty pool.
	ErrTooLarge = errors.New("the request needs more blocks than the pool has")
)

// PoolOptions describe a pool. The zero value is usable.
type PoolOptions struct {
	Blocks    int // physical blocks, 256 by default; the first is never used (vLLM's null block)
	BlockSize int // tokens a block, 16 by default

	Hash     HashMode
	HashSeed string // DefaultHashSeed by default
	// UntaggedKeys hashes LoRA names and salts without saying which is which, as
	// vLLM did up to mid-2026: blocks with the LoRA X and blocks with the salt X
	// are the same to it, and then Truth can be right for only one of them.
	UntaggedKeys bool

	// Tenant is the tenant that the index knows the instance by. It is in no
	// event; Truth needs it.
	Tenant string

	// QueueEmpty puts a block that was never filled at the end of the free
	// queue, as vLLM did up to v0.23, and not at its front: evictions come
	// earlier.
	QueueEmpty bool

	// StepTokens bounds the tokens that one step computes over all jobs
	// (max_num_batched_tokens), ChunkTokens those of one job in one step
	// (long_prefill_token_threshold). 0 is no bound. Only with ChunkTokens can
	// one job overtake another that computes the same prompt, which gives two
	// copies of a block.
	StepTokens  int
	ChunkTokens int

	// CPUBlocks is the size of the host tier; 0 is none. Blocks are copied
	// there when they become full, loaded from there when the GPU has lost
	// them, and leave it by their own LRU.
	CPUBlocks int
	// OffloadTokens makes the host tier's events describe themselves; without
	// it they have no tokens, no parent and a block size of 0.
	OffloadTokens bool
	// OffloadDelay is how many steps a copy to the host takes: its event comes
	// that much later, possibly after the GPU's copy has been removed.
	OffloadDelay int
	// ResetCPU makes Reset clear the host tier too. vLLM does not, though its
	// event says all.
	ResetCPU bool

	// MergeRemoved puts neighbouring removals into one event, as SGLang does
	// since 0.5.18. vLLM publishes one event a block.
	MergeRemoved bool
	// StartupClear puts AllBlocksCleared before everything else, as SGLang
	// does.
	StartupClear bool

	Vocabulary int    // random tokens are below it; 32,000 by default
	Seed       uint64 // of the random tokens
}

// Validate fills in defaults and reports what makes no sense.
func (o *PoolOptions) Validate() error {
	setDefault(&o.Blocks, 256)
	setDefault(&o.BlockSize, 16)
	setDefault(&o.Vocabulary, 32000)
	switch {
	case o.Blocks < 2:
		return fmt.Errorf("a pool of %d blocks has none to use", o.Blocks)
	case o.BlockSize < 1:
		return fmt.Errorf("block size %d is below 1", o.BlockSize)
	case o.StepTokens < 0 || o.ChunkTokens < 0 || o.CPUBlocks < 0 || o.OffloadDelay < 0 || o.Vocabulary < 0:
		return errors.New("a negative size in the pool's options")
	case o.Hash > HashSGLang:
		return fmt.Errorf("unknown hash mode %d", o.Hash)
	}
	return nil
}

func setDefault(v *int, d int) {
	if *v == 0 {
		*v = d
	}
}

// Pool is the KV cache of one rank: vLLM's KVCacheManager and scheduler in
// miniature, without a model. It is what an index of its events has to equal.
// Given the same options and calls, it does the same.
//
// Not safe for concurrent use; Rank adds a lock.
type Pool struct {
	o      PoolOptions
	hasher hasher
	rand   *rand.Rand

	blocks []block
	free   freeQueue
	cache  blockCache
	cpu    *cpuTier // nil without a host tier

	scopes  map[[2]string]*scope
	adapter map[string]int

	waiting []*Job
	running []*Job
	steps   int
	events  []Event // not yet returned by a step
}

// NewPool returns an empty pool.
func NewPool(o PoolOptions) (*Pool, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("cannot make a pool: %w", err)
	}
	p := &Pool{
		o:       o,
		hasher:  newHasher(o.Hash, o.HashSeed, o.UntaggedKeys),
		rand:    rand.New(rand.NewPCG(o.Seed, 0x706f6f6c)),
		blocks:  make([]block, o.Blocks),
		cache:   blockCache{},
		scopes:  map[[2]string]*scope{},
		adapter: map[string]int{},
	}
	if o.CPUBlocks > 0 {
		p.cpu = newCPUTier(o.CPUBlocks)
	}
	for i := range p.blocks {
		p.blocks[i].id = i
		if i > 0 {
			p.free.pushBack(&p.blocks[i])
		}
	}
	if o.StartupClear {
		p.events = append(p.events, Event{Kind: Cleared})
	}
	return p, nil
}

// BlockSize returns the tokens a block.
func (p *Pool) BlockSize() int { return p.o.BlockSize }

// RandomTokens returns n tokens from the pool's own generator.
func (p *Pool) RandomTokens(n int) []uint32 {
	tokens := make([]uint32, n)
	for i := range tokens {
		tokens[i] = p.randomToken()
	}
	return tokens
}

func (p *Pool) randomToken() uint32 { return uint32(p.rand.IntN(p.o.Vocabulary)) }

// Begin queues a request; a later Step admits it.
func (p *Pool) Begin(req Request) (*Job, error) {
	if len(req.Tokens) == 0 {
		return nil, errors.New("cannot begin a request without tokens")
	}
	most := len(req.Tokens) + max(req.Generate, 1) - 1
	if need := ceilDiv(most, p.o.BlockSize); need > p.o.Blocks-1 {
		return nil, fmt.Errorf("cannot begin a request of %d tokens: %w: %d of %d",
			most, ErrTooLarge, need, p.o.Blocks-1)
	}
	j := &Job{req: req, scope: p.scope(req.LoRA, req.Salt), tokens: slices.Clone(req.Tokens)}
	j.req.Tokens, j.req.Output = nil, slices.Clone(req.Output)
	p.waiting = append(p.waiting, j)
	return j, nil
}

// Run begins req and steps until it is done. It returns the engine's
// cached_tokens and the batches that the steps published. Other jobs under
// way go on meanwhile.
func (p *Pool) Run(req Request) (cached int, batches [][]Event, err error) {
	j, err := p.Begin(req)
	if err != nil {
		return 0, nil, err
	}
	for !j.done.Load() {
		if events := p.Step(); len(events) > 0 {
			batches = append(batches, events)
		}
	}
	return j.cached, batches, nil
}

// Idle reports whether no job is running or waiting.
func (p *Pool) Idle() bool { return len(p.running)+len(p.waiting) == 0 }

// Step runs one scheduler step over all jobs and returns its batch of events,
// nil if nothing happened. A step of an idle pool returns what Reset queued
// and what the host tier completes; an idle engine does not step by itself.
func (p *Pool) Step() []Event {
	p.steps++
	budget := math.MaxInt
	if p.o.StepTokens > 0 {
		budget = p.o.StepTokens
	}
	scheduled, preempted := p.stepRunning(&budget)
	if !preempted {
		scheduled = append(scheduled, p.admit(&budget)...)
	}
	for _, j := range scheduled {
		p.offload(j)
		if j.computed == len(j.tokens) && j.sample(p.randomToken) {
			p.Finish(j)
		}
	}
	p.completeTransfers()
	events := p.events
	p.events = nil
	return events
}

// stepRunning gives every running job its next tokens. Where blocks run out,
// the job that was admitted last loses its own.
func (p *Pool) stepRunning(budget *int) (scheduled []*Job, preempted bool) {
	for i := 0; i < len(p.running) && *budget > 0; i++ {
		j := p.running[i]
		n := p.quantum(len(j.tokens)-j.computed, *budget)
		for !p.allocate(j, nil, n) {
			victim := p.running[len(p.running)-1]
			p.preempt(victim)
			preempted = true
			if victim == j {
				return scheduled, true
			}
		}
		scheduled = append(scheduled, j)
		*budget -= n
	}
	return scheduled, preempted
}

// admit starts waiting jobs, first come first served, until one does not fit.
func (p *Pool) admit(budget *int) (admitted []*Job) {
	for len(p.waiting) > 0 && *budget > 0 {
		j := p.waiting[0]
		j.extendPrefixes(p.hasher, p.o.BlockSize)
		hits, onGPU := p.lookup(j)
		n := p.quantum(len(j.tokens)-len(hits)*p.o.BlockSize, *budget)
		if !p.allocate(j, hits, n) {
			return admitted
		}
		if !j.admitted.Load() {
			j.cached = len(hits) * p.o.BlockSize
			j.cachedGPU = onGPU * p.o.BlockSize
			j.admitted.Store(true)
		}
		p.waiting = p.waiting[1:]
		p.running = append(p.running, j)
		admitted = append(admitted, j)
		*budget -= n
	}
	return admitted
}

func (p *Pool) quantum(n, budget int) int {
	if p.o.ChunkTokens > 0 {
		n = min(n, p.o.ChunkTokens)
	}
	return min(n, budget)
}

// Finish ends j before its time, like a client that goes away, and is a no-op
// once it is done. Blocks that are full stay cached; the tail is reused first.
func (p *Pool) Finish(j *Job) {
	if j.done.Load() {
		return
	}
	p.release(j)
	is := func(k *Job) bool { return k == j }
	p.running = slices.DeleteFunc(p.running, is)
	p.waiting = slices.DeleteFunc(p.waiting, is)
	j.done.Store(true)
}

// preempt takes the blocks of a running job and queues it before all others.
func (p *Pool) preempt(j *Job) {
	j.preempted++
	p.release(j)
	p.running = p.running[:len(p.running)-1]
	p.waiting = slices.Insert(p.waiting, 0, j)
}

// Reset empties the cache (reset_prefix_cache, sleep, a weight update). It
// fails with ErrInUse while any block is in use. The event leaves with the
// next step.
func (p *Pool) Reset() error {
	if p.free.len != len(p.blocks)-1 {
		return fmt.Errorf("cannot reset the cache: %w", ErrInUse)
	}
	for i := range p.blocks {
		p.blocks[i].held = nil
	}
	clear(p.cache)
	if p.o.ResetCPU && p.cpu != nil {
		p.cpu.clear()
	}
	p.events = append(p.events, Event{Kind: Cleared})
	return nil
}

func (p *Pool) scope(lora, salt string) *scope {
	key := [2]string{lora, salt}
	if s := p.scopes[key]; s != nil {
		return s
	}
	id := 0
	if lora != "" {
		if id = p.adapter[lora]; id == 0 {
			id = len(p.adapter) + 1
			p.adapter[lora] = id
		}
	}
	s := p.hasher.scope(lora, salt, id)
	p.scopes[key] = s
	return s
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
