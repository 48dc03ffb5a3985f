package main

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// pollPause lies between two queries of a probe: what it finds is late by as much
// at most, and by the time of a query.
const pollPause = 200 * time.Microsecond

// seenWithin is how long a probe waits to be found.
const seenWithin = 30 * time.Second

// prober publishes blocks that nobody has seen, on one engine after the other, and
// times how soon each replica finds them.
type prober struct {
	fleet    *fleet
	replicas []*replica
	rand     *rand.Rand
	next     int
}

// timings are how long a number of probes took, by replica.
type timings [][]time.Duration

// run sends n probes, with a pause after each.
func (p *prober) run(ctx context.Context, n int, pause time.Duration) (timings, error) {
	took := make(timings, len(p.replicas))
	for range n {
		one, err := p.probe(ctx)
		if err != nil {
			return nil, err
		}
		for i, d := range one {
			took[i] = append(took[i], d)
		}
		time.Sleep(pause)
	}
	return took, nil
}

func (p *prober) probe(ctx context.Context) ([]time.Duration, error) {
	e := p.fleet.engines[p.next%len(p.fleet.engines)]
	p.next++
	tokens := randomTokens(p.rand, blockSize)
	body := queryBody(tokens, e.id)
	begin := time.Now()
	if _, err := p.fleet.run(e, tokens); err != nil {
		return nil, err
	}
	took, errs := make([]time.Duration, len(p.replicas)), make([]error, len(p.replicas))
	var wg sync.WaitGroup
	for i, r := range p.replicas {
		wg.Go(func() { took[i], errs[i] = awaitBlock(ctx, r, e.id, body, begin) })
	}
	wg.Wait()
	return took, errors.Join(errs...)
}

// awaitBlock asks until an instance is said to hold the block.
func awaitBlock(ctx context.Context, r *replica, id string, body []byte, begin time.Time) (time.Duration, error) {
	for {
		a, err := r.query(body)
		took := time.Since(begin)
		switch {
		case err != nil:
			return 0, fmt.Errorf("cannot ask for a probe: %w", err)
		case a.Instances[id].Matched > 0:
			return took, nil
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case took > seenWithin:
			return 0, fmt.Errorf("what %s published is not found after %v; it is %q", id, seenWithin, a.Instances[id].State)
		}
		time.Sleep(pollPause)
	}
}

// queryBody asks what an instance holds of a prompt; "" is all.
func queryBody(tokens []uint32, id string) []byte {
	raw := make([]byte, 0, 4*len(tokens))
	for _, t := range tokens {
		raw = binary.LittleEndian.AppendUint32(raw, t)
	}
	candidates := ""
	if id != "" {
		candidates = fmt.Sprintf(`,"candidates":[%q]`, id)
	}
	return fmt.Appendf(nil, `{"model":%q,"token_ids_b64":%q%s}`, model, base64.StdEncoding.EncodeToString(raw), candidates)
}
