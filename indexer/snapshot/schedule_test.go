package snapshot

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// drawer is a Sink in memory.
type drawer struct {
	err     error
	takes   time.Duration
	writing atomic.Int32
	at      []time.Time
	twice   bool
}

func (d *drawer) String() string { return "drawer" }

func (d *drawer) Write(ctx context.Context, m Meta, write func(io.Writer) error) (Info, error) {
	if d.writing.Add(1) != 1 {
		d.twice = true
	}
	defer d.writing.Add(-1)
	select {
	case <-time.After(d.takes):
	case <-ctx.Done():
		return Info{}, ctx.Err()
	}
	if d.err != nil {
		return Info{}, d.err
	}
	var b bytes.Buffer
	err := write(&b)
	d.at = append(d.at, time.Now())
	return Info{Header: Header{Meta: m}, Bytes: int64(b.Len())}, err
}

// page is Content with a counter.
type page struct{ changes atomic.Uint64 }

func (p *page) Meta() Meta                  { return testMeta() }
func (p *page) Changes() uint64             { return p.changes.Load() }
func (p *page) WriteBody(w io.Writer) error { _, err := w.Write([]byte("text")); return err }

// scheduled runs f with a running schedule in a bubble, and ends it.
func scheduled(t *testing.T, o ScheduleOptions, f func(s *Schedule)) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSchedule(o)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { s.Run(ctx); close(done) }()
		f(s)
		cancel()
		<-done
	})
}

func TestSchedule(t *testing.T) {
	d, p := &drawer{takes: time.Second}, &page{}
	var s *Schedule
	scheduled(t, ScheduleOptions{Content: p, Sinks: []Sink{d}}, func(running *Schedule) {
		s = running
		for range 10 {
			p.changes.Add(1)
			time.Sleep(67 * time.Second)
		}
		time.Sleep(10 * time.Minute)
		p.changes.Add(1)
	})
	c := s.Counters()[0]
	if c.Written < 10 || c.Written > 12 || c.Unchanged < 7 {
		t.Errorf("%d written, %d unchanged in 10 busy and 10 quiet minutes", c.Written, c.Unchanged)
	}
	want(t, "bytes", c.Last.Bytes, 4)
	want(t, "took", []time.Duration{c.LastTook, c.Took}, []time.Duration{time.Second, time.Duration(c.Written) * time.Second})
	gaps := map[time.Duration]bool{}
	for i := 1; i < len(d.at)-1; i++ {
		gap := d.at[i].Sub(d.at[i-1])
		gaps[gap] = true
		if i < 9 && (gap < 55*time.Second || gap > 135*time.Second) {
			t.Errorf("%v between two snapshots", gap)
		}
	}
	if len(gaps) < 5 {
		t.Errorf("no jitter: %v", gaps)
	}
}

func TestScheduleRefreshes(t *testing.T) {
	d, p := &drawer{}, &page{}
	scheduled(t, ScheduleOptions{Content: p, Sinks: []Sink{d}, Refresh: 30 * time.Minute}, func(*Schedule) {
		time.Sleep(time.Hour)
		want(t, "snapshots of nothing", len(d.at), 0)
		p.changes.Add(1)
		time.Sleep(2 * time.Hour)
	})
	if n := len(d.at); n < 3 || n > 5 {
		t.Errorf("%d snapshots of what did not change, in 2 hours", n)
	}
}

func TestScheduleFailures(t *testing.T) {
	var log bytes.Buffer
	d, other, p := &drawer{}, &drawer{}, &page{}
	o := ScheduleOptions{Content: p, Sinks: []Sink{d, other}, Interval: 24 * time.Hour, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	scheduled(t, o, func(s *Schedule) {
		pass := func() { p.changes.Add(1); s.Write(context.Background(), time.Minute) }
		lines := func(n int, text string) {
			t.Helper()
			if got := strings.Count(log.String(), "\n"); got != n || !strings.Contains(log.String(), text) {
				t.Errorf("%d lines, want %d with %q:\n%s", got, n, text, &log)
			}
		}
		pass()
		lines(0, "")
		d.err = syscall.ENOSPC
		pass()
		pass()
		lines(1, "reason=full")
		d.err = errors.New("connection refused")
		pass()
		pass()
		lines(2, "reason=store")
		d.takes = time.Hour
		pass()
		lines(3, "reason=timeout")
		d.err, d.takes = ErrSuperseded, 0
		pass()
		lines(4, "written again")
		d.err = nil
		pass()
		lines(4, "")
		c := s.Counters()
		want(t, "failed", c[0].Failed, map[Reason]uint64{ReasonFull: 2, ReasonStore: 2, ReasonTimeout: 1})
		want(t, "written, superseded", []uint64{c[0].Written, c[0].Superseded}, []uint64{2, 1})
		want(t, "written to the other", c[1].Written, 8)
	})
}

// shared is a drawer that others use too.
type shared struct {
	drawer
	keeps, asked int
}

func (s *shared) Keep(context.Context, Meta) (bool, error) {
	s.asked++
	return s.asked <= s.keeps, nil
}

// TestScheduleShared: what others replaced is written again although nothing has
// changed, and what is kept back is tried again.
func TestScheduleShared(t *testing.T) {
	var log bytes.Buffer
	d, p := &shared{keeps: 3}, &page{}
	o := ScheduleOptions{Content: p, Sinks: []Sink{d}, Interval: 24 * time.Hour, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	scheduled(t, o, func(s *Schedule) {
		pass := func() { s.Write(context.Background(), time.Minute) }
		pass()
		want(t, "asked when there is nothing", d.asked, 0)
		p.changes.Add(1)
		for range 5 {
			pass()
		}
		want(t, "written", len(d.at), 2)
		d.err = ErrFuller
		p.changes.Add(1)
		for range 3 {
			pass()
		}
		c := s.Counters()[0]
		want(t, "kept back, superseded, failed", []any{c.Fuller, c.Superseded, len(c.Failed), c.Failing}, []any{uint64(3), uint64(0), 0, ReasonFuller})
		if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "ours are kept back") {
			t.Error(log.String())
		}
		d.err = nil
		pass()
		want(t, "written", len(d.at), 3)
		d.keeps = 1000
	})
}

// TestScheduleNeverTwoAtOnce: neither two callers, nor the last one.
func TestScheduleNeverTwoAtOnce(t *testing.T) {
	d, p := &drawer{takes: 90 * time.Second}, &page{}
	scheduled(t, ScheduleOptions{Content: p, Sinks: []Sink{d}}, func(s *Schedule) {
		for range 20 {
			p.changes.Add(1)
			go s.Write(context.Background(), time.Hour)
			time.Sleep(30 * time.Second)
		}
		p.changes.Add(1)
	})
	want(t, "two at once", d.twice, false)
}
