package api

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what the API counts of itself. Labels have few values whatever
// requests say: routes are templates, models those that are followed.
type metrics struct {
	inFlight prometheus.Gauge
	requests *prometheus.CounterVec   // route, method, code
	duration *prometheus.HistogramVec // route

	queries       *prometheus.CounterVec // state
	matchDuration prometheus.Histogram
	promptTokens  *prometheus.CounterVec // model
	matchedTokens *prometheus.CounterVec // model
	flat          *prometheus.CounterVec // result
}

// newMetrics makes the metrics and registers them, and those of the fleet and
// the index, in r.
func newMetrics(r prometheus.Registerer, s *Server) (*metrics, error) {
	m := &metrics{
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kvindex_http_requests_in_flight",
			Help: "Requests being answered now.",
		}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kvindex_http_requests_total",
			Help: "Requests answered, by route template, method and status code.",
		}, []string{"route", "method", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kvindex_http_request_duration_seconds",
			Help:    "Time from a request's header to the end of its response.",
			Buckets: []float64{50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 1, 5},
		}, []string{"route"}),
		queries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kvindex_queries_total",
			Help: "Queries answered, by the state of the answer: exact, degraded, cold, unknown.",
		}, []string{"state"}),
		matchDuration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "kvindex_match_duration_seconds",
			Help:    "Time to hash a prompt and find who holds how much of it.",
			Buckets: []float64{1e-6, 2e-6, 5e-6, 10e-6, 20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 100e-3},
		}),
		promptTokens: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kvindex_query_prompt_tokens_total",
			Help: "Tokens of the prompts that were asked for, in full blocks.",
		}, []string{"model"}),
		matchedTokens: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kvindex_query_best_matched_tokens_total",
			Help: "Leading tokens of those prompts that the best instance held.",
		}, []string{"model"}),
		flat: newFlatCounter(),
	}
	for _, c := range []prometheus.Collector{
		m.inFlight, m.requests, m.duration, m.queries, m.matchDuration, m.promptTokens, m.matchedTokens, m.flat,
		newFleetCollector(s), newTokenizerCollector(s),
	} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("cannot register metrics: %w", err)
		}
	}
	for _, state := range []AnswerState{Exact, Partial, Cold, NoTokens} {
		m.queries.WithLabelValues(string(state))
	}
	return m, nil
}

// observer returns a function that counts one request of a route.
func (m *metrics) observer(route string) func(method string, status int, took time.Duration) {
	duration := m.duration.WithLabelValues(route)
	return func(method string, status int, took time.Duration) {
		duration.Observe(took.Seconds())
		m.requests.WithLabelValues(route, methodLabel(method), strconv.Itoa(status)).Inc()
	}
}

// methodLabel is the method, or "other" for one that a client made up.
func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodOptions:
		return method
	}
	return "other"
}

// query counts an answered query.
func (m *metrics) query(ma *matcher, q *queryRequest, sum summary) {
	m.queries.WithLabelValues(string(ma.state)).Inc()
	if q.source == sourceText {
		return
	}
	if ma.flat.on {
		return // another match, of which another system's speed and truth are measured
	}
	m.matchDuration.Observe(ma.matched.Seconds())
	if ma.state == Cold || sum.blockSize == 0 {
		return // the model may be any word of the caller's
	}
	m.promptTokens.WithLabelValues(ma.model).Add(float64(sum.scanned * sum.blockSize))
	if sum.best >= 0 {
		s := &ma.slots[ma.rows[sum.best].slot]
		m.matchedTokens.WithLabelValues(ma.model).Add(float64(s.blocks[q.tier] * ma.blockSize(s.table)))
	}
}
