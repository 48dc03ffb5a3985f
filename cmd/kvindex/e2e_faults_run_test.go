package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvindex/kvindex/events/enginesim"
	"github.com/kvindex/kvindex/indexer"
)

// faultWait is how long anything may take: machines are busy.
const faultWait = time.Minute

// faultRun is one fault under way: what it has started and what it has seen.
type faultRun struct {
	testing.TB
	n     int
	seed  uint64
	rand  *rand.Rand
	begin time.Time
	row   faultRow

	mu      sync.Mutex
	started time.Time    // the injection that recovery is measured from
	states  []faultState // of servers, as they were when something was missed
	steps   []faultStep
}

// did notes a step of the schedule.
func (f *faultRun) did(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.steps = append(f.steps, faultStep{time.Since(f.begin).Seconds(), fmt.Sprintf(format, args...)})
}

// inject notes what goes wrong from now on.
func (f *faultRun) inject(format string, args ...any) {
	f.did("inject: "+format, args...)
	f.row.Injected = listed(f.row.Injected, fmt.Sprintf(format, args...))
	f.started = time.Now()
}

// see notes how the fault showed.
func (f *faultRun) see(format string, args ...any) {
	f.did("seen: "+format, args...)
	f.row.Seen = listed(f.row.Seen, fmt.Sprintf(format, args...))
}

func listed(list, text string) string {
	if list == "" {
		return text
	}
	return list + "; " + text
}

// recovered ends a measurement that inject began; of several the longest counts.
func (f *faultRun) recovered() {
	if f.started.IsZero() {
		return // nothing has been injected yet
	}
	f.row.RecoveredIn = max(f.row.RecoveredIn, time.Since(f.started).Seconds())
	f.did("recovered in %v", time.Since(f.started))
}

// end completes the row, and keeps the history of a miss.
func (f *faultRun) end() faultRow {
	f.row.Result = "ok"
	switch {
	case f.Failed() || f.row.Wrong > 0:
		f.row.Result = "MISS"
		again := fmt.Sprintf("make faults FAULT=%d SEED=%d", f.n, f.seed)
		if f.n == 0 {
			again = fmt.Sprintf("make soak SEED=%d", f.seed)
		}
		h := faultHistory{Seed: f.seed, Replay: again, Row: f.row, Schedule: f.steps, Servers: f.states}
		f.row.History = h.keep()
		if !f.Failed() {
			f.Errorf("%d blocks are wrong", f.row.Wrong)
		}
	case f.Skipped():
		f.row.Result = "skipped"
	}
	return f.row
}

// serve starts kvindex. Its state is kept when something is missed, before it
// ends.
func (f *faultRun) serve(config string, env ...string) *server {
	f.Helper()
	s := serve(f, config, env...)
	f.did("kvindex serve %s: %s", s.url, config)
	f.Cleanup(func() { // before the one that ends it
		if f.Failed() || f.row.Wrong > 0 {
			f.states = append([]faultState{s.state()}, f.states...)
		}
	})
	return s
}

// state is what the server says now.
func (s *server) state() faultState {
	st := faultState{Log: strings.Split(s.log.String(), "\n")}
	get := func(path string) []byte {
		resp, err := (&http.Client{Timeout: 5 * time.Second}).Get(s.url + path)
		if err != nil {
			return nil
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body) // a part is better than nothing
		return b
	}
	if b := get("/v1/instances"); json.Valid(b) {
		st.Instances = b
	}
	if b := get("/v1/dump"); len(b) > 0 {
		st.Dump = strings.Split(string(b), "\n")
	}
	return st
}

// pod is a simulated engine and how it is followed.
type pod struct {
	*enginesim.Engine
	f         *faultRun
	id, model string
	tenant    string
}

// podOptions are those of most faults: random work soon evicts, and a replay
// reaches back to the start.
func podOptions(f *faultRun) enginesim.EngineOptions {
	return enginesim.EngineOptions{Pool: enginesim.PoolOptions{Blocks: 400, Vocabulary: 32_000}, Seed: f.rand.Uint64()}
}

// pod starts an engine.
func (f *faultRun) pod(id string, o enginesim.EngineOptions) *pod {
	f.Helper()
	e, err := enginesim.Start(o)
	f.check(err)
	f.Cleanup(func() { _ = e.Close() })
	return &pod{Engine: e, f: f, id: id, model: "m", tenant: o.Pool.Tenant}
}

func (f *faultRun) check(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// registerAt has s follow the pod at the given addresses.
func (p *pod) registerAt(s *server, endpoint, replay string) {
	p.f.Helper()
	for k := range p.Ranks() {
		body := map[string]any{"instance_id": p.id, "model": p.model, "endpoint": endpoint, "dp_rank": p.Rank(k).ID()}
		if k > 0 || endpoint == "" {
			body["endpoint"], replay = p.Endpoint(k), p.ReplayEndpoint(k)
		}
		if replay != "" {
			body["replay_endpoint"] = replay
		}
		if p.tenant != "" {
			body["tenant_id"] = p.tenant
		}
		s.call(http.MethodPost, "/register", body, nil)
	}
}

// follow has s follow the pod and waits until it does.
func (p *pod) follow(s *server) *pod {
	p.f.Helper()
	p.registerAt(s, "", p.ReplayEndpoint(0))
	p.awaitSubscribers()
	return p
}

func (p *pod) awaitSubscribers() {
	p.f.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), faultWait)
	defer cancel()
	p.f.check(p.WaitSubscribers(ctx))
}

// work runs n random requests, in turn on each rank, and returns the last
// prompt: nobody else ever gets it.
func (p *pod) work(n int) (prompt []uint32) {
	p.f.Helper()
	for i := range n {
		prompt = make([]uint32, 16*(2+p.f.rand.IntN(8))+5)
		for j := range prompt {
			prompt[j] = uint32(p.f.rand.IntN(32_000))
		}
		_, err := p.Rank(i % p.Ranks()).Run(enginesim.Request{Tokens: prompt, Generate: p.f.rand.IntN(20)})
		p.f.check(err)
	}
	p.f.did("%s: %d requests", p.id, n)
	return prompt
}

// podStatus is what faults read of GET /v1/instances/{id}.
type podStatus struct {
	State   string      `json:"state"`
	Reason  string      `json:"reason"`
	Hint    string      `json:"hint"`
	Streams []podStream `json:"streams"`
}

type podStream struct {
	churnStream
	Hint         string `json:"hint"`
	Incarnations uint64 `json:"incarnations"`
	Reconnects   uint64 `json:"reconnects"`
	Suspect      int    `json:"suspect_blocks"`
}

// status is absent, with as many empty streams as there are ranks, while the
// pod is not followed.
func (p *pod) status(s *server) (st podStatus) {
	p.f.Helper()
	code, text := s.do(http.MethodGet, "/v1/instances/"+p.id, "")
	if code == http.StatusOK {
		p.f.check(json.Unmarshal([]byte(text), &st))
	} else {
		st.State = "absent"
	}
	for len(st.Streams) < p.Ranks() {
		st.Streams = append(st.Streams, podStream{})
	}
	return st
}

// is waits for a state and a part of its reason, and says what it was.
func (p *pod) is(s *server, state, reason string) string {
	p.f.Helper()
	var st podStatus
	s.within(faultWait, func() string {
		if st = p.status(s); st.State != state || !strings.Contains(st.Reason, reason) {
			return fmt.Sprintf("%s is %s (%s) and not %s (%s)", p.id, st.State, st.Reason, state, reason)
		}
		return ""
	})
	if reason == "" {
		reason, _, _ = strings.Cut(st.Reason, ":")
	}
	return strings.TrimSpace(st.State + " " + reason)
}

// counts waits until a stream's counters are as ok wants them.
func (p *pod) counts(s *server, what string, ok func(podStatus) bool) {
	p.f.Helper()
	s.within(faultWait, func() string {
		if st := p.status(s); !ok(st) {
			return fmt.Sprintf("%s: not %s: %+v", p.id, what, st)
		}
		return ""
	})
}

// wrong compares what s claims of the pod with what its engine holds.
func (p *pod) wrong(s *server) (missing, extra int) {
	p.f.Helper()
	missing, extra, _, _ = p.judged(s)
	return missing, extra
}

// judged is wrong, and how much of what s is certain of is so, and not so.
func (p *pod) judged(s *server) (missing, extra, certain, invented int) {
	p.f.Helper()
	code, text := s.do(http.MethodGet, "/v1/dump", "")
	if code != http.StatusOK {
		p.f.Fatalf("/v1/dump: %d %s", code, text)
	}
	have, sure := readDump(p.f, []byte(text))
	hasher := indexer.NewHasher(indexer.DefaultSeed)
	for k := range p.Ranks() {
		key, truth := streamKey{p.id, p.Rank(k).ID()}, p.Rank(k).Truth(hasher)
		m, e, copies := difference(have[key], truth)
		_, i, _ := difference(sure[key], truth)
		missing, extra, certain, invented = missing+m+copies, extra+e, certain+len(sure[key])-i, invented+i
	}
	return missing, extra, certain, invented
}

// live waits until each pod is live and s has exactly what its engine holds.
func (f *faultRun) live(s *server, pods ...*pod) {
	f.Helper()
	f.quiet(s, "live", "", pods...)
	f.recovered()
}

// marked waits until each pod is degraded for a reason, and what s claims of it
// is true though it may not be all.
func (f *faultRun) marked(s *server, reason string, pods ...*pod) {
	f.Helper()
	f.quiet(s, "degraded", reason, pods...)
	f.recovered()
}

// quiet is live and marked without the clock; an empty state is any.
func (f *faultRun) quiet(s *server, state, reason string, pods ...*pod) {
	f.Helper()
	for _, p := range pods {
		s.within(faultWait, func() string {
			st := p.status(s)
			missing, extra, _, invented := p.judged(s)
			f.row.Wrong = extra
			if state == "degraded" {
				f.row.Wrong = invented
			}
			if state == "live" {
				f.row.Wrong += missing
			}
			if state != "" && st.State != state || !strings.Contains(st.Reason, reason) || f.row.Wrong > 0 {
				return fmt.Sprintf("%s is %s (%s), not %s (%s); %d blocks are missing, %d too many: %+v", p.id, st.State, st.Reason, state, reason, missing, extra, st)
			}
			return ""
		})
	}
}

// matched asks s how much of a prompt the pod holds.
func (p *pod) matched(s *server, prompt []uint32) (blocks int, state string) {
	p.f.Helper()
	body := map[string]any{"model": p.model, "token_ids": prompt}
	if p.tenant != "" {
		body["tenant_id"] = p.tenant
	}
	a := s.query(body)
	return a.Instances[p.id].Matched / 16, a.State
}

// noGhost waits until a prompt of the new process is found, and fails if at that
// moment, or later, one of the old process still is.
func (p *pod) noGhost(s *server, old, young []uint32) {
	p.f.Helper()
	s.within(faultWait, func() string {
		if n, _ := p.matched(s, young); n == 0 {
			return p.id + ": what the new process holds is not found"
		}
		return ""
	})
	if n, state := p.matched(s, old); n > 0 {
		p.f.row.Wrong += n
		p.f.Errorf("%s: %d blocks of a process that has ended are answered, and the answer is %s", p.id, n, state)
	}
}

// logged waits until the log of s has a text.
func (f *faultRun) logged(s *server, text string) {
	f.Helper()
	s.within(faultWait, func() string {
		if !strings.Contains(s.log.String(), text) {
			return fmt.Sprintf("the log does not say %q", text)
		}
		return ""
	})
}

// metric is the sum of all series of a metric, by the beginning of their names.
func (s *server) metric(prefix string) (sum float64) {
	s.t.Helper()
	_, text := s.do(http.MethodGet, "/metrics", "")
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, prefix) {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(strings.TrimSpace(line), ' ')+1:]), 64)
		if err == nil {
			sum += v
		}
	}
	return sum
}
