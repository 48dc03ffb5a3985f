package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kvindex/kvindex/events"
	"github.com/kvindex/kvindex/events/discovery/dnstest"
	"github.com/kvindex/kvindex/indexer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dnsRig is a fleet whose instances come from a DNS server.
type dnsRig struct {
	t     *testing.T
	dns   *dnstest.Server
	fleet *events.Fleet
	d     *DNS

	mu       sync.Mutex
	sessions map[string]*events.Session // by endpoint
}

func newDNSRig(t *testing.T) *dnsRig {
	t.Helper()
	r := &dnsRig{t: t, dns: dnstest.Start(t), sessions: map[string]*events.Session{}}
	x, err := indexer.New(indexer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r.fleet = events.NewFleet(events.FleetOptions{Index: x, Source: func(ctx context.Context, s *events.Session) error {
		r.mu.Lock()
		r.sessions[s.Stream().Endpoint] = s
		r.mu.Unlock()
		s.Connected()
		<-ctx.Done()
		return nil
	}})
	client := &http.Client{Transport: &http.Transport{}}
	r.d = &DNS{Fleet: r.fleet, Client: client, Logger: slog.New(slog.DiscardHandler)}
	t.Cleanup(func() {
		r.fleet.Close()
		x.Close()
		client.CloseIdleConnections()
	})
	return r
}

// start begins to follow; the names are asked of the rig's server.
func (r *dnsRig) start(names ...Name) {
	ctx, cancel := context.WithCancel(context.Background())
	r.t.Cleanup(func() {
		cancel()
		r.d.Wait()
	})
	for i := range names {
		names[i].Server = r.dns.Addr
		names[i].Interval = 100 * time.Millisecond
		if err := names[i].Validate(); err != nil {
			r.t.Fatal(err)
		}
	}
	r.d.Start(ctx, names)
}

func (r *dnsRig) ids() string {
	var ids []string
	for _, in := range r.fleet.Instances() {
		ids = append(ids, in.Spec().ID)
	}
	return strings.Join(ids, " ")
}

func (r *dnsRig) eventually(what string, got func() string, want string) {
	r.t.Helper()
	have := got()
	for end := time.Now().Add(10 * time.Second); have != want && time.Now().Before(end); have = got() {
		time.Sleep(2 * time.Millisecond)
	}
	if have != want {
		r.t.Fatalf("%s: %q, want %q; waiting: %q", what, have, want, r.d.Waiting())
	}
}

// rounds waits until name has been asked n more times.
func (r *dnsRig) rounds(name string, n int) {
	r.t.Helper()
	until := r.dns.Asked(name) + 2*n // two families
	r.eventually("rounds", func() string { return fmt.Sprint(r.dns.Asked(name) >= until) }, "true")
}

func TestDNSFollowsAddresses(t *testing.T) {
	r := newDNSRig(t)
	r.dns.Set("pods.test", "10.0.0.2", "10.0.0.1", "fd00::1")
	r.start(Name{Name: "pods.test", Model: "m", Port: 5557, ReplayPort: 6557, Ranks: 2})
	r.eventually("found", r.ids, "pods.test/10.0.0.1 pods.test/10.0.0.2 pods.test/fd00::1")
	in, ok := r.fleet.Find("10.0.0.2")
	if !ok {
		t.Fatal("its address is no name of it")
	}
	spec := in.Spec()
	if spec.Source != "dns" || spec.Streams[1] != (events.StreamSpec{Rank: 1, Endpoint: "tcp://10.0.0.2:5558", ReplayEndpoint: "tcp://10.0.0.2:6558"}) {
		t.Errorf("%+v", spec)
	}
	six, _ := r.fleet.Find("pods.test/fd00::1")
	if e := six.Spec().Streams[0].Endpoint; e != "tcp://[fd00::1]:5557" {
		t.Error(e)
	}
	r.eventually("nothing is awaited", func() string { return strings.Join(r.d.Waiting(), ";") }, "")

	r.dns.Set("pods.test", "10.0.0.2", "10.0.0.3", "fd00::1")
	r.eventually("one came", func() string { return fmt.Sprint(strings.Contains(r.ids(), "10.0.0.3")) }, "true")
	r.eventually("one went", r.ids, "pods.test/10.0.0.2 pods.test/10.0.0.3 pods.test/fd00::1")
	r.dns.Delete("pods.test")
	r.eventually("all went", r.ids, "")
	r.dns.Set("pods.test", "10.0.0.2")
	r.eventually("one is back", r.ids, "pods.test/10.0.0.2")
}

// TestDNSLookupEnds: a question that is given up leaves nothing behind that
// still waits for the answer.
func TestDNSLookupEnds(t *testing.T) {
	dns := dnstest.Start(t)
	before := goleak.IgnoreCurrent()
	dns.SetMode(dnstest.Silent)
	dns.Set("pods.test", "10.0.0.1")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := resolver(dns.Addr).LookupNetIP(ctx, "ip4", "pods.test")
		done <- err
	}()
	for dns.Asked("pods.test") == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("a silent server has answered")
	}
	goleak.VerifyNone(t, before)
}

// TestDNSFailuresRemoveNothing: what is followed stays while there is no answer,
// and goes only after three answers without it.
func TestDNSFailuresRemoveNothing(t *testing.T) {
	r := newDNSRig(t)
	r.dns.SetMode(dnstest.ServFail)
	r.dns.Set("pods.test", "10.0.0.1", "fd00::1")
	r.start(Name{Name: "pods.test", Model: "m", Port: 5557})
	r.rounds("pods.test", 3)
	if w := strings.Join(r.d.Waiting(), ";"); !strings.Contains(w, "dns pods.test: cannot look up") {
		t.Errorf("%q", w)
	}
	both := "pods.test/10.0.0.1 pods.test/fd00::1"
	r.dns.SetMode(dnstest.Answer)
	r.eventually("found", r.ids, both)
	first, _ := r.fleet.Find("10.0.0.1")
	for _, mode := range []dnstest.Mode{dnstest.ServFail, dnstest.Silent} {
		r.dns.SetMode(mode)
		r.dns.Set("pods.test", "10.0.0.9")
		if mode == dnstest.ServFail {
			r.rounds("pods.test", 8)
		} else {
			time.Sleep(time.Second)
		}
		if r.ids() != both {
			t.Fatalf("mode %d: %q", mode, r.ids())
		}
	}
	r.dns.Set("pods.test", "10.0.0.1") // and not fd00::1, but about that there is no answer
	r.dns.SetMode(dnstest.OnlyIP4)
	r.rounds("pods.test", 8)
	if r.ids() != both {
		t.Fatalf("half an answer: %q", r.ids())
	}
	if again, _ := r.fleet.Find("10.0.0.1"); again != first {
		t.Error("it was followed anew")
	}
	rep := r.d.Report()[0]
	if rep.Lookups.Failed < 4 || rep.Lookups.Answered < 4 || rep.Hosts["followed"] != 2 {
		t.Errorf("%+v", rep)
	}
}

// TestDNSHysteresis counts: one and two answers without an address change
// nothing, the third ends it.
func TestDNSHysteresis(t *testing.T) {
	r := newDNSRig(t)
	there := found{hosts: map[string]place{"n/10.0.0.1": {addrs: addrsOf("10.0.0.1")}}}
	none := found{hosts: map[string]place{}}
	w := &watched{Name: Name{Name: "n", Model: "m", Port: 5557, Ranks: 1}, dns: r.d, log: r.d.Logger, targets: map[string]*host{}}
	r.d.names = append(r.d.names, w)
	defer func() {
		for _, h := range w.targets {
			h.stop()
		}
	}()
	f := func(what string, a found, ids string) {
		t.Helper()
		w.take(t.Context(), a)
		if ids == r.ids() {
			return
		}
		r.eventually(what, r.ids, ids)
	}
	const id = "n/10.0.0.1"
	f("found", there, id)
	f("missing once", none, id)
	f("missing twice", none, id)
	f("there again", there, id)
	f("missing once more", none, id)
	f("no answer", found{silent: [2]bool{true, true}, err: context.DeadlineExceeded}, id)
	f("missing twice, once more", none, id)
	f("missing thrice", none, "")
}

func TestDNSServiceRecords(t *testing.T) {
	r := newDNSRig(t)
	const name = "_events._tcp.vllm.ns.svc.test"
	r.dns.SetSRV(name, dnstest.SRV{Target: "vllm-0.vllm.ns.svc.test", Port: 5557}, dnstest.SRV{Target: "vllm-1.vllm.ns.svc.test", Port: 6557})
	r.dns.Set("vllm-0.vllm.ns.svc.test", "10.0.0.1")
	r.dns.Set("vllm-1.vllm.ns.svc.test", "10.0.0.2")
	r.start(Name{Name: name, Model: "m"})
	const both = "vllm-0.vllm.ns.svc.test vllm-1.vllm.ns.svc.test"
	r.eventually("found", r.ids, both)
	in, ok := r.fleet.Find("vllm-1.ns")
	if !ok || in.Spec().Streams[0].Endpoint != "tcp://10.0.0.2:6557" {
		t.Errorf("vllm-1.ns: %v", ok)
	}
	// The pod comes back elsewhere, under its name: another instance, at once.
	r.dns.Set("vllm-1.vllm.ns.svc.test", "10.0.0.7")
	r.eventually("moved", func() string {
		in, _ := r.fleet.Find("vllm-1.ns")
		if in == nil {
			return ""
		}
		return in.Spec().Streams[0].Endpoint
	}, "tcp://10.0.0.7:6557")
	r.dns.SetMode(dnstest.ServFail)
	r.rounds(name, 5)
	r.eventually("failures", r.ids, both)
	r.dns.SetMode(dnstest.Answer)
	r.dns.SetSRV(name, dnstest.SRV{Target: "vllm-0.vllm.ns.svc.test", Port: 5557})
	r.eventually("one went", r.ids, "vllm-0.vllm.ns.svc.test")
}

// engineHTTP is what an engine says of itself.
type engineHTTP struct {
	*httptest.Server
	model atomic.Value
}

func newEngineHTTP(t *testing.T, model string) (e *engineHTTP, port int) {
	e = &engineHTTP{}
	e.model.Store(model)
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch model := e.model.Load().(string); {
		case model == "":
			http.Error(w, "starting", http.StatusServiceUnavailable)
		case req.URL.Path == "/v1/models":
			fmt.Fprintf(w, `{"data":[{"id":"ada","parent":"x"},{"id":%q},{"id":"alias-of-%s"}]}`, model, model)
		case req.URL.Path == "/kv_event_sources":
			fmt.Fprint(w, `{"0":{"publisher":"zmq","endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:6557"}}`)
		default:
			http.NotFound(w, req)
		}
	}))
	t.Cleanup(e.Close)
	_, p, _ := net.SplitHostPort(e.Listener.Addr().String())
	port, _ = strconv.Atoi(p)
	return e, port
}

// TestDNSAddressUsedAgain: behind an address there is another model: it is
// refused, and nothing of the old one answers. When the right one is back, it is
// followed anew.
func TestDNSAddressUsedAgain(t *testing.T) {
	r := newDNSRig(t)
	e, port := newEngineHTTP(t, "")
	r.dns.Set("pods.test", "127.0.0.1")
	r.start(Name{Name: "pods.test", Model: "m", ServedAs: []string{"alias-of-right"}, URLPort: port})
	r.eventually("the engine starts", func() string { return fmt.Sprint(len(r.d.Waiting()) > 0 && strings.Contains(r.d.Waiting()[0], "503")) }, "true")
	e.model.Store("right") // known by its alias
	r.eventually("followed", r.ids, "pods.test/127.0.0.1")
	in, _ := r.fleet.Find("127.0.0.1")
	if spec := in.Spec(); spec.Model != "m" || spec.Streams[0].ReplayEndpoint != "tcp://127.0.0.1:6557" || spec.URL != e.URL {
		t.Errorf("%+v", spec)
	}
	e.model.Store("other")
	var s *events.Session
	r.eventually("its stream is followed", func() string {
		r.mu.Lock()
		defer r.mu.Unlock()
		s = r.sessions["tcp://127.0.0.1:5557"]
		return fmt.Sprint(s != nil)
	}, "true")
	s.Disconnected()
	s.Connected()
	r.eventually("refused", r.ids, "")
	why := func() string { return r.d.Report()[0].Refused["pods.test/127.0.0.1"] }
	r.eventually("reason", why, "refused: the engine at "+e.URL+" serves other, alias-of-other, not m")
	if w := r.d.Waiting(); len(w) != 0 {
		t.Errorf("what is refused is awaited: %q", w)
	}
	e.model.Store("right")
	r.eventually("followed again", r.ids, "pods.test/127.0.0.1")
}

// TestDNSOneEngineTwice: an engine is not followed under two names.
func TestDNSOneEngineTwice(t *testing.T) {
	r := newDNSRig(t)
	r.dns.Set("a.test", "10.0.0.1")
	if _, err := r.fleet.Add(events.InstanceSpec{ID: "static", Model: "m", Streams: []events.StreamSpec{{Endpoint: "tcp://10.0.0.1:5557"}}}); err != nil {
		t.Fatal(err)
	}
	r.start(Name{Name: "a.test", Model: "m", Port: 5557})
	r.eventually("said", func() string { return strings.Join(r.d.Waiting(), ";") }, `a.test/10.0.0.1: tcp://10.0.0.1:5557 is followed as instance "static" already`)
	r.dns.Delete("a.test")
	r.eventually("gone", func() string { return strings.Join(r.d.Waiting(), ";") }, "")
	if r.ids() != "static" {
		t.Error(r.ids())
	}
}

func TestNameValidate(t *testing.T) {
	f := func(n Name, wrong string) {
		t.Helper()
		switch err := n.Validate(); {
		case wrong == "" && err != nil, wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)):
			t.Errorf("%+v: %v, want %q", n, err, wrong)
		}
	}
	f(Name{Name: "a.b", Model: "m", Port: 5557}, "")
	f(Name{Name: "a.b", URLPort: 8000}, "")
	f(Name{Name: "_a._tcp.b", Model: "m"}, "")
	f(Name{Model: "m", Port: 5557}, "no host name")
	f(Name{Name: "a:53", Model: "m", Port: 5557}, "no host name")
	f(Name{Name: "a", Model: "m"}, "neither port nor url_port")
	f(Name{Name: "a", Port: 1}, "neither model nor url_port")
	f(Name{Name: "a", Model: "m", Port: 70000}, "70000")
	f(Name{Name: "a", Model: "m", URLPort: 8000, ReplayPort: 2}, "replay_port is given without port")
	f(Name{Name: "a", Model: "m", Port: 5557, ReplayPort: 5558, Ranks: 2}, "apart")
	f(Name{Name: "a", Model: "m", Port: 5557, Ranks: -1}, "dp_ranks")
	f(Name{Name: "a", Model: "m", Port: 5557, Interval: time.Millisecond}, "interval")
}

func addrsOf(list ...string) (out []netip.Addr) {
	for _, a := range list {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}
