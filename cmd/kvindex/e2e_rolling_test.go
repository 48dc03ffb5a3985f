package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kvindex/kvindex/events/enginesim"
	"github.com/kvindex/kvindex/events/natssource"
)

// balancer sends requests as a load balancer does: to any replica that /readyz
// said to be ready when it was asked last, and to the next one where that fails.
type balancer struct {
	client *http.Client

	mu       sync.Mutex
	replicas []*server
	ready    map[*server]bool
}

func newBalancer() *balancer {
	return &balancer{client: &http.Client{Timeout: 5 * time.Second}, ready: map[*server]bool{}}
}

// replace puts a replica in the place of another; nil is none.
func (b *balancer) replace(old, with *server) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, s := range b.replicas {
		if s == old {
			b.replicas = append(b.replicas[:i:i], b.replicas[i+1:]...)
			delete(b.ready, old)
			break
		}
	}
	if with != nil {
		b.replicas = append(b.replicas, with)
	}
}

func (b *balancer) list(onlyReady bool) (list []*server) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.replicas {
		if !onlyReady || b.ready[s] {
			list = append(list, s)
		}
	}
	return list
}

// watch asks for readiness until ctx ends.
func (b *balancer) watch(ctx context.Context) {
	for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		for _, s := range b.list(false) {
			resp, err := b.client.Get(s.url + "/readyz")
			ready := err == nil && resp.StatusCode == http.StatusOK
			if err == nil {
				_ = resp.Body.Close()
			}
			b.mu.Lock()
			b.ready[s] = ready
			b.mu.Unlock()
		}
	}
}

// query asks the replicas that are ready, the i-th of them first. An error is
// that none of them answered.
func (b *balancer) query(i int, body []byte) (a churnAnswer, by *server, err error) {
	list := b.list(true)
	err = fmt.Errorf("no replica of %d is ready", len(b.list(false)))
	for k := range list {
		by = list[(i+k)%len(list)]
		if a, err = b.ask(by, body); err == nil {
			return a, by, nil
		}
	}
	return a, by, err
}

func (b *balancer) ask(s *server, body []byte) (a churnAnswer, err error) {
	resp, err := b.client.Post(s.url+"/v1/query", "application/json", bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return a, err
	}
	if resp.StatusCode != http.StatusOK {
		return a, fmt.Errorf("%s: %s", resp.Status, text)
	}
	return a, json.Unmarshal(text, &a)
}

// lasting is pods under load that hold some prompts all the time.
type lasting struct {
	pods    []*pod
	prompts [][]uint32
}

// work has a pod run requests until ctx ends. Now and then it runs those that
// are to last, which keeps them from being evicted.
func (l *lasting) work(ctx context.Context, p *pod, seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 1))
	for i := 0; ctx.Err() == nil; i++ {
		requests := [][]uint32{randomPrompt(r, 16*(2+r.IntN(8))+5)}
		if i%10 == 0 {
			requests = append(requests, l.prompts...)
		}
		for _, tokens := range requests {
			if _, err := p.Rank(0).Run(enginesim.Request{Tokens: tokens}); err != nil {
				return err
			}
		}
		time.Sleep(time.Duration(r.IntN(8)) * time.Millisecond)
	}
	return nil
}

// wrong says what is wrong with an answer to a prompt that all pods hold.
func (l *lasting) wrong(a churnAnswer, tokens []uint32) string {
	if text := a.check(len(tokens), "any"); text != "" {
		return text
	}
	for _, p := range l.pods {
		in, ok := a.Instances[p.id]
		if want := len(tokens) / 16 * 16; !ok || in.Matched != want {
			return fmt.Sprintf("%s is said to hold %d tokens of %d, and is %q", p.id, in.Matched, want, in.State)
		}
	}
	return ""
}

// TestE2ERollingRestart: all replicas are restarted, one after the other, under
// load, and there is no blind moment: some replica is ready all the time, and
// whoever is ready answers with all that the pods hold. One replica comes back
// from its own snapshot, one from another's, and one has only the log, and once
// not even that.
func TestE2ERollingRestart(t *testing.T) {
	f := newFaultRun(t)
	n := startNATS(t)
	l := &lasting{}
	for range 3 {
		l.prompts = append(l.prompts, randomPrompt(f.rand, 16*20+3))
	}
	for i := range 2 {
		p := f.relayed(fmt.Sprintf("pod-%d", i), n.url())
		for _, tokens := range l.prompts {
			_, err := p.Rank(0).Run(enginesim.Request{Tokens: tokens})
			f.check(err)
		}
		l.pods = append(l.pods, p)
	}
	snapshots, _ := f.snapshotsIn()
	var replicas [3]*server
	start := func(i int) {
		f.Helper()
		config := overNATS(n.url())
		switch i {
		case 0:
			config += snapshots
		case 1:
			config += fmt.Sprintf("snapshot: {peers: [%q]}", replicas[0].url)
		}
		replicas[i] = f.serve(config, "KVINDEX_API_DRAIN_TIME=300ms")
	}
	b := newBalancer()
	for i := range replicas {
		start(i)
		replicas[i].awaitReady()
		b.replace(nil, replicas[i])
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	stop := sync.OnceFunc(func() { cancel(); wg.Wait() })
	defer stop()
	wg.Go(func() { b.watch(ctx) })
	for i, p := range l.pods {
		wg.Go(func() {
			if err := l.work(ctx, p, uint64(i)); err != nil {
				t.Error(err)
			}
		})
	}
	f.until("not all replicas are ready", func() bool { return len(b.list(true)) == len(replicas) })
	answers, marked := make([]int, 2), make([]int, 2)
	for k := range answers {
		wg.Go(func() { answers[k], marked[k] = l.follow(ctx, t, b) })
	}
	roll := func() {
		f.Helper()
		for i := range replicas {
			old := replicas[i]
			f.check(old.cmd.Process.Signal(syscall.SIGTERM))
			if err := old.cmd.Wait(); err != nil {
				t.Errorf("kvindex ended with %v\n%s", err, old.log)
			}
			b.replace(old, nil)
			start(i)
			b.replace(nil, replicas[i])
			replicas[i].awaitReady()
		}
	}
	roll()
	f.admin(n.url(), func(ctx context.Context, _ *nats.Conn, js jetstream.JetStream) error {
		st, err := js.Stream(ctx, natssource.DefaultStream)
		if err != nil {
			return err
		}
		return st.Purge(ctx)
	})
	roll()
	stop()
	f.logged(replicas[0], "restored a snapshot")
	f.logged(replicas[1], "restored a snapshot")
	for _, s := range replicas {
		f.live(s, l.pods...)
	}
	t.Logf("%d answers, %d of them marked", answers[0]+answers[1], marked[0]+marked[1])
	if answers[0]+answers[1] < 100 {
		t.Error("too few answers to tell anything")
	}
}

// follow asks for the prompts until ctx ends, and judges the answers.
func (l *lasting) follow(ctx context.Context, t *testing.T, b *balancer) (answers, marked int) {
	for i := 0; ctx.Err() == nil; i++ {
		tokens := l.prompts[i%len(l.prompts)]
		body, err := json.Marshal(map[string]any{"model": "sim", "token_ids": tokens})
		if err != nil {
			t.Error(err)
			return answers, marked
		}
		a, by, err := b.query(i, body)
		if err != nil {
			t.Errorf("nobody answers: %v", err)
			return answers, marked
		}
		if wrong := l.wrong(a, tokens); wrong != "" {
			t.Errorf("%s; %s answered %+v\n%s", wrong, by.url, a, by.log)
			return answers, marked
		}
		answers++
		if a.State != "exact" {
			marked++
		}
		time.Sleep(time.Millisecond)
	}
	return answers, marked
}

// TestE2EReadyStays: a replica that was ready is not taken out of service by a
// stream that begins to replay: all replicas meet that at once.
func TestE2EReadyStays(t *testing.T) {
	f := newFaultRun(t)
	p := f.pod("pod-0", podOptions(f))
	s := f.serve(fmt.Sprintf("instances: [{id: pod-0, model: m, endpoint: %q, replay_endpoint: %q}]", p.Endpoint(0), p.ReplayEndpoint(0)))
	p.awaitSubscribers()
	prompt := p.work(5)
	f.live(s, p)
	s.awaitReady()
	f.check(p.Rank(0).Stream().FaultReplay(enginesim.ReplayFault{Times: -1, Ignore: true}))
	f.check(p.Rank(0).Stream().DropLive(1))
	p.work(3)
	p.is(s, "replaying", "")
	if code, text := s.do(http.MethodGet, "/readyz", ""); code != http.StatusOK {
		t.Errorf("ready no more: %d %s", code, text)
	}
	if n, state := p.matched(s, prompt); n != len(prompt)/16 || state != "degraded" {
		t.Errorf("%d blocks are found, and the answer is %s", n, state)
	}
	f.check(p.Rank(0).Stream().Heal())
	f.live(s, p)
}
