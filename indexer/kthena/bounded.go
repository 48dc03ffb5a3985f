package kthena

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrOpen means that Redis has failed several times in a row, and is not asked
// for a while.
var ErrOpen = errors.New("redis has failed, and is not asked for a while")

// Bounds are the settings of a Bounded. The zero value is usable.
type Bounds struct {
	Timeout  time.Duration // of one match; 0: 100 ms
	Failures int           // in a row, after which nothing is asked; 0: 3
	Pause    time.Duration // for so long, before one match tries again; 0: 5 s
}

func (b Bounds) withDefaults() Bounds {
	if b.Timeout <= 0 {
		b.Timeout = 100 * time.Millisecond
	}
	if b.Failures <= 0 {
		b.Failures = 3
	}
	if b.Pause <= 0 {
		b.Pause = 5 * time.Second
	}
	return b
}

// Bounded is a Reader for queries that cannot wait: each match has a deadline,
// and while Redis is down matches fail at once, but for one now and then. It is
// safe for concurrent use.
type Bounded struct {
	r *Reader
	b Bounds

	mu     sync.Mutex
	failed int // in a row
	again  time.Time
}

// NewBounded returns a Bounded that asks by r.
func NewBounded(r *Reader, b Bounds) *Bounded { return &Bounded{r: r, b: b.withDefaults()} }

// Match is Reader.Match within bounds. Errors are short enough to be shown; one
// of them is ErrOpen.
func (b *Bounded) Match(ctx context.Context, model string, hashes []uint64) (Match, error) {
	if !b.enter() {
		return Match{}, ErrOpen
	}
	bounded, cancel := context.WithTimeout(ctx, b.b.Timeout)
	defer cancel()
	m, err := b.r.Match(bounded, model, hashes)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("no answer of Redis within %v", b.b.Timeout)
	}
	b.leave(err, ctx.Err() != nil)
	return m, err
}

// enter reports whether a match may be tried.
func (b *Bounded) enter() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failed < b.b.Failures {
		return true
	}
	now := time.Now()
	if now.Before(b.again) {
		return false
	}
	b.again = now.Add(b.b.Pause) // this one tries; others go on as if it had failed
	return true
}

// leave takes note of what came of it. That the caller has gone tells nothing.
func (b *Bounded) leave(err error, gone bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err == nil:
		b.failed = 0
	case !gone:
		b.failed++
		if b.failed == b.b.Failures {
			b.again = time.Now().Add(b.b.Pause)
		}
	}
}
