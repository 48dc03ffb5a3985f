package remote

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

func newEngines(t *testing.T, n int) (engines []*engine, targets []Target) {
	for i := range n {
		e := newEngine(t, map[string]answer{chatRender: rendered12, completionRender: rendered12})
		engines = append(engines, e)
		targets = append(targets, e.target(string(rune('a'+i))))
	}
	return engines, targets
}

func TestChoiceByLoad(t *testing.T) {
	engines, targets := newEngines(t, 4)
	r := newRig(t, Options{MaxWaiting: 10}, targets...)
	f := func(want ...int) {
		t.Helper()
		got := map[int]bool{}
		for range 40 {
			if _, err := r.chat(); err != nil {
				t.Fatal(err)
			}
			for i, e := range engines {
				if len(e.requests()) > 0 {
					got[i] = true
				}
			}
		}
		for _, i := range want {
			if !got[i] {
				t.Errorf("engine %d was not asked", i)
			}
		}
		if len(got) != len(want) {
			t.Errorf("asked were %v, want %v", got, want)
		}
	}
	load := func(i int, waiting, running float64) { r.setLoad(targets[i], waiting, running) }

	f(0, 1, 2, 3) // nothing is known: any
	load(0, 9, 9)
	f(0) // known before unknown
	load(1, 8, 20)
	f(1) // fewest waiting
	load(2, 8, 19)
	f(2) // then fewest running
	load(3, 8, 19)
	f(2, 3) // then any
	load(2, 11, 0)
	load(3, 10, 0)
	f(1) // saturated are not asked
	load(0, 11, 0)
	load(1, 11, 0)
	f(3)
	load(3, 11, 0)
	if _, err := r.chat(); !errors.Is(err, ErrSaturated) {
		t.Errorf("error %v with all saturated, want ErrSaturated", err)
	}
	if st := r.targetStats(t, "d"); !st.Saturated || !st.LoadKnown || st.Load.Waiting != 11 {
		t.Errorf("stats of a saturated engine: %+v", st)
	}

	// What was true long ago is not known.
	r.clock.add(2 * time.Minute)
	f(0, 1, 2, 3)
}

func TestNoTarget(t *testing.T) {
	f := func(targets ...Target) {
		t.Helper()
		r := newRig(t, Options{}, targets...)
		if _, err := r.chat(); !errors.Is(err, ErrNoTarget) {
			t.Errorf("error %v, want ErrNoTarget", err)
		}
		want(t, "results", r.Stats().Results, map[Result]uint64{ResultNoTarget: 1})
	}
	f()
	f(Target{ID: "a"}, Target{ID: "b", Model: "m"})

	c, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Tokens(t.Context(), "m", Chat, []byte(chatBody)); !errors.Is(err, ErrNoTarget) {
		t.Errorf("error %v, want ErrNoTarget", err)
	}
	if _, err := c.TokensFrom(t.Context(), Target{}, Chat, []byte(chatBody)); !errors.Is(err, ErrNoTarget) {
		t.Errorf("error %v, want ErrNoTarget", err)
	}
}

// deadURL is an address where nobody listens.
func deadURL(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

func TestRetryElsewhere(t *testing.T) {
	good := newEngine(t, map[string]answer{chatRender: rendered12})
	f := func(bad *engine, url string, wantErr error) {
		t.Helper()
		first := Target{ID: "bad", URL: url}
		r := newRig(t, Options{}, first, good.target("good"))
		r.setLoad(first, 0, 0) // it is chosen first
		got, err := r.chat()
		if err != nil {
			t.Fatal(err)
		}
		want(t, "tokens", got, ids(1, 2))
		want(t, "paths", good.paths(), []string{chatRender})
		if st := r.Stats(); st.Retries != 1 || st.InFlight != 0 {
			t.Errorf("stats %+v", st)
		}
		if bad != nil {
			want(t, "paths at the bad one", bad.paths(), []string{chatRender})
		}

		// Alone, its error is the answer.
		r = newRig(t, Options{}, first)
		if _, err := r.chat(); !errors.Is(err, wantErr) {
			t.Errorf("error %v, want %v", err, wantErr)
		}
		if bad != nil {
			bad.requests()
		}
	}
	f(nil, deadURL(t), ErrUnavailable)
	f(nil, "ftp://x", ErrUnavailable)
	f(nil, "http://%zz", ErrUnavailable)
	for _, status := range []int{500, 502, 503} {
		e := newEngine(t, map[string]answer{chatRender: {status: status}})
		f(e, e.URL, ErrUnavailable)
	}
	e := newEngine(t, map[string]answer{chatRender: {status: 429}})
	f(e, e.URL, ErrSaturated)
}

// What is wrong with the request is wrong everywhere.
func TestNoRetry(t *testing.T) {
	good := newEngine(t, map[string]answer{chatRender: rendered12})
	f := func(a answer, wantErr error) {
		t.Helper()
		bad := newEngine(t, map[string]answer{chatRender: a})
		r := newRig(t, Options{MaxAnswerBytes: 100}, bad.target("bad"), good.target("good"))
		r.setLoad(bad.target("bad"), 0, 0)
		for range 2 * breakerFailures {
			if _, err := r.chat(); !errors.Is(err, wantErr) {
				t.Fatalf("error %v, want %v", err, wantErr)
			}
		}
		want(t, "paths", good.paths(), nil)
		if st := r.targetStats(t, "bad"); st.Breaker != BreakerClosed || st.Failures != 0 {
			t.Errorf("%+v", st)
		}
	}
	for _, status := range []int{400, 401, 403, 413, 422} {
		f(answer{status: status}, ErrRefused)
	}
	f(noModel, ErrRefused)
	f(answer{body: "no JSON"}, ErrAnswer)
	f(answer{body: `{"token_ids":[` + strings.Repeat("1,", 50) + `1]}`}, ErrAnswer)
	f(answer{status: 302}, ErrAnswer)
	f(answer{status: 204}, ErrAnswer)
}

func TestBreaker(t *testing.T) {
	e := newEngine(t, map[string]answer{chatRender: {status: 500}})
	r := newRig(t, Options{}, e.target("a"))
	f := func(asked int, state BreakerState) {
		t.Helper()
		_, err := r.chat()
		if !errors.Is(err, ErrUnavailable) {
			t.Fatalf("error %v, want ErrUnavailable", err)
		}
		want(t, "times asked", len(e.requests()), asked)
		want(t, "state", r.targetStats(t, "a").Breaker, state)
	}
	f(1, BreakerClosed)
	f(1, BreakerClosed)
	f(1, BreakerOpen)
	f(0, BreakerOpen)
	pause := time.Second
	for range 8 {
		r.clock.add(pause - time.Nanosecond)
		f(0, BreakerOpen)
		r.clock.add(time.Nanosecond)
		want(t, "state after the pause", r.targetStats(t, "a").Breaker, BreakerHalfOpen)
		f(1, BreakerOpen)
		pause = min(2*pause, 30*time.Second)
	}
	// A success is the end of it, and of the failures that were counted.
	e.set(chatRender, rendered12)
	r.clock.add(30 * time.Second)
	if _, err := r.chat(); err != nil {
		t.Fatal(err)
	}
	want(t, "state", r.targetStats(t, "a").Breaker, BreakerClosed)
	e.set(chatRender, answer{status: 500})
	e.requests()
	f(1, BreakerClosed)

	// The log has the ends of it, not every request.
	if log := r.log.String(); strings.Count(log, "engine fails") != 1 || strings.Count(log, "asked for tokens again") != 1 {
		t.Errorf("log:\n%s", log)
	}
}

// While one request tries, others stay away; one that its caller ended tells
// nothing.
func TestHalfOpenIsOneRequest(t *testing.T) {
	now := time.Unix(0, 0)
	var b breaker
	for range breakerFailures {
		if !b.ready(now) || b.claim() {
			t.Fatal("a closed breaker keeps requests away, or calls them a try")
		}
		b.fail(now, false)
	}
	now = now.Add(breakerFirst)
	if !b.ready(now) || !b.claim() || b.ready(now) || b.state(now) != BreakerHalfOpen {
		t.Fatalf("not one try: %+v", b)
	}
	b.fail(now, false) // an older request: says nothing
	if b.pause != breakerFirst || !b.probing {
		t.Fatalf("an older request counted: %+v", b)
	}
	b.release()
	if !b.ready(now) || !b.claim() {
		t.Fatalf("no other try: %+v", b)
	}
	b.fail(now, true)
	if b.pause != 2*breakerFirst || b.ready(now) {
		t.Fatalf("the pause did not double: %+v", b)
	}
	b.succeed()
	if !b.ready(now) || b.state(now) != BreakerClosed {
		t.Fatalf("still open: %+v", b)
	}
}
