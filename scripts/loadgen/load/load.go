// Package load sends queries to a kvindex and measures what its callers see.
//
// # Two loops
//
// An open loop sends at a rate, whatever the answers take, as independent
// callers do. A request's latency counts from when it was due, not from when a
// connection was free to send it: a server that stalls for a second delays all
// the requests of that second, and each of them is in the percentiles. A closed
// loop keeps every connection busy and so finds the throughput; its latencies
// say little, for a slow answer keeps the next question from being asked.
//
// # What it costs
//
// The generator often shares the processors with what it measures. So bodies
// are made before they are needed where possible, a connection is a socket with
// a small HTTP/1.1 client that reads what kvindex writes (a status line,
// Content-Length, a body), and of an answer only its state and its own timing
// are looked at.
package load

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// Source makes the bodies of requests. It is called by many goroutines at once.
type Source interface {
	// Body returns the body of request n. One that is made for it is made in
	// buf, which the caller keeps for its next call; callers only read it.
	Body(n uint64, buf *[]byte) []byte
}

// Options say what to send. URL and Source are required.
type Options struct {
	URL    *url.URL // of the route, http://HOST:PORT/v1/query
	Token  string   // bearer token, "" for none
	Source Source

	// Rate is requests a second of an open loop, 0 for a closed loop.
	Rate float64
	// Connections are kept alive and carry one request at a time (8).
	Connections int
	// Duration is for how long requests are sent and measured (10 s); what is
	// sent in the Warmup before it is not measured.
	Warmup, Duration time.Duration
	// Timeout is how long one answer may take (10 s).
	Timeout time.Duration

	// Progress is called once a second by one goroutine; it may be nil.
	Progress func(Progress)
}

// Progress is what has happened so far.
type Progress struct {
	Elapsed          time.Duration
	Answered, Failed uint64
}

// Validate fills in defaults and reports what makes no sense.
func (o *Options) Validate() error {
	if o.Connections == 0 {
		o.Connections = 8
	}
	if o.Duration == 0 {
		o.Duration = 10 * time.Second
	}
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	switch {
	case o.URL == nil || o.URL.Host == "":
		return errors.New("there is no URL to send to")
	case o.URL.Scheme != "http":
		return fmt.Errorf("cannot send to %s: only http is spoken", o.URL.Redacted())
	case o.Source == nil:
		return errors.New("there is nothing to send")
	case o.Rate < 0 || o.Connections < 0 || o.Warmup < 0 || o.Duration < 0 || o.Timeout < 0:
		return errors.New("a rate, a number or a time is negative")
	}
	return nil
}

// Run sends requests until the time is over, or ctx, and returns what was
// measured. Requests that fail are counted by reason and are no error of Run,
// unless every one fails.
func Run(ctx context.Context, o Options) (*Result, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	r := &run{o: o, plan: newPlan(time.Now(), o)}
	results := make([]*Result, o.Connections)
	var wg sync.WaitGroup
	for i := range results {
		results[i] = newResult()
		wg.Go(func() { r.work(ctx, results[i]) })
	}
	done := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() { r.watch(done) })
	wg.Wait()
	close(done)
	watch.Wait()
	all := newResult()
	for _, w := range results {
		all.merge(w)
	}
	all.finish(o, r.plan, time.Now())
	if all.Answered == 0 && all.firstError != nil {
		return all, fmt.Errorf("every request failed: %w", all.firstError)
	}
	return all, nil
}

// run is one Run.
type run struct {
	o                Options
	plan             *plan
	answered, failed atomic.Uint64
}

// work is one connection.
func (r *run) work(ctx context.Context, res *Result) {
	c := newConn(r.o)
	defer c.close()
	stop := context.AfterFunc(ctx, c.close)
	defer stop()
	var buf []byte
	for ctx.Err() == nil {
		t, ok := r.plan.next()
		if !ok {
			return
		}
		// The body is made before the request is due.
		body := r.o.Source.Body(t.n, &buf)
		sent, ok := t.wait(ctx)
		if !ok {
			return
		}
		a, err := c.ask(body)
		now := time.Now()
		if ctx.Err() != nil {
			return // the request was cut off, not answered badly
		}
		if err != nil {
			r.failed.Add(1)
			res.fail(t, err)
			continue
		}
		r.answered.Add(1)
		res.add(t, sent, now, a)
	}
}

// watch reports progress until done.
func (r *run) watch(done <-chan struct{}) {
	if r.o.Progress == nil {
		return
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case now := <-tick.C:
			r.o.Progress(Progress{now.Sub(r.plan.begin), r.answered.Load(), r.failed.Load()})
		}
	}
}
