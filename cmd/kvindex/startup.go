package main

import (
	"context"
	"time"

	"github.com/kvindex/kvindex/api"
)

// startup is the time from the first answer over HTTP until everything that is
// configured is being followed. A snapshot is restored in it: before that is
// done, nothing may be followed, for it is used whole or not at all.
type startup struct {
	over chan struct{} // closed at its end
	what func() string // what is being done
}

func newStartup(what func() string) *startup { return &startup{over: make(chan struct{}), what: what} }

// end ends it.
func (s *startup) end() { close(s.over) }

// note says what is being done, "" after the end.
func (s *startup) note() string {
	select {
	case <-s.over:
		return ""
	default:
		return s.what()
	}
}

// registrationWaits is how long a registration waits for the end: longer than
// most snapshots take, and not so long that the connection is given up. Whoever
// does not try again finds it done.
const registrationWaits = 5 * time.Second

// wait waits for the end, but not for long.
func (s *startup) wait(ctx context.Context) error {
	limit := time.NewTimer(registrationWaits)
	defer limit.Stop()
	select {
	case <-s.over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-limit.C:
		return &api.NotYetError{Reason: "nothing can be registered yet: " + s.what() + "; try again", RetryAfter: 2 * time.Second}
	}
}
