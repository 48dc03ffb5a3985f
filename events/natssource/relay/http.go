package relay

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

func itoa(n int) string { return strconv.Itoa(n) }

// Handler serves /healthz (the process runs), /readyz (batches flow) and
// /metrics.
func (r *Relay) Handler() http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), newCollector(r))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		ok, awaited := r.Ready()
		if !ok {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintln(w, strings.Join(awaited, "\n"))
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	return mux
}

// collector shows the reports as metrics.
type collector struct {
	relay                          *Relay
	batches, requests              *prometheus.Desc
	failures, boots, fetches       *prometheus.Desc
	waiting, buffered, bytes       *prometheus.Desc
	up, connected, answered, taken *prometheus.Desc
}

func newCollector(r *Relay) *collector {
	d := func(name, help string, more ...string) *prometheus.Desc {
		return prometheus.NewDesc("kvindex_relay_"+name, help, append([]string{"dp_rank"}, more...), nil)
	}
	return &collector{
		relay:     r,
		taken:     d("engine_batches_total", "Batches taken from the engine, in order."),
		batches:   d("batches_total", "Batches by what became of them: published, duplicate, let_go, too_large.", "result"),
		failures:  d("publish_failures_total", "Attempts to publish that failed and were repeated."),
		boots:     d("boots_total", "Boot ids made: processes of the engine."),
		requests:  d("requests_total", "Requests of readers for batches."),
		answered:  d("answered_batches_total", "Batches sent to readers that asked."),
		fetches:   d("fetches_total", "Replays of the engine, for readers."),
		waiting:   d("waiting_batches", "Batches that wait for NATS."),
		buffered:  d("buffered_batches", "Batches in the buffer, published or not."),
		bytes:     d("buffered_bytes", "Bytes of the batches in the buffer."),
		up:        d("engine_up", "1 if the engine is connected."),
		connected: prometheus.NewDesc("kvindex_relay_nats_up", "1 if NATS is connected.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.taken, c.batches, c.failures, c.boots, c.requests, c.answered, c.fetches,
		c.waiting, c.buffered, c.bytes, c.up, c.connected} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	one := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	ch <- prometheus.MustNewConstMetric(c.connected, prometheus.GaugeValue, one(c.relay.up.Load()))
	for _, r := range c.relay.Reports() {
		rank := itoa(r.Rank)
		for d, v := range map[*prometheus.Desc]uint64{
			c.taken: r.Batches, c.failures: r.Failures, c.boots: r.Boots,
			c.requests: r.Requests, c.answered: r.Answered, c.fetches: r.Fetches,
		} {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), rank)
		}
		for result, v := range map[string]uint64{"published": r.Published, "duplicate": r.Duplicates, "let_go": r.LetGo, "too_large": r.TooLarge} {
			ch <- prometheus.MustNewConstMetric(c.batches, prometheus.CounterValue, float64(v), rank, result)
		}
		for d, v := range map[*prometheus.Desc]int{c.waiting: r.Waiting, c.buffered: r.Buffered, c.bytes: r.Bytes} {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), rank)
		}
		ch <- prometheus.MustNewConstMetric(c.up, prometheus.GaugeValue, one(r.Up), rank)
	}
}
