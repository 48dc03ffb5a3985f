package main

import (
	"context"
	"sync"
	"time"

	"github.com/kvindex/kvindex/events/enginesim"
	"github.com/kvindex/kvindex/scripts/loadgen/load"
)

// Pods under load store what they compute and evict as much: each batch is a
// scheduler step that announces ingestStep blocks, 512 tokens of a prefill, and
// removes as many. Prompts have promptSteps steps; a pod goes round ringPrompts
// of them and holds half.
const (
	ingestRate  = 100_000 // blocks a second of all pods, and as many removals
	ingestStep  = 32
	promptSteps = 8
	ringPrompts = 16
	ringSteps   = ringPrompts * promptSteps
)

// ingest is what all pods publish, encoded before it is needed.
type ingest struct {
	fleet *fleet
	ring  [][][]byte // of each pod, by step
	next  int        // batch, over all pods and runs
}

// steps returns what step k of a pod's round does: which step of the prompt it
// stores, and which step of which it removes: that of half a round ago, the
// prompt's end first.
func steps(k int) (stores, removes ringStep) {
	prompt, step := k/promptSteps, k%promptSteps
	return ringStep{prompt, step}, ringStep{(prompt + ringPrompts/2) % ringPrompts, promptSteps - 1 - step}
}

// ringStep is a part of a prompt.
type ringStep struct{ prompt, step int }

func (s ringStep) blocks() (from, to int) { return s.step * ingestStep, (s.step + 1) * ingestStep }

// newIngest makes the pods hold what their first round removes.
func newIngest(f *fleet) (*ingest, error) {
	g := &ingest{fleet: f}
	for pod, stream := range f.pods {
		var seeds [ringPrompts]uint64
		var prompts [ringPrompts][]uint32
		var first []enginesim.Event
		for i := range prompts {
			seeds[i] = uint64(1_000_000 + pod*ringPrompts + i)
			prompts[i] = load.Tokens(seeds[i], promptSteps*ingestStep*blockSize)
			if i >= ringPrompts/2 {
				first = append(first, stored(seeds[i], prompts[i], 0, promptSteps*ingestStep))
			}
		}
		if _, err := stream.Publish(payload(first...)); err != nil {
			return nil, err
		}
		ring := make([][]byte, ringSteps)
		for k := range ring {
			s, r := steps(k)
			from, to := s.blocks()
			events := []enginesim.Event{stored(seeds[s.prompt], prompts[s.prompt], from, to)}
			from, to = r.blocks()
			ring[k] = payload(append(events, removed(seeds[r.prompt], from, to)...)...)
		}
		g.ring = append(g.ring, ring)
	}
	return g, nil
}

// start publishes at ingestRate until stop is called, which waits for the last
// batch.
func (g *ingest) start(ctx context.Context) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var failed error
	wg.Go(func() { failed = g.publish(ctx) })
	return func() error {
		cancel()
		wg.Wait()
		return failed
	}
}

func (g *ingest) publish(ctx context.Context) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	begin := time.Now()
	for done := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			for due := batchesDue(now.Sub(begin)); done < due; done++ {
				pod, k := g.next%len(g.ring), g.next/len(g.ring)%ringSteps
				if _, err := g.fleet.pods[pod].Publish(g.ring[pod][k]); err != nil {
					return err
				}
				g.next++
			}
		}
	}
}

// batchesDue is how many batches are to be published within a time.
func batchesDue(d time.Duration) int { return int(d.Seconds() * ingestRate / ingestStep) }
