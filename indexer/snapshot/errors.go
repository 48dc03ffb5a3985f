package snapshot

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// Errors that are no fault of a snapshot.
var (
	// ErrNone: the store holds no snapshot, or none older than the one asked for.
	ErrNone = errors.New("no snapshot")
	// ErrSuperseded: others have written so many newer snapshots meanwhile that
	// the one just written was not kept.
	ErrSuperseded = errors.New("newer snapshots were written meanwhile")
	// ErrFuller: what is there is by a writer that knows more and is still at
	// work. The one just written was not kept. It is a kind of ErrSuperseded.
	ErrFuller = fmt.Errorf("%w by a replica that knows more", ErrSuperseded)
	// ErrBusy: another process is changing the store, and did not finish in time.
	ErrBusy = errors.New("another process is changing the store")
	// ErrFull: the store has no room left. What it holds stays.
	ErrFull = errors.New("the store is full")
)

// Reason says in a word why a snapshot was rejected. Reasons are stable: they
// are values of metrics.
type Reason string

// Reasons.
const (
	ReasonMagic      Reason = "magic"      // it is no snapshot
	ReasonVersion    Reason = "version"    // of the format or the body: too new or too old
	ReasonCRC        Reason = "crc"        // bytes have changed
	ReasonCount      Reason = "count"      // chunks or bytes are not as many as announced
	ReasonTruncated  Reason = "truncated"  // it ends too early
	ReasonTrailing   Reason = "trailing"   // something follows its end
	ReasonMalformed  Reason = "malformed"  // a field that no writer writes
	ReasonTooLarge   Reason = "too_large"  // beyond Limits
	ReasonMismatch   Reason = "mismatch"   // of another cluster, kind or parameter
	ReasonMissing    Reason = "missing"    // the manifest or a chunk is gone
	ReasonUnread     Reason = "unread"     // the decoder stopped before the end
	ReasonBody       Reason = "body"       // the decoder could not use it
	ReasonStore      Reason = "store"      // the store could not be read; not about the snapshot
	ReasonTimeout    Reason = "timeout"    // the store did not answer in time
	ReasonNone       Reason = "none"       // there is no snapshot
	ReasonCancelled  Reason = "cancelled"  // the caller gave up
	ReasonFull       Reason = "full"       // no room left; see ErrFull
	ReasonSuperseded Reason = "superseded" // see ErrSuperseded
	ReasonFuller     Reason = "fuller"     // see ErrFuller
)

// RejectedError says that a snapshot cannot be used, and why. Nothing of it may
// be used.
type RejectedError struct {
	Reason Reason
	ID     ID     // zero if not known
	Detail string // with values
	Err    error  // the cause, if there is another error
}

// Error implements error.
func (e *RejectedError) Error() string {
	var b strings.Builder
	b.WriteString("cannot use snapshot")
	if e.ID != (ID{}) {
		b.WriteString(" " + e.ID.String())
	}
	b.WriteString(": " + string(e.Reason))
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *RejectedError) Unwrap() error { return e.Err }

// Reject returns a rejection without an id.
func Reject(r Reason, format string, args ...any) *RejectedError {
	return &RejectedError{Reason: r, Detail: fmt.Sprintf(format, args...)}
}

// WithID names the snapshot in a rejection that does not know it yet, and returns
// err.
func WithID(err error, id ID) error {
	var r *RejectedError
	if errors.As(err, &r) && r.ID == (ID{}) {
		r.ID = id
	}
	return err
}

// ReasonOf puts any error of this package and its stores into a word; "" for
// nil.
func ReasonOf(err error) Reason {
	var r *RejectedError
	var timeout interface{ Timeout() bool }
	switch {
	case err == nil:
		return ""
	case errors.As(err, &r):
		return r.Reason
	case errors.Is(err, ErrNone):
		return ReasonNone
	case errors.Is(err, ErrFuller):
		return ReasonFuller
	case errors.Is(err, ErrSuperseded):
		return ReasonSuperseded
	case errors.Is(err, ErrFull), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return ReasonFull
	case errors.As(err, &timeout) && timeout.Timeout():
		return ReasonTimeout
	case errors.Is(err, context.Canceled):
		return ReasonCancelled
	}
	return ReasonStore
}
