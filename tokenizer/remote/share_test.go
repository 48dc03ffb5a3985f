package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

func TestSharedCall(t *testing.T) {
	e := newEngine(t, map[string]answer{chatRender: rendered12})
	e.hold = make(chan struct{})
	r := newRig(t, Options{}, e.target("a"))

	// The first of five, which began the call, does not wait for its end.
	const n = 5
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	errs := make([]error, n)
	got := make([][]uint32, n)
	ask := func(ctx context.Context, i int) {
		wg.Go(func() { got[i], errs[i] = r.Tokens(ctx, "m", Chat, []byte(chatBody)) })
	}
	ask(ctx, 0)
	eventually(t, "the engine is asked", func() bool { return r.Stats().InFlight == 1 })
	for i := 1; i < n; i++ {
		ask(t.Context(), i)
	}
	eventually(t, "the others wait too", func() bool { return r.Stats().Shared == n-1 })
	cancel()
	eventually(t, "the first has gone", func() bool { return r.Stats().Results[ResultEnded] == 1 })
	close(e.hold)
	wg.Wait()
	if !errors.Is(errs[0], context.Canceled) {
		t.Errorf("error %v of the first, want canceled", errs[0])
	}
	for i := 1; i < n; i++ {
		if errs[i] != nil {
			t.Errorf("error of %d: %v", i, errs[i])
		}
		want(t, "tokens", got[i], ids(1, 2))
		got[i][0] = 99 // is its caller's own
	}
	want(t, "paths", e.paths(), []string{chatRender})

	// Later, and with anything different, the engine is asked again.
	for _, f := range []struct {
		model string
		kind  Kind
		body  string
	}{{"m", Chat, chatBody}, {"m2", Chat, chatBody}, {"m", Chat, chatBody + " "}} {
		if _, err := r.Tokens(t.Context(), f.model, f.kind, []byte(f.body)); err != nil {
			t.Error(err)
		}
	}
	want(t, "requests", len(e.requests()), 3)
}

// A call that nobody waits for any more is ended; that is nobody's failure.
func TestAllGone(t *testing.T) {
	e := newEngine(t, map[string]answer{chatRender: rendered12})
	hold := make(chan struct{})
	e.hold = hold
	r := newRig(t, Options{}, e.target("a"))
	for range breakerFailures + 1 {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if _, err := r.Tokens(ctx, "m", Chat, []byte(chatBody)); !errors.Is(err, context.Canceled) {
					t.Errorf("error %v, want canceled", err)
				}
			})
		}
		eventually(t, "the engine is asked", func() bool { return r.Stats().InFlight == 1 })
		cancel()
		wg.Wait()
		eventually(t, "the call ends", func() bool { return r.Stats().InFlight == 0 })
	}
	if st := r.targetStats(t, "a"); st.Failures != 0 || st.Breaker != BreakerClosed {
		t.Errorf("%+v", st)
	}
	close(hold)
	if _, err := r.chat(); err != nil {
		t.Error(err)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Tokens(done, "m", Chat, []byte(chatBody)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want canceled", err)
	}
}

func TestLimitsInFlight(t *testing.T) {
	engines, targets := newEngines(t, 3)
	hold := make(chan struct{})
	for _, e := range engines {
		e.hold = hold
	}
	r := newRig(t, Options{MaxInFlight: 5, MaxPerTarget: 2}, targets...)
	var wg sync.WaitGroup
	for i := range 5 {
		wg.Go(func() {
			if _, err := r.Tokens(t.Context(), "m", Completion, fmt.Appendf(nil, `{"prompt":"%d"}`, i)); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, "all are asked", func() bool { return r.Stats().InFlight == 5 })
	full := ""
	for _, s := range r.Stats().Targets {
		if s.InFlight > 2 {
			t.Errorf("%d in flight at %s", s.InFlight, s.ID)
		}
		if s.InFlight == 2 {
			full = s.ID
		}
	}
	if _, err := r.chat(); !errors.Is(err, ErrSaturated) {
		t.Errorf("error %v in all, want ErrSaturated", err)
	}
	for _, target := range targets {
		if target.ID != full {
			continue
		}
		if _, err := r.TokensFrom(t.Context(), target, Chat, []byte(chatBody)); !errors.Is(err, ErrSaturated) {
			t.Errorf("error %v at one engine, want ErrSaturated", err)
		}
	}
	close(hold)
	wg.Wait()
	if _, err := r.chat(); err != nil {
		t.Error(err)
	}
}

func TestTimeout(t *testing.T) {
	e := newEngine(t, map[string]answer{chatRender: rendered12})
	hold := make(chan struct{})
	e.hold = hold
	r := newRig(t, Options{Timeout: time.Millisecond}, e.target("a"))
	for range breakerFailures {
		if _, err := r.chat(); !errors.Is(err, ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want ErrUnavailable", err)
		}
	}
	want(t, "state", r.targetStats(t, "a").Breaker, BreakerOpen)

	// A deadline of the caller says nothing about the engine.
	r = newRig(t, Options{}, e.target("a"))
	for range breakerFailures {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if _, err := r.TokensFrom(ctx, e.target("a"), Chat, []byte(chatBody)); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrUnavailable) {
			t.Errorf("error %v, want the context's", err)
		}
		cancel()
	}
	want(t, "state", r.targetStats(t, "a").Breaker, BreakerClosed)
	close(hold)
}

func TestClose(t *testing.T) {
	e := newEngine(t, map[string]answer{chatRender: rendered12})
	e.hold = make(chan struct{}) // for ever
	r := newRig(t, Options{ScrapeEvery: time.Millisecond}, e.target("a"))
	errs := make(chan error, 1)
	go func() {
		_, err := r.chat()
		errs <- err
	}()
	eventually(t, "the engine is asked", func() bool { return r.Stats().InFlight == 1 })
	r.Close()
	if err := <-errs; !errors.Is(err, ErrClosed) {
		t.Errorf("error %v, want ErrClosed", err)
	}
	if _, err := r.chat(); !errors.Is(err, ErrClosed) {
		t.Errorf("error %v after Close, want ErrClosed", err)
	}
	if _, err := r.TokensFrom(t.Context(), e.target("a"), Chat, []byte(chatBody)); !errors.Is(err, ErrClosed) {
		t.Errorf("error %v after Close, want ErrClosed", err)
	}
	if st := r.targetStats(t, "a"); st.Failures != 0 {
		t.Errorf("%+v", st)
	}
}
