package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kvindex/kvindex/api"
	"github.com/kvindex/kvindex/indexer"
	"github.com/kvindex/kvindex/scripts/loadgen/load"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pods are a fleet of live instances.
type pods struct {
	api.Fleet
	list []*api.Instance
}

func (p *pods) Instances() []*api.Instance { return p.list }

// handler is the real API on an index in which pod-0 holds the first 10 blocks
// of the first prompt.
func handler(t *testing.T) http.Handler {
	t.Helper()
	x, err := indexer.New(indexer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Close)
	table := x.Table(indexer.TableKey{Model: "m", BlockSize: 16})
	run := indexer.Run{}
	tokens := load.Tokens(1, 160)
	for i, seq := range table.Sequence(tokens, 0, nil) {
		run.Engine = append(run.Engine, indexer.EngineHash(seq))
		run.Local = append(run.Local, x.Hasher().Local(tokens[16*i:16*i+16], nil))
	}
	table.Open(indexer.StreamID{Instance: "pod-0"}).Store(run)
	fleet := &pods{list: []*api.Instance{{ID: "pod-0", Model: "m", Health: func() api.Health {
		return api.Health{State: api.Live, BlockSize: 16}
	}}}}
	s, err := api.New(api.Options{Index: x, Fleet: fleet})
	if err != nil {
		t.Fatal(err)
	}
	return s.Handler()
}

// TestRealLoad: a short load on the real handler, in every form and both loops.
func TestRealLoad(t *testing.T) {
	s := httptest.NewServer(handler(t))
	defer s.Close()
	f := func(args ...string) {
		t.Helper()
		var out, progress strings.Builder
		args = append(args, "--url", s.URL, "--model", "m", "--blocks", "20", "--duration", "300ms", "--warmup", "50ms", "--format", "json")
		if err := run(context.Background(), args, &out, &progress); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		var r load.Result
		if err := json.Unmarshal([]byte(out.String()), &r); err != nil {
			t.Fatal(err)
		}
		if r.Answered == 0 || r.Answered == r.NotExact || len(r.Failed) != 0 || r.Client.P50 <= 0 || r.Client.P50 > r.Client.Max {
			t.Errorf("%v: %s", args, &out)
		}
	}
	for _, form := range load.Forms()[:4] {
		f("--as", string(form))
	}
	f("--rate", "200")
	f("--rate", "100", "--trace", "sample", "--trace-requests", "3", "--as", "json")

	var out strings.Builder
	if err := run(context.Background(), []string{"--url", s.URL, "--model", "m", "--duration", "1100ms"}, &out, io.Discard); err != nil ||
		!strings.Contains(out.String(), "p99.9") {
		t.Errorf("%v: %s", err, &out)
	}
	// Chats are answered too, though nobody here can tokenize them.
	if err := run(context.Background(), []string{"--url", s.URL, "--model", "m", "--as", "chat", "--duration", "100ms", "--warmup", "0s"}, &out, io.Discard); err != nil ||
		!strings.Contains(out.String(), "were not exact") {
		t.Errorf("%v: %s", err, &out)
	}
}

func TestFlags(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := run(ctx, args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
	f("not of this machine", "--model", "m", "--url", "http://10.0.0.7:8400")
	f("not of this machine", "--model", "m", "--url", "http://kvindex.example")
	f("http://HOST:PORT", "--model", "m", "--url", "127.0.0.1:8400")
	f("--model is missing")
	f("--format", "--model", "m", "--format", "xml")
	f("only flags", "--model", "m", "now")
	f("0 blocks", "--model", "m", "--blocks", "0")
	f("cannot send token ids as", "--model", "m", "--as", "smoke")
	f("no such file", "--model", "m", "--trace", "/nonexistent")
	f("no such file", "--model", "m", "--token-file", "/nonexistent")
	f("help requested", "--help")
}
