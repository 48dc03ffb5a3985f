package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kvindex/kvindex/events/enginesim"
)

const (
	podCount  = 64
	blockSize = 16
	// fillBatch is how many blocks a batch announces while pods are filled.
	fillBatch = 256
)

// fleet is the pods of one model. Nothing computes: what they publish is given.
type fleet struct {
	model string
	pods  []*enginesim.Stream
}

func startFleet(model string) (*fleet, error) {
	f := &fleet{model: model}
	for range podCount {
		s, err := enginesim.StartStream(enginesim.StreamOptions{})
		if err != nil {
			f.close()
			return nil, err
		}
		f.pods = append(f.pods, s)
	}
	return f, nil
}

func (f *fleet) close() {
	for _, s := range f.pods {
		_ = s.Close()
	}
}

// config is the fleet in kvindex's configuration.
func (f *fleet) config() string {
	var b strings.Builder
	for i, s := range f.pods {
		fmt.Fprintf(&b, "  - {id: %s, model: %s, block_size: %d, endpoint: %q, replay_endpoint: %q}\n",
			f.pod(i), f.model, blockSize, s.Endpoint(), s.ReplayEndpoint())
	}
	return b.String()
}

func (f *fleet) pod(i int) string { return fmt.Sprintf("%s-%02d", f.model, i) }

// followed waits until kvindex follows every pod.
func (f *fleet) followed(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for _, s := range f.pods {
		if err := s.WaitSubscribers(ctx, 1); err != nil {
			return fmt.Errorf("kvindex does not follow the pods of %s: %w", f.model, err)
		}
	}
	return nil
}

// held is how many of n blocks pod i holds: the last pod all of them, the
// others less and less, so that a match has as many ends as there are pods.
func held(i, n int) int { return n * (i + 1) / podCount }

// fill makes the pods hold a prompt, each its part of it.
func (f *fleet) fill(seed uint64, tokens []uint32) error {
	n := len(tokens) / blockSize
	shared := make([][]byte, 0, n/fillBatch) // whole batches, the same for every pod
	for i, s := range f.pods {
		blocks := held(i, n)
		var payloads [][]byte
		for from := 0; from < blocks; from += fillBatch {
			to := min(from+fillBatch, blocks)
			if b := from / fillBatch; to-from == fillBatch && b < len(shared) {
				payloads = append(payloads, shared[b])
				continue
			}
			p := payload(stored(seed, tokens, from, to))
			if to-from == fillBatch {
				shared = append(shared, p)
			}
			payloads = append(payloads, p)
		}
		if err := s.PublishAll(payloads); err != nil {
			return err
		}
	}
	return nil
}

// engineHash is the engine's name of block i of the prompt with a seed.
func engineHash(seed uint64, i int) enginesim.Hash {
	return enginesim.UintHash((seed<<24 + uint64(i) + 1) * 0x9e3779b97f4a7c15) // odd: a bijection
}

// stored announces blocks from..to of a prompt.
func stored(seed uint64, tokens []uint32, from, to int) enginesim.Event {
	ev := enginesim.Event{
		Kind: enginesim.Stored, BlockSize: blockSize, Medium: enginesim.MediumGPU, SpecKind: "full_attention",
		Tokens: tokens[from*blockSize : to*blockSize], Extra: make([][]enginesim.ExtraKey, to-from),
	}
	if from > 0 {
		ev.Parent, ev.HasParent = engineHash(seed, from-1), true
	}
	for i := from; i < to; i++ {
		ev.Hashes = append(ev.Hashes, engineHash(seed, i))
	}
	return ev
}

// removed announces the removal of blocks from..to of a prompt as vLLM does:
// one event a block, the last block first.
func removed(seed uint64, from, to int) []enginesim.Event {
	var out []enginesim.Event
	for i := to - 1; i >= from; i-- {
		out = append(out, enginesim.Event{Kind: enginesim.Removed, Hashes: []enginesim.Hash{engineHash(seed, i)}, Medium: enginesim.MediumGPU})
	}
	return out
}

func payload(events ...enginesim.Event) []byte {
	return enginesim.DefaultEncoding.AppendBatch(nil, enginesim.Batch{Time: float64(time.Now().UnixMicro()) / 1e6, Events: events})
}

// filled waits until kvindex knows what the pods hold of a prompt.
func (f *fleet) filled(ctx context.Context, s *server, query []byte, blocks int) error {
	var a struct {
		State     string
		Reason    string
		Instances map[string]struct {
			Blocks int `json:"matched_blocks"`
		}
	}
	err := s.until(ctx, time.Minute, func() error {
		if err := s.call("POST", "/v1/query", query, &a); err != nil {
			return err
		}
		if a.State != "exact" {
			return errors.New("the answer is " + a.State + ": " + a.Reason)
		}
		for i := range f.pods {
			if got, want := a.Instances[f.pod(i)].Blocks, held(i, blocks); got != want {
				return fmt.Errorf("kvindex finds %d blocks on %s, which holds %d", got, f.pod(i), want)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("the index is not filled: %w", err)
	}
	return nil
}
