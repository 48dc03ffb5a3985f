package load

import (
	"context"
	"sync/atomic"
	"time"
)

// plan gives out requests: in an open loop each with the time at which it is
// due, in a closed loop whenever one is asked for. It is safe for concurrent
// use.
type plan struct {
	begin    time.Time // of the warm-up
	measured time.Time // from here on it counts
	end      time.Time // nothing is due from here on
	giveUp   time.Time // an open loop that is this far behind ends

	interval float64 // nanoseconds between two requests; 0: a closed loop
	n        atomic.Uint64
}

// turn is a request that is to be sent.
type turn struct {
	n        uint64
	due      time.Time // zero in a closed loop
	measured bool
}

func newPlan(now time.Time, o Options) *plan {
	p := &plan{begin: now, measured: now.Add(o.Warmup)}
	p.end = p.measured.Add(o.Duration)
	// Requests that were due are sent late rather than left out, but a server
	// that is slower than the rate must not make the run endless.
	p.giveUp = p.end.Add(o.Duration)
	if o.Rate > 0 {
		p.interval = float64(time.Second) / o.Rate
	}
	return p
}

// next takes the next request; ok is false when there is none any more.
func (p *plan) next() (t turn, ok bool) {
	now := time.Now()
	t.n = p.n.Add(1) - 1
	if p.interval == 0 {
		t.measured = !now.Before(p.measured)
		return t, now.Before(p.end)
	}
	t.due = p.due(t.n)
	t.measured = !t.due.Before(p.measured)
	return t, t.due.Before(p.end) && now.Before(p.giveUp)
}

// due is when request n of an open loop has to be sent. It is counted from the
// begin, so that no error adds up.
func (p *plan) due(n uint64) time.Time {
	return p.begin.Add(time.Duration(float64(n) * p.interval))
}

// planned is how many requests an open loop should have measured.
func (p *plan) planned() uint64 {
	if p.interval == 0 {
		return 0
	}
	var n uint64
	for _, at := range []struct {
		t    time.Time
		sign uint64
	}{{p.end, 1}, {p.measured, ^uint64(0)}} {
		// The first request that is not due before t.
		k := uint64(float64(at.t.Sub(p.begin)) / p.interval)
		for k > 0 && !p.due(k-1).Before(at.t) {
			k--
		}
		for p.due(k).Before(at.t) {
			k++
		}
		n += k * at.sign
	}
	return n
}

// wait waits until t is due and returns when it is sent; ok is false if ctx
// ended before.
func (t *turn) wait(ctx context.Context) (sent time.Time, ok bool) {
	now := time.Now()
	ahead := t.due.Sub(now)
	if t.due.IsZero() || ahead <= 0 {
		return now, true
	}
	timer := time.NewTimer(ahead)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return now, false
	case <-timer.C:
		return time.Now(), true
	}
}

// from is when the latency of t begins: when it was due, or was sent where
// there is no such time.
func (t *turn) from(sent time.Time) time.Time {
	if t.due.IsZero() {
		return sent
	}
	return t.due
}
