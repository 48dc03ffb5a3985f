package relay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kvindex/kvindex/events/natssource"
)

// StreamLimits describe the JetStream stream that all relays publish to. Zero
// values mean the defaults.
type StreamLimits struct {
	Name       string        // natssource.DefaultStream
	MaxAge     time.Duration // of a message; 1 h
	PerSubject int64         // messages of one (instance, rank); 20,000
	Duplicates time.Duration // how long a message published twice is noticed; 2 min
	Replicas   int           // of the stream, when it is created; 1
	// Update changes a stream that has other limits, instead of refusing it.
	Update bool
}

func (l *StreamLimits) setDefaults() {
	if l.Name == "" {
		l.Name = natssource.DefaultStream
	}
	if l.MaxAge <= 0 {
		l.MaxAge = time.Hour
	}
	if l.PerSubject <= 0 {
		l.PerSubject = 20_000
	}
	if l.Duplicates <= 0 {
		l.Duplicates = 2 * time.Minute
	}
	if l.Replicas <= 0 {
		l.Replicas = 1
	}
}

func (l StreamLimits) config() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              l.Name,
		Description:       "KV-cache events of model servers, for kvindex",
		Subjects:          []string{natssource.EventSubjects},
		Retention:         jetstream.LimitsPolicy,
		Discard:           jetstream.DiscardOld,
		MaxAge:            l.MaxAge,
		MaxMsgsPerSubject: l.PerSubject,
		Duplicates:        l.Duplicates,
		Storage:           jetstream.FileStorage,
		Replicas:          l.Replicas,
	}
}

// LimitsError says that a stream exists and is not what the relay needs.
type LimitsError struct {
	Stream      string
	Differences []string // "max age is 2h0m0s, not 1h0m0s"
}

func (e *LimitsError) Error() string {
	return fmt.Sprintf("the stream %q exists with other limits: %s; change it, or let the relay (--update-stream)",
		e.Stream, strings.Join(e.Differences, "; "))
}

// differences lists what have lacks of want. Limits that want does not set may
// be anything.
func differences(have, want jetstream.StreamConfig) []string {
	var d []string
	differ := func(what string, have, want any) {
		if have != want {
			d = append(d, fmt.Sprintf("%s is %v, not %v", what, have, want))
		}
	}
	differ("subjects", strings.Join(have.Subjects, " "), strings.Join(want.Subjects, " "))
	differ("retention", have.Retention, want.Retention)
	differ("discard", have.Discard, want.Discard)
	differ("max age", have.MaxAge, want.MaxAge)
	differ("max messages per subject", have.MaxMsgsPerSubject, want.MaxMsgsPerSubject)
	differ("duplicates window", have.Duplicates, want.Duplicates)
	differ("storage", have.Storage, want.Storage)
	return d
}

// ensureStream creates the stream, or checks that the one that is there is what
// it would create.
func ensureStream(ctx context.Context, js jetstream.JetStream, l StreamLimits) error {
	want := l.config()
	st, err := js.Stream(ctx, l.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if _, err = js.CreateStream(ctx, want); err == nil {
			return nil
		}
		if !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return fmt.Errorf("cannot create the stream %q: %w", l.Name, err)
		}
		st, err = js.Stream(ctx, l.Name) // another relay was faster
	}
	if err != nil {
		return fmt.Errorf("cannot look at the stream %q: %w", l.Name, err)
	}
	have := st.CachedInfo().Config
	diff := differences(have, want)
	if len(diff) == 0 {
		return nil
	}
	if !l.Update {
		return &LimitsError{l.Name, diff}
	}
	want.Replicas, want.MaxBytes = have.Replicas, have.MaxBytes
	if _, err := js.UpdateStream(ctx, want); err != nil {
		return fmt.Errorf("cannot update the stream %q, where %s: %w", l.Name, strings.Join(diff, "; "), err)
	}
	return nil
}
