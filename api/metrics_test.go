package api

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
)

// gather returns the metric families of kvindex's own.
func gather(t *testing.T, r *rig) []*dto.MetricFamily {
	t.Helper()
	all, err := r.srv.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(f *dto.MetricFamily) bool { return !strings.HasPrefix(f.GetName(), "kvindex_") })
}

// TestMetricNames keeps names, types, help and labels: dashboards and alerts
// are built on them.
func TestMetricNames(t *testing.T) {
	r := fleetOfThree(t, withDemoTokenizer(t))
	r.post("/v1/query", `{"model":"`+testModel+`","token_ids":`+tokensJSON(small())+`}`, 200)
	r.do("GET", "/nowhere", "")
	var out bytes.Buffer
	for _, f := range gather(t, r) {
		labels := map[string]bool{}
		for _, m := range f.Metric {
			for _, l := range m.Label {
				labels[l.GetName()] = true
			}
		}
		fmt.Fprintf(&out, "%s %s {%s}\n    %s\n", strings.ToLower(f.GetType().String()), f.GetName(),
			strings.Join(sortedKeys(labels), ","), f.GetHelp())
	}
	golden(t, "metrics.golden", out.Bytes())
}

// value returns the sum of a metric over the series with the given labels.
func value(t *testing.T, r *rig, name string, labels ...string) (sum float64) {
	t.Helper()
	for _, f := range gather(t, r) {
		if f.GetName() != name {
			continue
		}
	series:
		for _, m := range f.Metric {
			for i := 0; i < len(labels); i += 2 {
				if !slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool { return l.GetName() == labels[i] && l.GetValue() == labels[i+1] }) {
					continue series
				}
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

func TestMetricValues(t *testing.T) {
	r := fleetOfThree(t)
	for range 3 {
		r.post("/v1/query", `{"model":"`+testModel+`","token_ids":`+tokensJSON(small())+`}`, 200)
	}
	r.post("/v1/query", `{"model":"`+testModel+`","prompt":"x"}`, 200)
	r.post("/v1/query", `{"model":"made up","token_ids":[1]}`, 200)
	r.post("/v1/query", `{"model":"`+testModel+`"}`, 400)
	f := func(want float64, name string, labels ...string) {
		t.Helper()
		if got := value(t, r, name, labels...); got != want {
			t.Errorf("%s%v = %v, want %v", name, labels, got, want)
		}
	}
	f(5, "kvindex_http_requests_total", "route", "/v1/query", "method", "POST", "code", "200")
	f(1, "kvindex_http_requests_total", "route", "/v1/query", "code", "400")
	f(6, "kvindex_http_request_duration_seconds", "route", "/v1/query")
	f(0, "kvindex_http_requests_in_flight")
	f(3, "kvindex_queries_total", "state", "exact")
	f(1, "kvindex_queries_total", "state", "unknown")
	f(1, "kvindex_queries_total", "state", "cold")
	f(4, "kvindex_match_duration_seconds")
	f(3*80, "kvindex_query_prompt_tokens_total", "model", testModel)
	f(3*80, "kvindex_query_best_matched_tokens_total", "model", testModel)
	f(0, "kvindex_query_prompt_tokens_total", "model", "made up")
	f(3, "kvindex_streams", "state", "live")
	f(0, "kvindex_streams", "state", "gone")
	f(3, "kvindex_instances", "model", testModel, "state", "live")
	f(5, "kvindex_unique_blocks", "model", testModel, "block_size", "16")
	f(40, "kvindex_batches_total", "instance", "pod-1.default", "dp_rank", "0", "result", "applied")
	f(1, "kvindex_stream_live", "instance", "pod-2.default")
	f(7, "kvindex_stream_blocks", "instance", "pod-2.default", "tier", "gpu")
	f(1, "kvindex_ready")

	// Paths and methods that clients make up add no series.
	for i := range 50 {
		r.do("GET", fmt.Sprintf("/made/up/%d", i), "")
		r.do("BREW", "/v1/query", "")
		r.do("GET", fmt.Sprintf("/v1/instances/%d", i), "")
	}
	f(50, "kvindex_http_requests_total", "route", "none", "code", "404")
	f(50, "kvindex_http_requests_total", "route", "none", "method", "other", "code", "405")
	f(50, "kvindex_http_requests_total", "route", "/v1/instances/{id}", "code", "404")

	// A series ends with its instance.
	r.post("/unregister", `{"instance_id":"pod-1.default"}`, 200)
	f(0, "kvindex_batches_total", "instance", "pod-1.default")
	if body := text(t, r.do("GET", "/metrics", "")); !strings.Contains(body, "\ngo_goroutines ") {
		t.Error("the Go runtime's metrics are missing")
	}
}
