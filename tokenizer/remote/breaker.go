package remote

import "time"

// When a target that fails is left alone, and for how long.
const (
	breakerFailures = 3 // in a row
	breakerFirst    = time.Second
	breakerLongest  = 30 * time.Second
)

// BreakerState says whether a target is asked.
type BreakerState string

// The states of a breaker.
const (
	BreakerClosed   BreakerState = "closed"    // it is asked
	BreakerOpen     BreakerState = "open"      // it is left alone
	BreakerHalfOpen BreakerState = "half-open" // one request may try
)

// breaker keeps requests from a target that fails. Its owner's lock guards it.
type breaker struct {
	failures int // in a row
	pause    time.Duration
	until    time.Time // end of the pause
	probing  bool      // a request tries
}

func (b *breaker) open() bool { return b.failures >= breakerFailures }

func (b *breaker) state(now time.Time) BreakerState {
	switch {
	case !b.open():
		return BreakerClosed
	case b.probing || !now.Before(b.until):
		return BreakerHalfOpen
	}
	return BreakerOpen
}

// ready says whether a request may be sent; claim then says that one is.
func (b *breaker) ready(now time.Time) bool {
	return !b.open() || !b.probing && !now.Before(b.until)
}

// claim returns whether the request is the one that tries.
func (b *breaker) claim() bool {
	if b.open() {
		b.probing = true
	}
	return b.probing
}

// release ends a try that told nothing.
func (b *breaker) release() { b.probing = false }

func (b *breaker) succeed() { *b = breaker{} }

// fail counts a failure. Those of requests that were under way when the breaker
// opened do not lengthen the pause.
func (b *breaker) fail(now time.Time, probe bool) {
	if b.open() && !probe {
		return
	}
	b.failures++
	if !b.open() {
		return
	}
	b.probing = false
	b.pause = min(max(2*b.pause, breakerFirst), breakerLongest)
	b.until = now.Add(b.pause)
}
