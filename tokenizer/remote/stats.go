package remote

import (
	"cmp"
	"errors"
	"maps"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Result is how a call of Tokens or TokensFrom ended.
type Result string

// The results.
const (
	ResultOK          Result = "ok"
	ResultNoTarget    Result = "no_target"
	ResultSaturated   Result = "saturated"
	ResultUnavailable Result = "unavailable"
	ResultRefused     Result = "refused"
	ResultUnsupported Result = "unsupported"
	ResultAnswer      Result = "answer"
	ResultBody        Result = "body"
	ResultEnded       Result = "ended" // by the caller's context, or by Close
)

// results are those of errors; what is in none of them is the caller's context.
var results = [...]struct {
	err    error
	result Result
}{
	{ErrNoTarget, ResultNoTarget}, {ErrSaturated, ResultSaturated}, {ErrUnavailable, ResultUnavailable},
	{ErrRefused, ResultRefused}, {ErrUnsupported, ResultUnsupported}, {ErrAnswer, ResultAnswer}, {ErrBody, ResultBody},
}

func resultOf(err error) Result {
	if err == nil {
		return ResultOK
	}
	for _, r := range results {
		if errors.Is(err, r.err) {
			return r.result
		}
	}
	return ResultEnded
}

// latencyBounds are the upper bounds of the latency's buckets, in seconds.
var latencyBounds = [...]float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}

// counters are what Stats counts.
type counters struct {
	shared, retries atomic.Uint64

	mu      sync.Mutex
	results map[Result]uint64
	answers uint64
	sum     time.Duration
	buckets [len(latencyBounds)]uint64 // not cumulative
}

func (c *counters) count(err error) {
	r := resultOf(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.results == nil {
		c.results = map[Result]uint64{}
	}
	c.results[r]++
}

func (c *counters) observe(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers++
	c.sum += d
	if i, _ := slices.BinarySearch(latencyBounds[:], d.Seconds()); i < len(latencyBounds) {
		c.buckets[i]++
	}
}

// Latency is how long engines took to answer, whatever they answered.
type Latency struct {
	Count   uint64
	Sum     time.Duration
	Buckets map[float64]uint64 // cumulative, by upper bound in seconds, as of a Prometheus histogram
}

// TargetStats is how an engine is doing that was asked in the last minutes.
type TargetStats struct {
	ID, URL   string // the URL without a password
	Load      Load
	LoadKnown bool          // if not, Load is zero or of the past
	LoadAge   time.Duration // since the load was read; 0 if it never was
	Saturated bool          // it is not asked for its load
	Breaker   BreakerState
	InFlight  int
	Requests  uint64
	Failures  uint64 // of those
	// Completion and Chat are the paths that told tokens last; empty if none did.
	Completion, Chat string
}

// Stats are counts since New, and how things are now.
type Stats struct {
	Results  map[Result]uint64 // calls of Tokens and TokensFrom
	Shared   uint64            // calls of Tokens that waited for the request of another
	Retries  uint64            // requests that went to a second engine
	InFlight int               // requests at engines now
	Latency  Latency
	Targets  []TargetStats // by ID, then URL
}

// Stats returns how the client and its engines are doing.
func (c *Client) Stats() Stats {
	st := Stats{Shared: c.counters.shared.Load(), Retries: c.counters.retries.Load()}
	c.counters.read(&st)
	c.mu.Lock()
	defer c.mu.Unlock()
	st.InFlight = c.inFlight
	now := c.now()
	for _, s := range c.targets {
		st.Targets = append(st.Targets, c.targetStats(s, now))
	}
	slices.SortFunc(st.Targets, func(a, b TargetStats) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.URL, b.URL))
	})
	return st
}

func (c *counters) read(st *Stats) {
	c.mu.Lock()
	defer c.mu.Unlock()
	st.Results = maps.Clone(c.results)
	st.Latency = Latency{Count: c.answers, Sum: c.sum, Buckets: map[float64]uint64{}}
	var sum uint64
	for i, bound := range latencyBounds {
		sum += c.buckets[i]
		st.Latency.Buckets[bound] = sum
	}
}

func (c *Client) targetStats(s *target, now time.Time) TargetStats {
	t := TargetStats{
		ID: s.key.id, URL: s.key.url, Load: s.load, LoadKnown: c.knows(s, now),
		Breaker: s.breaker.state(now), InFlight: s.inFlight, Requests: s.requests, Failures: s.failures,
		Completion: s.endpoint[Completion], Chat: s.endpoint[Chat],
	}
	if u, err := url.Parse(t.URL); err == nil {
		t.URL = u.Redacted()
	}
	if !s.loadAt.IsZero() {
		t.LoadAge = now.Sub(s.loadAt)
	}
	t.Saturated = t.LoadKnown && s.load.Waiting > float64(c.o.MaxWaiting)
	return t
}
