package load

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestDue: request n is due n intervals after the begin, however many there
// were before it.
func TestDue(t *testing.T) {
	begin := time.Now()
	f := func(rate float64, n uint64, want time.Duration) {
		t.Helper()
		p := newPlan(begin, Options{Rate: rate, Duration: time.Second})
		if got := p.due(n).Sub(begin); got < want-time.Microsecond || got > want+time.Microsecond {
			t.Errorf("at %g a second request %d is due after %v, want %v", rate, n, got, want)
		}
	}
	f(1000, 0, 0)
	f(1000, 1, time.Millisecond)
	f(3, 3_000_000, 1_000_000*time.Second)
	f(0.5, 2, 4*time.Second)
}

// TestPlanned: what should have been measured does not count the warm-up, nor
// what is due at the end.
func TestPlanned(t *testing.T) {
	f := func(rate float64, warmup, duration time.Duration, want uint64) {
		t.Helper()
		p := newPlan(time.Now(), Options{Rate: rate, Warmup: warmup, Duration: duration})
		if got := p.planned(); got != want {
			t.Errorf("at %g a second, %v after %v: %d, want %d", rate, duration, warmup, got, want)
		}
		var measured uint64
		for n := uint64(0); rate > 0 && p.due(n).Before(p.end); n++ {
			if !p.due(n).Before(p.measured) {
				measured++
			}
		}
		if measured != want {
			t.Errorf("at %g a second, %v after %v: %d are measured, want %d", rate, duration, warmup, measured, want)
		}
	}
	f(100, 0, time.Second, 100)
	f(100, time.Second, time.Second, 100)
	f(3, time.Second, 10*time.Second, 30)
	f(0.3, 0, 10*time.Second, 3)
	f(7, 500*time.Millisecond, 100*time.Millisecond, 1)
	f(0, time.Second, time.Second, 0)
}

func TestTurns(t *testing.T) {
	p := newPlan(time.Now().Add(-time.Hour), Options{Rate: 10, Duration: time.Second})
	if _, ok := p.next(); ok {
		t.Error("an open loop goes on for ever")
	}
	p = newPlan(time.Now(), Options{Duration: time.Hour, Warmup: time.Minute})
	for n := range uint64(3) {
		a, ok := p.next()
		if !ok || a.n != n || a.measured || !a.due.IsZero() {
			t.Errorf("turn %d of a closed loop: %+v, %v", n, a, ok)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	late := turn{due: time.Now().Add(-time.Second)}
	if sent, ok := late.wait(ctx); !ok || !late.from(sent).Equal(late.due) {
		t.Error("what is late is not sent at once, or counts from when it is sent")
	}
	early := turn{due: time.Now().Add(time.Hour)}
	if _, ok := early.wait(ctx); ok {
		t.Error("a turn is waited for although the run is cancelled")
	}
}

// TestHistogram: three digits, and the ends for what is beyond them.
func TestHistogram(t *testing.T) {
	r := newResult()
	for i := range 1000 {
		record(r.client, time.Duration(i+1)*time.Millisecond)
	}
	l := latencies(r.client)
	near := func(what string, got, want float64) {
		t.Helper()
		if got < want*0.998 || got > want*1.002 {
			t.Errorf("%s is %g ms, want %g", what, got, want)
		}
	}
	near("p50", l.P50, 500)
	near("p90", l.P90, 900)
	near("p99", l.P99, 990)
	near("max", l.Max, 1000)
	near("mean", l.Mean, 500.5)
	other := newResult()
	record(other.client, -time.Second)
	record(other.client, time.Hour)
	r.merge(other)
	l = latencies(r.client)
	near("max", l.Max, 600_000)
	if r.client.TotalCount() != 1002 {
		t.Errorf("%d latencies are counted, want 1002", r.client.TotalCount())
	}
	if l := latencies(newHistogram()); l != (Latencies{}) {
		t.Errorf("percentiles of nothing: %+v", l)
	}
}

func TestFailuresAreNoLatencies(t *testing.T) {
	r := newResult()
	measured := turn{measured: true}
	r.fail(measured, &StatusError{Status: 429})
	r.fail(measured, &StatusError{Status: 429})
	r.fail(measured, errors.New("x"))
	r.fail(turn{}, errors.New("x"))
	r.add(turn{}, time.Now(), time.Now(), answer{})
	if r.Failed["status 429"] != 2 || r.failed() != 3 || r.client.TotalCount() != 0 {
		t.Errorf("%v, %d latencies", r.Failed, r.client.TotalCount())
	}
}
