package snapshot

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"time"
)

// Sink is where a Schedule writes snapshots.
type Sink interface {
	// String names it for people.
	String() string
	// Write stores a snapshot whose body write produces, whole or not at all.
	Write(ctx context.Context, m Meta, write func(io.Writer) error) (Info, error)
}

// Keeper is a Sink that other writers use too, and that prefers the snapshots of
// those that know more.
type Keeper interface {
	// Keep says that the content is the same as in the snapshot that is there, if
	// that is so: it stays, as if it had been written again. kept is false if what
	// is there is by another writer that knows less, or nothing is.
	Keep(ctx context.Context, m Meta) (kept bool, err error)
}

// Content is what snapshots are made of.
type Content interface {
	// Meta describes what WriteBody writes.
	Meta() Meta
	// WriteBody writes the body as it is now. It ends when w returns an error, and
	// holds nothing that others need while w takes its time.
	WriteBody(w io.Writer) error
	// Changes grows whenever what WriteBody would write has changed. As long as it
	// is 0 nothing is written: what a replica knows that has just started must not
	// replace what others knew.
	Changes() uint64
}

// ScheduleOptions are the settings of a Schedule. Content is needed.
type ScheduleOptions struct {
	Content  Content
	Sinks    []Sink        // each gets a snapshot of its own, one after the other
	Interval time.Duration // between two snapshots; 0: 60 s
	Jitter   time.Duration // added or subtracted at random, up to this; 0: a tenth of Interval

	// Refresh is when a snapshot is written although nothing has changed, so that
	// stores which forget still have one; 0: 1 h.
	Refresh time.Duration

	Timeout time.Duration // of one snapshot; 0: 2 min
	Final   time.Duration // of each of those at the end; 0: 20 s
	Logger  *slog.Logger  // nil: none
}

func (o ScheduleOptions) withDefaults() ScheduleOptions {
	for _, d := range []struct {
		of    *time.Duration
		value time.Duration
	}{{&o.Interval, time.Minute}, {&o.Refresh, time.Hour}, {&o.Timeout, 2 * time.Minute}, {&o.Final, 20 * time.Second}} {
		if *d.of <= 0 {
			*d.of = d.value
		}
	}
	if o.Jitter <= 0 || o.Jitter > o.Interval {
		o.Jitter = o.Interval / 10
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Schedule writes snapshots from time to time.
type Schedule struct {
	o     ScheduleOptions
	turn  chan struct{} // full while snapshots are written
	mu    sync.Mutex    // of sinks
	sinks []sinkState
}

type sinkState struct {
	SinkCounters
	changes uint64 // of the content, as it was last written
	logged  Reason // of the failure that was last logged
}

// SinkCounters is what became of the snapshots for one sink.
type SinkCounters struct {
	Sink       string
	Written    uint64
	Unchanged  uint64 // skipped
	Superseded uint64 // others' were newer
	Fuller     uint64 // others' were by replicas that know more
	Failed     map[Reason]uint64

	Took        time.Duration // by those that were written, all together
	LastTook    time.Duration
	LastWritten time.Time // zero: never
	Last        Info
	Failing     Reason // of the last attempt, fuller too; "": it went well
}

// NewSchedule returns a Schedule. Run makes it work.
func NewSchedule(o ScheduleOptions) *Schedule {
	s := &Schedule{o: o.withDefaults(), turn: make(chan struct{}, 1)}
	for _, sink := range o.Sinks {
		s.sinks = append(s.sinks, sinkState{SinkCounters: SinkCounters{Sink: sink.String(), Failed: map[Reason]uint64{}}})
	}
	return s
}

// Counters returns the counters of each sink. It may be called at any time.
func (s *Schedule) Counters() []SinkCounters {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []SinkCounters
	for _, st := range s.sinks {
		st.Failed = maps.Clone(st.Failed)
		all = append(all, st.SinkCounters)
	}
	return all
}

// Run writes snapshots until ctx ends, then a last one, and returns. It is
// called once, after the content is complete: what is written before a restored
// snapshot is in place would replace it with less.
func (s *Schedule) Run(ctx context.Context) {
	timer := time.NewTimer(s.pause())
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			s.Write(ctx, s.o.Timeout)
			timer.Reset(s.pause())
		case <-ctx.Done():
			s.Write(context.WithoutCancel(ctx), s.o.Final)
			return
		}
	}
}

func (s *Schedule) pause() time.Duration {
	return s.o.Interval + time.Duration((2*rand.Float64()-1)*float64(s.o.Jitter))
}

// Write writes what has changed to each sink, now, each within limit. A second
// caller waits for the first. Errors are logged and counted.
func (s *Schedule) Write(ctx context.Context, limit time.Duration) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return
	}
	for i, sink := range s.o.Sinks {
		if ctx.Err() != nil {
			return
		}
		s.writeTo(ctx, i, sink, limit)
	}
}

func (s *Schedule) writeTo(ctx context.Context, i int, sink Sink, limit time.Duration) {
	begin := time.Now()
	changes := s.o.Content.Changes() // before the body: what changes meanwhile is for the next one
	s.mu.Lock()
	st := s.sinks[i]
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	unchanged := st.Failing == "" && st.Written > 0 && changes == st.changes && begin.Sub(st.LastWritten) < s.o.Refresh
	if changes == 0 || unchanged && s.kept(ctx, sink) {
		s.update(i, func(st *sinkState) { st.Unchanged++ })
		return
	}
	info, err := sink.Write(ctx, s.o.Content.Meta(), s.o.Content.WriteBody)
	took := time.Since(begin)
	s.update(i, func(st *sinkState) {
		switch {
		case err == nil:
			st.Written++
			st.Took += took
			st.LastTook, st.LastWritten, st.Last, st.changes = took, begin, info, changes
		case errors.Is(err, ErrFuller):
			st.Fuller++
		case errors.Is(err, ErrSuperseded):
			st.Superseded++
			err = nil // a newer one is there: nothing is wrong
		default:
			st.Failed[ReasonOf(err)]++
		}
		st.Failing = ReasonOf(err)
	})
	s.log(i, info, took, err)
}

// kept reports whether what was written last is still there, or something better.
func (s *Schedule) kept(ctx context.Context, sink Sink) bool {
	k, ok := sink.(Keeper)
	if !ok {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second) // there is nothing to lose
	defer cancel()
	kept, err := k.Keep(ctx, s.o.Content.Meta())
	return kept || err != nil // a sink that fails is for when there is something to write
}

func (s *Schedule) update(i int, f func(*sinkState)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.sinks[i])
}

// log says each failure once, until its reason changes or it ends.
func (s *Schedule) log(i int, info Info, took time.Duration, err error) {
	reason, sink, was := ReasonOf(err), "", Reason("")
	s.update(i, func(st *sinkState) { sink, was, st.logged = st.Sink, st.logged, reason })
	switch {
	case err == nil && was != "":
		s.o.Logger.Info("snapshots are written again", "to", sink)
	case err == nil:
		s.o.Logger.Debug("snapshot written", "to", sink, "id", info.ID, "bytes", info.Bytes, "took", took)
	case reason == ReasonFuller && reason != was:
		s.o.Logger.Info("another replica knows more and writes snapshots to the same place: ours are kept back as long as it does; this is said once", "to", sink)
	case reason != was:
		s.o.Logger.Warn("cannot write snapshots; this is said once", "to", sink, "reason", string(reason), "error", err)
	}
}
