package main_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kvindex/kvindex/events/enginesim"
)

// podAt starts an engine at the addresses that another one had until now.
func (f *faultRun) podAt(id string, o enginesim.EngineOptions, old *pod) *pod {
	f.Helper()
	o.Stream.Endpoint, o.Stream.ReplayEndpoint = old.Endpoint(0), old.ReplayEndpoint(0)
	for end := time.Now().Add(faultWait); ; time.Sleep(10 * time.Millisecond) {
		e, err := enginesim.Start(o)
		if err == nil {
			f.Cleanup(func() { _ = e.Close() })
			return &pod{Engine: e, f: f, id: id, model: "m", tenant: o.Pool.Tenant}
		}
		if time.Now().After(end) {
			f.Fatal(err) // ZMQ gives the ports up some time after the old sockets were closed
		}
	}
}

// addressReused: a pod of another model gets the address of one that is gone, and
// registers before anybody has unregistered the old one.
func addressReused(f *faultRun) {
	s := f.serve("")
	old := f.pod("pod-0", podOptions(f)).follow(s)
	prompt := old.work(10)
	f.live(s, old)
	f.inject("the address of a pod goes to a pod of another model")
	f.check(old.Close())
	f.see("%s", old.is(s, "disconnected", ""))
	young := f.podAt("pod-1", podOptions(f), old)
	young.model = "other"
	young.follow(s)
	fresh := young.work(5)
	f.live(s, young)
	young.noGhost(s, prompt, fresh)
	if code, body := s.do(http.MethodGet, "/v1/instances/"+old.id, ""); code != http.StatusNotFound {
		f.Errorf("the pod that is gone is still followed: %d %s", code, body)
	}
	f.see("the registration takes the address from pod-0, which is forgotten")
	young.work(3)
	f.live(s, young)
	for _, tokens := range [][]uint32{prompt, fresh} {
		if n, _ := old.matched(s, tokens); n > 0 {
			f.row.Wrong += n
			f.Errorf("pod-0 is gone, and %d blocks of it are answered", n)
		}
	}
}

// zombie: two pods fall silent without the end of a connection, one because the
// network swallows everything and one because its host is gone.
func zombie(f *faultRun) {
	s := f.serve("events: {grace: 1s, suspect_ttl: 3s}")
	var pods []*pod
	var pubs, replays []*proxy
	for _, id := range []string{"swallowed", "gone"} {
		p := f.pod(id, podOptions(f))
		pub, replay := startProxy(f, p.Endpoint(0)), startProxy(f, p.ReplayEndpoint(0))
		p.registerAt(s, pub.endpoint(), replay.endpoint())
		p.awaitSubscribers()
		p.work(10)
		pods, pubs, replays = append(pods, p), append(pubs, pub), append(replays, replay)
	}
	f.live(s, pods...)
	f.inject("the network swallows what a pod says, a host vanishes: no FIN, no RST")
	for i, mode := range []proxyMode{blackhole, halfOpen} {
		pubs[i].set(mode)
		replays[i].set(mode)
	}
	begin := time.Now()
	for _, p := range pods {
		p.is(s, "disconnected", "")
	}
	f.see("disconnected after %.0f s", time.Since(begin).Seconds())
	for _, p := range pods {
		p.counts(s, "suspect or dropped", func(st podStatus) bool {
			missing, extra := p.wrong(s)
			f.row.Wrong += extra // the engines have changed nothing since
			// Dropped already, if the first check of the new connection fell into the
			// silence: that is noticed before the end of the connection is.
			return st.Streams[0].Suspect > 0 || missing > 0
		})
	}
	f.see("suspect after the grace")
	for _, p := range pods {
		p.counts(s, "dropped", func(podStatus) bool { missing, _ := p.wrong(s); return missing > 0 })
		p.work(3)
	}
	f.see("dropped after suspect_ttl")
	f.started = time.Now() // recovery is from the end of the fault on
	for i := range pods {
		pubs[i].set(passing)
		replays[i].set(passing)
	}
	f.live(s, pods...)
}

// notReady: a pod that answers nobody for a while, and one whose HTTP server says
// that it is not ready, are neither dropped nor called incomplete.
func notReady(f *faultRun) {
	s := f.serve("events: {silence_hint: 1s, grace: 1s, suspect_ttl: 2s}")
	var asked atomic.Int64
	unready := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	f.Cleanup(unready.Close)
	p, web := f.pod("pod-0", podOptions(f)), f.pod("pod-1", podOptions(f))
	p.follow(s)
	s.call(http.MethodPost, "/register", map[string]any{
		"instance_id": web.id, "model": web.model, "url": unready.URL, "endpoint": web.Endpoint(0), "replay_endpoint": web.ReplayEndpoint(0),
	}, nil)
	web.awaitSubscribers()
	prompt := p.work(10)
	web.work(10)
	f.live(s, p, web)
	f.inject("an engine hangs for 4 s, its connections open; the HTTP server of another answers 503")
	if a := s.query(map[string]any{"model": "m", "prompt": "which only an engine can tokenize"}); a.State != "unknown" || asked.Load() == 0 {
		f.Errorf("the instance was asked %d times, the answer is %+v", asked.Load(), a)
	}
	f.check(p.Rank(0).Stream().Silence(true))
	want, _ := p.matched(s, prompt)
	states := map[string]int{}
	f.stays(4*time.Second, func() string {
		n, state := p.matched(s, prompt)
		states[state]++
		if n != want || want == 0 {
			return fmt.Sprintf("%d blocks of %d, the answer is %s", n, want, state)
		}
		return ""
	})
	f.see("its blocks answered, answers %v; the other is %s after %d times 503", states, web.is(s, "live", ""), asked.Load())
	p.work(5)
	f.started = time.Now()
	f.check(p.Rank(0).Stream().Silence(false))
	f.live(s, p, web)
}

// addressChanges: what is behind an address has another block size, then another
// model.
func addressChanges(f *faultRun) {
	s := f.serve("")
	p := f.pod("pod-0", podOptions(f)).follow(s)
	old := p.work(10)
	f.live(s, p)
	f.inject("blocks of 32 tokens instead of 16")
	f.check(p.Close())
	o := podOptions(f)
	o.Pool.BlockSize = 32
	young := f.podAt("pod-0", o, p)
	young.awaitSubscribers()
	young.noGhost(s, old, young.work(5))
	f.live(s, young)
	f.see("a 2nd incarnation, live")

	f.inject("a registered block size of 32, blocks of 16")
	s.call(http.MethodPost, "/unregister", map[string]any{"instance_id": "pod-0"}, nil)
	s.call(http.MethodPost, "/register", map[string]any{
		"instance_id": "pod-0", "model": "m", "endpoint": young.Endpoint(0), "replay_endpoint": young.ReplayEndpoint(0), "block_size": 32}, nil)
	f.check(young.Close())
	third := f.podAt("pod-0", podOptions(f), young)
	third.awaitSubscribers()
	third.work(5)
	f.see("%s", third.is(s, "degraded", "block_size"))
	if _, extra := third.wrong(s); extra > 0 {
		f.row.Wrong += extra
	}

	f.inject("another model at the address")
	code, text := s.do(http.MethodPost, "/register", `{"instance_id":"pod-0","model":"other","endpoint":"`+third.Endpoint(0)+`"}`)
	if code != http.StatusConflict || !strings.Contains(text, "unregister it first") {
		f.Errorf("%d %s", code, text)
	}
	f.see("409")
	s.call(http.MethodPost, "/unregister", map[string]any{"instance_id": "pod-0"}, nil)
	third.model = "other"
	third.follow(s)
	f.live(s, third)
	var models struct {
		Models []struct {
			Name string `json:"name"`
		} `json:"models"`
	}
	s.call(http.MethodGet, "/v1/models", nil, &models)
	third.model = "m"
	if n, _ := third.matched(s, old); n > 0 {
		f.row.Wrong += n
		f.Errorf("the old model's blocks are answered; models %+v", models)
	}
}
