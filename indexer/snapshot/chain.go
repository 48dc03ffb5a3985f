package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
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

	// Patience is how long a source may bring nothing, before its answer or
	// between two chunks; 0: 1 min. How long the whole takes has no bound: a
	// restore that goes on is worth more than a cold start.
	Patience time.Duration

	// Progress, if set, is told how far a snapshot has been read, by the goroutine
	// that reads, and often.
	Progress func(Progress)
}

// Progress says how far a snapshot has been read.
type Progress struct {
	Source string
	Bytes  int64 // of the body
	Size   int64 // of the body, about; 0: not known
	Whole  bool  // all of it has been read; decoding goes on
}

// stalledError says that a source brought nothing for too long.
type stalledError struct{ patience time.Duration }

func (e stalledError) Error() string { return fmt.Sprintf("it has brought nothing for %v", e.patience) }

// Timeout makes it one for whoever asks errors.
func (stalledError) Timeout() bool { return true }

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
	patience := c.Patience
	if patience == 0 {
		patience = time.Minute
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(patience, func() { cancel(stalledError{patience}) })
	defer timer.Stop()
	explain := func(err error) error {
		if stalled := (stalledError{}); errors.As(context.Cause(ctx), &stalled) {
			return fmt.Errorf("%w: %s", stalled, err.Error()) // what came of it is no news
		}
		return err
	}
	r, err := s.Open(ctx, before)
	if err != nil {
		var info Info
		if rejected := (*RejectedError)(nil); errors.As(err, &rejected) {
			info.ID = rejected.ID
		}
		return info, explain(err)
	}
	watch := &watchedBody{r: r, moved: func(bytes int64, whole bool) {
		timer.Reset(patience)
		if whole {
			timer.Stop() // the source has done its part
		}
		if c.Progress != nil {
			c.Progress(Progress{Source: s.String(), Bytes: bytes, Size: r.Size(), Whole: whole})
		}
	}}
	watch.moved(0, false)
	info, err := Restore(r, want, func(h Header, _ io.Reader) (func(), error) { return decode(h, watch) })
	if err != nil {
		err = explain(err)
	}
	return info, err
}

// watchedBody is a body that tells how far it has been read. What a Reader hands
// out is of whole chunks: a byte now and then is no progress.
type watchedBody struct {
	r     *Reader
	bytes int64
	moved func(bytes int64, whole bool)
}

func (w *watchedBody) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	w.bytes += int64(n)
	if n > 0 || err == io.EOF { //nolint:errorlint // io.EOF is the reader's own
		w.moved(w.bytes, err == io.EOF) //nolint:errorlint // likewise
	}
	return n, err
}
