package discovery

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kvindex/kvindex/events"
)

func TestDescribe(t *testing.T) {
	// What vLLM 0.32.0 answers with --data-parallel-size 2, shortened.
	const sources = `{"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:5657","buffer_steps":10000,"hwm":100000,"max_queue_size":100000,"topic":""},
		"1":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5558","replay_endpoint":"tcp://*:5658","topic":""}}`
	const models = `{"object":"list","data":[{"id":"ada","parent":"tiny"},{"id":"tiny","parent":null}]}`
	f := func(name, sources, models string, spec events.InstanceSpec, want events.InstanceSpec, missing string) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body := map[string]string{"/kv_event_sources": sources, "/v1/models": models}[r.URL.Path]
				if body == "" {
					http.NotFound(w, r)
					return
				}
				_, _ = w.Write([]byte(body))
			}))
			defer srv.Close()
			spec.URL = srv.URL + "/"
			got, err := Describe(t.Context(), srv.Client(), spec)
			if missing != "" {
				var de *DescribeError
				if !errors.As(err, &de) || strings.Join(de.Missing, ",") != missing {
					t.Fatalf("error %v; want one that misses %s", err, missing)
				}
				if de.Silent {
					t.Error("an engine that answers counts as silent")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want.URL = srv.URL
			if want.ID == "" {
				want.ID = strings.TrimPrefix(srv.URL, "http://")
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
		})
	}
	two := []events.StreamSpec{
		{Rank: 0, Endpoint: "tcp://127.0.0.1:5557", ReplayEndpoint: "tcp://127.0.0.1:5657"},
		{Rank: 1, Endpoint: "tcp://127.0.0.1:5558", ReplayEndpoint: "tcp://127.0.0.1:5658"},
	}
	f("two ranks", sources, models, events.InstanceSpec{}, events.InstanceSpec{Model: "tiny", Streams: two}, "")
	f("what is given stays", sources, models, events.InstanceSpec{ID: "p", Model: "m"}, events.InstanceSpec{ID: "p", Model: "m", Streams: two}, "")
	f("an old engine", "", models, events.InstanceSpec{}, events.InstanceSpec{}, "endpoint")
	f("no events", `{}`, models, events.InstanceSpec{}, events.InstanceSpec{}, "endpoint")
	f("publisher null", `{"0":{"publisher":"null","endpoint":"tcp://*:5557"}}`, models, events.InstanceSpec{}, events.InstanceSpec{}, "endpoint")
	f("nothing at all", "", "", events.InstanceSpec{}, events.InstanceSpec{}, "endpoint,model")
	f("no JSON", "<html>", "[", events.InstanceSpec{}, events.InstanceSpec{}, "endpoint,model")
}

func TestDialable(t *testing.T) {
	f := func(bind, want string) {
		t.Helper()
		got, err := Dialable(bind, "10.0.0.7")
		if (err != nil) != (want == "") || got != want {
			t.Errorf("Dialable(%q) = %q, %v; want %q", bind, got, err, want)
		}
	}
	f("tcp://*:5557", "tcp://10.0.0.7:5557")
	f("tcp://[::]:5557", "tcp://10.0.0.7:5557")
	f("tcp://10.9.9.9:5557", "tcp://10.9.9.9:5557")
	f("tcp://*:0", "")
	f("ipc:///tmp/x", "")
	f("inproc://x", "")
}

func TestRanks(t *testing.T) {
	got, err := Ranks("tcp://h:5557", "tcp://h:6557", 2)
	want := []events.StreamSpec{
		{Rank: 0, Endpoint: "tcp://h:5557", ReplayEndpoint: "tcp://h:6557"},
		{Rank: 1, Endpoint: "tcp://h:5558", ReplayEndpoint: "tcp://h:6558"},
	}
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := Ranks("tcp://h:5557", "tcp://h:5558", 2); err == nil || !strings.Contains(err.Error(), "apart") {
		t.Errorf("colliding ports: %v", err)
	}
}

func TestDescribeSilentEngine(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close()
	_, err := Describe(t.Context(), http.DefaultClient, events.InstanceSpec{URL: srv.URL})
	var de *DescribeError
	if !errors.As(err, &de) || !de.Silent || len(de.Tried) != 2 || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
}
