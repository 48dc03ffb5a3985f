package load

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Result is what a run measured.
type Result struct {
	Loop        string  `json:"loop"` // "open" or "closed"
	Connections int     `json:"connections"`
	Rate        float64 `json:"rate,omitzero"` // that an open loop was asked for, a second
	Seconds     float64 `json:"seconds"`       // from the first to the last measured moment

	Answered uint64            `json:"answered"`
	Unsent   uint64            `json:"unsent"` // due in an open loop, and never sent: the server was too slow
	NotExact uint64            `json:"not_exact"`
	Failed   map[string]uint64 `json:"failed"` // by reason
	PerSec   float64           `json:"answered_per_second"`

	Client Latencies `json:"client"`    // from when the request was due, or sent in a closed loop
	Server Latencies `json:"server"`    // as answers say: timings_us.total
	Late   Latencies `json:"sent_late"` // open loop: from due to sent; the generator's own share where the server is quick

	client, server, late *hdrhistogram.Histogram // nanoseconds
	firstError           error
}

// Latencies are percentiles in milliseconds.
type Latencies struct {
	Mean float64 `json:"mean_ms"`
	P50  float64 `json:"p50_ms"`
	P90  float64 `json:"p90_ms"`
	P99  float64 `json:"p99_ms"`
	P999 float64 `json:"p99.9_ms"`
	Max  float64 `json:"max_ms"`
}

// newHistogram counts latencies of up to ten minutes with three significant
// digits, none finer than 64 ns.
func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(64, int64(10*time.Minute), 3)
}

func newResult() *Result {
	return &Result{Failed: map[string]uint64{}, client: newHistogram(), server: newHistogram(), late: newHistogram()}
}

// record counts a latency; what is out of the histogram's range counts as its
// end.
func record(h *hdrhistogram.Histogram, d time.Duration) {
	v := min(max(int64(d), 0), h.HighestTrackableValue())
	_ = h.RecordValue(v) // in range
}

// add counts an answered request.
func (r *Result) add(t turn, sent, now time.Time, a answer) {
	if !t.measured {
		return
	}
	r.Answered++
	record(r.client, now.Sub(t.from(sent)))
	record(r.late, sent.Sub(t.from(sent)))
	if a.timed {
		record(r.server, a.server)
	}
	if !a.exact {
		r.NotExact++
	}
}

// fail counts a request that was not answered well. It is in no percentile:
// how many there are is said beside them.
func (r *Result) fail(t turn, err error) {
	if r.firstError == nil {
		r.firstError = err
	}
	if t.measured {
		r.Failed[reasonOf(err)]++
	}
}

// reasonOf is a short name of an error, of which there are few.
func reasonOf(err error) string {
	var status *StatusError
	var op *net.OpError
	switch {
	case errors.As(err, &status):
		return fmt.Sprintf("status %d", status.Status)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "timeout"
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return "closed"
	case errors.As(err, &op):
		return op.Op
	}
	return "protocol"
}

func (r *Result) merge(o *Result) {
	r.Answered += o.Answered
	r.NotExact += o.NotExact
	for reason, n := range o.Failed {
		r.Failed[reason] += n
	}
	if r.firstError == nil {
		r.firstError = o.firstError
	}
	r.client.Merge(o.client)
	r.server.Merge(o.server)
	r.late.Merge(o.late)
}

// failed is the number of failed requests.
func (r *Result) failed() (n uint64) {
	for _, k := range r.Failed {
		n += k
	}
	return n
}

// finish computes what follows from the counts.
func (r *Result) finish(o Options, p *plan, now time.Time) {
	r.Connections, r.Rate, r.Loop = o.Connections, o.Rate, "closed"
	r.Seconds = max(0, now.Sub(p.measured).Seconds())
	if o.Rate > 0 {
		r.Loop = "open"
		if done := r.Answered + r.failed(); done < p.planned() {
			r.Unsent = p.planned() - done
		}
	}
	if r.Seconds > 0 {
		r.PerSec = float64(r.Answered) / r.Seconds
	}
	r.Client, r.Server, r.Late = latencies(r.client), latencies(r.server), latencies(r.late)
}

func latencies(h *hdrhistogram.Histogram) Latencies {
	if h.TotalCount() == 0 {
		return Latencies{}
	}
	ms := func(ns float64) float64 { return ns / float64(time.Millisecond) }
	at := func(p float64) float64 { return ms(float64(h.ValueAtPercentile(p))) }
	return Latencies{ms(h.Mean()), at(50), at(90), at(99), at(99.9), ms(float64(h.Max()))}
}

// Bad is the number of requests that failed, were never sent, or were answered
// with a state that is not exact.
func (r *Result) Bad() uint64 { return r.failed() + r.Unsent + r.NotExact }
