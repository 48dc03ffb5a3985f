package snapshot

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Source is where a Chain looks for snapshots.
type Source interface {
	// String names it for people.
	String() string
	// Open opens the newest snapshot that is older than before; zero is no bound.
	// Errors: ErrNone; a *RejectedError, whose ID (if it is known) is what to ask
	// for the one before with; any other if the source cannot be reached. ctx
	// bounds the reading too.
	Open(ctx context.Context, before ID) (*Reader, error)
}

// Chain is sources in the order in which a fresh replica asks them: the
// freshest first. It is not changed while it is in use.
type Chain struct {
	Sources []Source
	Attempt time.Duration // for each snapshot that is tried; 0: 1 min
}

// Attempt is a snapshot that was tried, or a source that had none.
type Attempt struct {
	Source string
	ID     ID // zero if it is not known
	Reason Reason
	Err    error
}

// String is for logs.
func (a Attempt) String() string { return fmt.Sprintf("%s: %v", a.Source, a.Err) }

// Restored says what Chain.Restore did.
type Restored struct {
	Source string // "": nothing was restored
	Info   Info
	Took   time.Duration // for the snapshot that was restored
	Failed []Attempt     // what was tried before, in order
}

// Restore restores the first snapshot that is whole and as expected: of each
// source the latest, and the one before if the latest is rejected. If there is
// none, the error is ErrNone, and what was tried is in Failed. decode is called
// for each attempt, its commit at most once; see Decode. It ends early when ctx
// ends.
func (c Chain) Restore(ctx context.Context, want Expect, decode Decode) (Restored, error) {
	var res Restored
	for _, s := range c.Sources {
		var before ID
		for try := range 2 {
			begin := time.Now()
			info, err := c.try(ctx, s, before, want, decode)
			if err == nil {
				res.Source, res.Info, res.Took = s.String(), info, time.Since(begin)
				return res, nil
			}
			if ctx.Err() != nil {
				return res, fmt.Errorf("cannot restore a snapshot: %w", err)
			}
			if try > 0 && errors.Is(err, ErrNone) {
				break // that there is none before is no news
			}
			res.Failed = append(res.Failed, Attempt{Source: s.String(), ID: info.ID, Reason: ReasonOf(err), Err: err})
			if rejected := (*RejectedError)(nil); !errors.As(err, &rejected) || info.ID == (ID{}) {
				break // a source that does not answer would not do so a second time
			}
			before = info.ID
		}
	}
	return res, fmt.Errorf("%w can be used, of %d that were tried", ErrNone, len(res.Failed))
}

// try tries one snapshot. Of what failed, only the id is in Info, if it is known.
func (c Chain) try(ctx context.Context, s Source, before ID, want Expect, decode Decode) (Info, error) {
	limit := c.Attempt
	if limit == 0 {
		limit = time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r, err := s.Open(ctx, before)
	if err != nil {
		var info Info
		if rejected := (*RejectedError)(nil); errors.As(err, &rejected) {
			info.ID = rejected.ID
		}
		return info, err
	}
	return Restore(r, want, decode)
}
