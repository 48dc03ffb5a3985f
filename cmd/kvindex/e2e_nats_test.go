package main_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"

	"github.com/kvindex/kvindex/events/enginesim"
	"github.com/kvindex/kvindex/indexer"
)

// natsServer is a NATS server, real and in this process.
type natsServer struct {
	t    testing.TB
	opts *natsd.Options
	srv  *natsd.Server
}

func startNATS(t testing.TB) *natsServer {
	t.Helper()
	n := &natsServer{t: t, opts: &natsd.Options{Host: "127.0.0.1", Port: portOf(freeAddr(t)), JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true}}
	n.start()
	t.Cleanup(n.stop)
	return n
}

func (n *natsServer) start() {
	n.t.Helper()
	srv, err := natsd.NewServer(n.opts)
	if err != nil {
		n.t.Fatal(err)
	}
	srv.Start()
	if !srv.ReadyForConnections(10 * time.Second) {
		n.t.Fatal("the NATS server does not start")
	}
	n.srv = srv
}

func (n *natsServer) stop() {
	n.srv.Shutdown()
	n.srv.WaitForShutdown()
}

func (n *natsServer) url() string { return fmt.Sprintf("nats://127.0.0.1:%d", n.opts.Port) }

// relayProcess starts the binary as the relay of an engine and waits until it
// is ready.
func relayProcess(t testing.TB, url, id string, e *enginesim.Engine, args ...string) *server {
	t.Helper()
	s := relayCommand(t, url, id, e, args...)
	s.eventually(func() string {
		resp, err := http.Get(s.url + "/readyz")
		if err != nil {
			return err.Error()
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return resp.Status
		}
		return ""
	})
	return s
}

func relayCommand(t testing.TB, url, id string, e *enginesim.Engine, args ...string) *server {
	t.Helper()
	addr := freeAddr(t)
	args = append([]string{
		"relay", "--instance", id, "--model", "sim", "--endpoint", e.Endpoint(0), "--replay-endpoint", e.ReplayEndpoint(0), "--listen", addr,
	}, args...)
	s := &server{t: t, url: "http://" + addr, log: &lockedBuffer{}, cmd: command(t, []string{"KVINDEX_RELAY_NATS_URL=" + url}, args...)}
	s.cmd.Stderr = s.log
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	return s
}

// requests runs n requests that share prefixes and returns the prompt of the
// last.
func requests(t testing.TB, e *enginesim.Engine, n int) (tokens []uint32) {
	t.Helper()
	for i := range n {
		tokens = make([]uint32, 16*(3+i%5)+5)
		for j := range tokens {
			tokens[j] = uint32(j + 7*(i%4)*(j/32))
		}
		if _, err := e.Rank(0).Run(enginesim.Request{Tokens: tokens, Generate: 20}); err != nil {
			t.Fatal(err)
		}
	}
	return tokens
}

// awaitTruth waits until an instance is live and kvindex holds of it exactly
// what its engine does.
func (s *server) awaitTruth(id string, e *enginesim.Engine) {
	s.t.Helper()
	index, err := indexer.New(indexer.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	defer index.Close()
	s.within(40*time.Second, func() string {
		code, text := s.do(http.MethodGet, "/v1/instances/"+id, "")
		if code != http.StatusOK || !strings.Contains(text, `"state":"live"`) {
			return text
		}
		want := len(e.Truth(index.Hasher()))
		if got := s.instance(id).Streams[0].Blocks.GPU; got != want {
			return fmt.Sprintf("%s: %d blocks, the engine has %d", id, got, want)
		}
		return ""
	})
}

// TestE2ENATS: relays beside engines, two replicas of kvindex that read the
// same stream, and everything that can be restarted is.
func TestE2ENATS(t *testing.T) {
	n := startNATS(t)
	var list []*enginesim.Engine
	for i := range 2 {
		e, err := enginesim.Start(enginesim.EngineOptions{Seed: uint64(i), Pool: enginesim.PoolOptions{Blocks: 60}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
		list = append(list, e)
		requests(t, e, 20)
	}
	id := func(i int) string { return fmt.Sprintf("pod-%d", i) }
	first := relayProcess(t, n.url(), id(0), list[0])
	relayProcess(t, n.url(), id(1), list[1])
	config := fmt.Sprintf("nats: {url: %q, models: [sim]}\n", n.url())
	replicas := []*server{serve(t, config)}
	agree := func(what string) {
		t.Helper()
		for i, e := range list {
			for _, s := range replicas {
				s.awaitTruth(id(i), e)
			}
		}
		var dumps []string
		for _, s := range replicas {
			code, dump := s.do(http.MethodGet, "/v1/dump", "")
			if code != http.StatusOK {
				t.Fatalf("%s: dump: %d %s", what, code, dump)
			}
			lines := strings.Split(dump, "\n")
			slices.Sort(lines)
			dumps = append(dumps, strings.Join(lines, "\n"))
		}
		if len(dumps) == 2 && dumps[0] != dumps[1] {
			t.Errorf("%s: the dumps differ:\n%s\n\n%s", what, dumps[0], dumps[1])
		}
	}
	agree("at first")
	replicas = append(replicas, serve(t, config))
	agree("a second replica")
	prompt := requests(t, list[0], 3)
	agree("more requests")
	if a := replicas[1].query(map[string]any{"model": "sim", "token_ids": prompt}); a.State != "exact" || a.Instances[id(0)].Matched != len(prompt)/16*16 {
		t.Errorf("answer %+v", a)
	}

	n.stop()
	replicas[0].within(40*time.Second, func() string {
		if in := replicas[0].instance(id(0)); in.State != "disconnected" || !strings.Contains(in.Hint, "NATS is down") {
			return fmt.Sprintf("NATS is down, but %+v", in)
		}
		return ""
	})
	requests(t, list[0], 5)
	if err := list[1].Restart(enginesim.RestartOptions{Masked: true}); err != nil {
		t.Fatal(err)
	}
	n.start()
	agree("NATS restarted")

	_ = first.cmd.Process.Signal(syscall.SIGKILL)
	_ = first.cmd.Wait()
	requests(t, list[0], 5)
	relayProcess(t, n.url(), id(0), list[0])
	agree("a relay killed")
	requests(t, list[0], 5)
	agree("requests after it")

	code, metrics := replicas[0].do(http.MethodGet, "/metrics", "")
	for _, want := range []string{"kvindex_nats_up 1", "kvindex_nats_pending_messages 0", "kvindex_nats_streams 2", "go_goroutines"} {
		if code != http.StatusOK || !strings.Contains(metrics, want) {
			t.Errorf("metrics: %d, %q is missing", code, want)
		}
	}
	// An instance that comes over NATS is not dialled, too.
	code, text := replicas[0].do(http.MethodPost, "/register", fmt.Sprintf(`{"instance_id":%q,"model":"sim","endpoint":%q}`, id(0), list[0].Endpoint(0)))
	if code != http.StatusConflict || !strings.Contains(text, "transport") {
		t.Errorf("registered: %d %s", code, text)
	}
}

func TestE2ERelayRefuses(t *testing.T) {
	f := func(want string, env []string, args ...string) {
		t.Helper()
		_, stderr, code := output(t, env, append([]string{"relay"}, args...)...)
		if code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit status %d, %q is missing: %s", args, code, want, stderr)
		}
	}
	f("the URL of NATS is missing", nil, "--instance", "a", "--model", "m")
	f("model is empty", nil, "--instance", "a", "--nats-url", "nats://127.0.0.1:1")
	f("did you mean KVINDEX_RELAY_NATS_URL?", []string{"KVINDEX_RELAY_NATS_URI=x"})
	f("is not a socket of an engine", nil, "--instance", "a", "--model", "m", "--nats-url", "nats://127.0.0.1:1", "--endpoint", "nats://x")
}
