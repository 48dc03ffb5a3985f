package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvindex/kvindex/events/discovery/dnstest"
	"github.com/kvindex/kvindex/events/enginesim"
)

// TestE2EDNS: pods come, fail and go as DNS says; an address is used again by
// another process and by another model, and never answers with what was there.
func TestE2EDNS(t *testing.T) {
	dns := dnstest.Start(t)
	dns.SetMode(dnstest.ServFail)
	var model atomic.Value
	model.Store("m")
	describe := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/models" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintf(w, `{"data":[{"id":%q}]}`, model.Load())
	}))
	lis, err := net.Listen("tcp", "0.0.0.0:0") // every pod has an address of 127/8
	if err != nil {
		t.Fatal(err)
	}
	describe.Listener = lis
	describe.Start()
	defer describe.Close()
	_, urlPort, _ := net.SplitHostPort(lis.Addr().String())
	port, replay := freePort(t), freePort(t)
	pod := func(host string) *enginesim.Engine {
		t.Helper()
		e, err := enginesim.Start(enginesim.EngineOptions{
			Pool: enginesim.PoolOptions{Blocks: 500, BlockSize: 16, Vocabulary: 32_000}, Ranks: 1,
			Stream: enginesim.StreamOptions{
				Endpoint: fmt.Sprintf("tcp://%s:%d", host, port), ReplayEndpoint: fmt.Sprintf("tcp://%s:%d", host, replay),
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close() })
		return e
	}
	a, b := pod("127.0.1.1"), pod("127.0.1.2")
	s := serve(t, fmt.Sprintf(`discovery: {dns: [{name: vllm.ns.svc.test, model: m, port: %d, replay_port: %d, url_port: %s, interval: 200ms, server: %q}]}`,
		port, replay, urlPort, dns.Addr))
	ready := func() string {
		_, body := s.do(http.MethodGet, "/readyz", "")
		return body
	}
	if code, body := s.do(http.MethodGet, "/readyz", ""); code != http.StatusServiceUnavailable || !strings.Contains(body, "dns vllm.ns.svc.test") {
		t.Errorf("before the first answer: %d %s", code, body)
	}
	dns.Set("vllm.ns.svc.test", "127.0.1.1", "127.0.1.2")
	dns.SetMode(dnstest.Answer)
	const idA, idB = "vllm.ns.svc.test/127.0.1.1", "vllm.ns.svc.test/127.0.1.2"
	r := rand.New(rand.NewPCG(1, 2))
	work(t, r, a, b)
	s.eventually(func() string { return s.follows(idA, idB) })
	s.eventually(func() string { return s.agrees("127.0.1.1", a) })
	s.eventually(func() string { return s.agrees("127.0.1.2", b) })
	if body := ready(); !strings.Contains(body, `"ready"`) {
		t.Error(body)
	}
	var detail struct{ Source, URL string }
	s.call(http.MethodGet, "/v1/instances/127.0.1.1", nil, &detail)
	if detail.Source != "dns" || detail.URL != "http://127.0.1.1:"+urlPort {
		t.Errorf("%+v", detail)
	}

	// No answer is no news.
	dns.SetMode(dnstest.ServFail)
	asked := dns.Asked("vllm.ns.svc.test")
	s.eventually(func() string {
		if n := dns.Asked("vllm.ns.svc.test"); n < asked+10 {
			return fmt.Sprintf("asked %d times", n-asked)
		}
		return s.follows(idA, idB)
	})
	dns.SetMode(dnstest.Answer)

	// Another process of the same model at the same address.
	if err := a.Restart(enginesim.RestartOptions{}); err != nil {
		t.Fatal(err)
	}
	work(t, r, a)
	s.eventually(func() string { return s.agrees("127.0.1.1", a) })

	// Another model at the same address: refused, and what was there is gone.
	if err := a.Kill(); err != nil {
		t.Fatal(err)
	}
	model.Store("other")
	if err := a.Boot(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	s.eventually(func() string { return s.follows(idB) })
	if log := s.log.String(); !strings.Contains(log, "serves other, not m") {
		t.Error(log)
	}
	if _, dump := s.do(http.MethodGet, "/v1/dump", ""); strings.Contains(dump, "127.0.1.1") {
		t.Error("it still holds blocks")
	}
	model.Store("m")
	s.eventually(func() string { return s.follows(idA, idB) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := a.WaitSubscribers(ctx); err != nil {
		t.Fatal(err)
	}
	work(t, r, a)
	s.eventually(func() string { return s.agrees("127.0.1.1", a) })

	// A pod is deleted.
	dns.Set("vllm.ns.svc.test", "127.0.1.1")
	s.eventually(func() string { return s.follows(idA) })
	if _, dump := s.do(http.MethodGet, "/v1/dump", ""); strings.Contains(dump, "127.0.1.2") || !strings.Contains(dump, "127.0.1.1") {
		t.Error("blocks of the deleted pod, or none of the other")
	}
	if _, metrics := s.do(http.MethodGet, "/metrics", ""); !strings.Contains(metrics, `kvindex_dns_hosts{name="vllm.ns.svc.test",state="followed"} 1`) {
		t.Error("no metric of it")
	}
}

// follows says what is wrong unless exactly these instances are followed.
func (s *server) follows(ids ...string) string {
	s.t.Helper()
	var list struct{ Instances []struct{ ID string } }
	s.call(http.MethodGet, "/v1/instances", nil, &list)
	var have []string
	for _, in := range list.Instances {
		have = append(have, in.ID)
	}
	if strings.Join(have, " ") == strings.Join(ids, " ") {
		return ""
	}
	_, body := s.do(http.MethodGet, "/readyz", "")
	b, err := json.Marshal(have)
	if err != nil {
		s.t.Fatal(err)
	}
	return fmt.Sprintf("followed are %s, want %q; %s", b, ids, body)
}

func freePort(t *testing.T) int {
	t.Helper()
	_, p, _ := net.SplitHostPort(freeAddr(t))
	n, err := strconv.Atoi(p)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
