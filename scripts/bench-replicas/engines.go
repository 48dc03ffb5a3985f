package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvindex/kvindex/events/enginesim"
)

const (
	model      = "m"
	blockSize  = 16
	vocabulary = 150_000

	// Conversations begin with one of a few system prompts, in turn, which are
	// so used too often to be evicted. An engine has some conversations at a time,
	// which end after a few turns.
	systemPrompts, systemBlocks = 4, 32
	turns, conversations        = 4, 8
)

// minBlocks is room for all conversations twice, whose turns add so many blocks
// at most.
func minBlocks(turn int) int { return 2 * (conversations*turns*turn + systemPrompts*systemBlocks) }

// turnLeast is how many blocks a turn adds at least.
func turnLeast(turn int) int { return turn / 2 }

// engine is a fake engine and those who talk to it.
type engine struct {
	*enginesim.Engine
	id    string
	rand  *rand.Rand
	began int        // conversations
	open  [][]uint32 // what has been said in those that go on
	said  []int      // turns of each
}

// fleet is the engines and the load on them.
type fleet struct {
	engines []*engine
	system  [][]uint32
	adds    int          // blocks, a turn at most
	stored  atomic.Int64 // blocks
	batches atomic.Int64
}

func startFleet(o options) (*fleet, error) {
	f := &fleet{adds: o.turn}
	r := rand.New(rand.NewPCG(1, 1))
	for range systemPrompts {
		f.system = append(f.system, randomTokens(r, systemBlocks*blockSize))
	}
	for i := range o.engines {
		e, err := enginesim.Start(enginesim.EngineOptions{
			Pool: enginesim.PoolOptions{Blocks: o.blocks + 1, BlockSize: blockSize, Vocabulary: vocabulary}, Ranks: 1, Seed: uint64(i),
		})
		if err != nil {
			f.close()
			return nil, err
		}
		f.engines = append(f.engines, &engine{Engine: e, id: fmt.Sprintf("pod-%02d", i), rand: rand.New(rand.NewPCG(2, uint64(i)))})
	}
	return f, nil
}

func (f *fleet) close() {
	for _, e := range f.engines {
		_ = e.Close() // the process ends
	}
}

func randomTokens(r *rand.Rand, n int) []uint32 {
	tokens := make([]uint32, n)
	for i := range tokens {
		tokens[i] = r.Uint32N(vocabulary)
	}
	return tokens
}

// run has an engine run a prompt of whole blocks and publish its batch.
func (f *fleet) run(e *engine, tokens []uint32) (stored int, err error) {
	cached, err := e.Rank(0).Run(enginesim.Request{Tokens: tokens})
	if err != nil {
		return 0, fmt.Errorf("%s: %w", e.id, err)
	}
	stored = (len(tokens) - cached) / blockSize
	f.stored.Add(int64(stored))
	f.batches.Add(1)
	return stored, nil
}

// turn is the next turn of one of an engine's conversations.
func (f *fleet) turn(e *engine) (stored int, err error) {
	i := e.rand.IntN(conversations)
	if i >= len(e.open) || e.said[i] == turns {
		begin := f.system[e.began%systemPrompts]
		e.began++
		if i >= len(e.open) {
			i = len(e.open)
			e.open, e.said = append(e.open, nil), append(e.said, 0)
		}
		e.open[i], e.said[i] = append(e.open[i][:0], begin...), 0
	}
	n := turnLeast(f.adds) + e.rand.IntN(f.adds-turnLeast(f.adds)+1)
	for range n * blockSize {
		e.open[i] = append(e.open[i], e.rand.Uint32N(vocabulary))
	}
	e.said[i]++
	return f.run(e, e.open[i])
}

// loaders are how many goroutines publish, each for its part of the engines.
const loaders = 2

// forgiven is how far behind its time a loader may get; what is more is not made
// up for, and shows in the rate that was reached.
const forgiven = 200 * time.Millisecond

// load publishes so many block events a second until stop is called, which waits
// for the last batch. In a full engine each store makes a removal.
func (f *fleet) load(ctx context.Context, rate float64) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	errs := make([]error, loaders)
	for i := range loaders {
		wg.Go(func() { errs[i] = f.loadPart(ctx, i, rate/loaders) })
	}
	return func() error {
		cancel()
		wg.Wait()
		return errors.Join(errs...)
	}
}

func (f *fleet) loadPart(ctx context.Context, part int, rate float64) error {
	var mine []*engine
	for i := part; i < len(f.engines); i += loaders {
		mine = append(mine, f.engines[i])
	}
	if len(mine) == 0 {
		return nil
	}
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	due, last := 0.0, time.Now()
	for next := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now := time.Now()
		due = min(due+now.Sub(last).Seconds()*rate, forgiven.Seconds()*rate)
		for last = now; due > 0 && ctx.Err() == nil; next++ {
			n, err := f.turn(mine[next%len(mine)])
			if err != nil {
				return err
			}
			due -= 2 * float64(n)
		}
	}
}
