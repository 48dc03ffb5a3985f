package relay

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvindex/kvindex/events"
	"github.com/kvindex/kvindex/events/natssource"
)

// TestMetricNames holds the names of the metrics against a file: dashboards
// are made of them.
func TestMetricNames(t *testing.T) {
	r, err := New(Options{
		Connect: natssource.ConnectOptions{URL: "nats://127.0.0.1:1"}, Instance: "i", Model: "m",
		Streams: []events.StreamSpec{{Endpoint: "tcp://127.0.0.1:1"}},
		Follow:  func(context.Context, *events.Session) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.lanes[0].open(lastLogged{})
	r.ready.Store(true)
	reg := prometheus.NewRegistry()
	reg.MustRegister(newCollector(r))
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range families {
		labels := map[string]bool{}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = true
			}
		}
		var names []string
		for n := range labels {
			names = append(names, n)
		}
		slices.Sort(names)
		lines = append(lines, f.GetName()+"{"+strings.Join(names, ",")+"} "+strings.ToLower(f.GetType().String()))
	}
	got := strings.Join(lines, "\n") + "\n"
	want, err := os.ReadFile(filepath.Join("testdata", "metrics.golden"))
	if err != nil || string(want) != got {
		t.Errorf("testdata/metrics.golden is not: %v\n%s", err, got)
	}
}
