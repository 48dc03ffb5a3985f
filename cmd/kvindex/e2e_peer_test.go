package main_test

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// The tests whose names begin with TestE2EPeer follow engines that share
// nothing with kvindex: testdata/peer.py publishes what vLLM publishes, from
// another implementation of the protocol, and knows what it has cached.

const (
	peerModel = "tiny"
	peerBlock = 16 // tokens

	// visible is how long whatever happens to an engine may take to show.
	visible = 2 * time.Second
)

// prompt is what a request asks about, in the notation of peer.py: pairs of an
// id and a number of blocks.
type prompt [][2]int

// tokens are the same that peer.py makes, and half a block more.
func (p prompt) tokens() []int {
	var out []int
	for _, s := range append(slices.Clone(p), [2]int{999, 1}) {
		for j := range s[1] * peerBlock {
			out = append(out, (100003*s[0]+31*j)%151936)
		}
	}
	return out[:len(out)-peerBlock/2]
}

// python is an interpreter that has pyzmq: the one in PATH may be a version
// manager's, without the system's packages.
var python = sync.OnceValues(func() (string, error) {
	var tried []string
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		out, err := exec.Command(name, "-c", "import zmq").CombinedOutput()
		if err == nil {
			return name, nil
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		tried = append(tried, fmt.Sprintf("%s: %v: %s", name, err, lines[len(lines)-1]))
	}
	return "", fmt.Errorf("no Python here can import zmq: `make setup` installs it (Debian: apt install python3-zmq)\n%s", strings.Join(tried, "\n"))
})

// peerOptions say what kind of engine a peer is. The zero value is a vLLM of
// today with a replay socket.
type peerOptions struct {
	endpoint string // "": a free port
	replay   string // "": a free port
	noReplay bool
	events   string // "map" or "array"
	layout   string // of replays: "topic" or "plain"
	buffer   int    // batches that a replay reaches back
	rank     int
}

// peer is a running peer.py.
type peer struct {
	t    testing.TB
	opts peerOptions
	cmd  *exec.Cmd
	in   io.Writer
	out  *bufio.Reader
	log  *lockedBuffer
	end  time.Time // it is killed

	endpoint, replay string // once bound
}

// peerAnswer is what a peer says to a command.
type peerAnswer struct {
	Error       string `json:"error"`
	Seq         int    `json:"seq"` // of the next batch
	Blocks      int    `json:"blocks"`
	Endpoint    string `json:"endpoint"`
	Replay      string `json:"replay"`
	Matched     []int  `json:"matched"`
	Subscribers int    `json:"subscribers"`
	Published   int    `json:"published"`
}

// startPeer starts an engine that nobody can reach yet: see bind.
func startPeer(t testing.TB, o peerOptions) *peer {
	t.Helper()
	interpreter, err := python()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []*string{&o.endpoint, &o.replay} {
		*e = orElse(*e, "tcp://"+freeAddr(t))
	}
	args := []string{filepath.Join("testdata", "peer.py"), o.endpoint}
	if o.noReplay {
		// Nothing repairs what is published before the subscription arrives, so
		// the test has to wait for that.
		args = append(args, "--xpub")
	} else {
		args = append(args, "--replay", o.replay)
	}
	args = append(args, "--events", orElse(o.events, "map"), "--layout", orElse(o.layout, "topic"), "--rank", fmt.Sprint(o.rank))
	if o.buffer > 0 {
		args = append(args, "--buffer", fmt.Sprint(o.buffer))
	}
	p := &peer{t: t, opts: o, cmd: exec.Command(interpreter, args...), log: &lockedBuffer{}}
	p.cmd.Stderr = p.log
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		if text := p.log.String(); text != "" {
			t.Errorf("peer %s says on stderr: %s", p.endpoint, text)
		}
	})
	return p
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// do gives a command and waits until it is done.
func (p *peer) do(what string, args map[string]any) peerAnswer {
	p.t.Helper()
	c := map[string]any{"do": what}
	maps.Copy(c, args)
	line, err := json.Marshal(c)
	if err != nil {
		p.t.Fatal(err)
	}
	// A peer that hangs is a failure of this test, not of the whole run.
	watchdog := time.AfterFunc(20*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer watchdog.Stop()
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		p.t.Fatalf("peer: %v\n%s", err, p.log)
	}
	text, err := p.out.ReadBytes('\n')
	if err != nil {
		p.t.Fatalf("peer: %s: %v\n%s", line, err, p.log)
	}
	var a peerAnswer
	if err := json.Unmarshal(text, &a); err != nil || a.Error != "" {
		p.t.Fatalf("peer: %s: %s", line, text)
	}
	return a
}

// bind opens the engine's ports.
func (p *peer) bind() *peer {
	p.t.Helper()
	a := p.do("bind", nil)
	p.endpoint, p.replay = a.Endpoint, a.Replay
	return p
}

// kill ends the process as the kernel does when memory runs out.
func (p *peer) kill() {
	if p.end.IsZero() {
		p.end = time.Now()
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

// successor is a new process with the ports of one that was killed, not bound
// yet.
func (p *peer) successor() *peer {
	p.t.Helper()
	o := p.opts
	o.endpoint, o.replay = p.endpoint, p.replay
	return startPeer(p.t, o)
}

// event is a part of a batch.
type event = map[string]any

func stored(p prompt, from, blocks int) event {
	return event{"kind": "store", "prompt": p, "from": from, "blocks": blocks}
}

func removed(p prompt, from, blocks int) event {
	return event{"kind": "remove", "prompt": p, "from": from, "blocks": blocks}
}

func cleared() event { return event{"kind": "clear"} }

// publish publishes a batch.
func (p *peer) publish(events ...event) {
	p.t.Helper()
	p.do("publish", map[string]any{"events": events})
}

// lose publishes a batch that nobody hears: a replay brings what is lost
// "live", nothing what is lost for "all".
func (p *peer) lose(how string, events ...event) {
	p.t.Helper()
	p.do("publish", map[string]any{"events": events, "lost": how})
}

// match is how many leading blocks of each prompt the engine holds.
func (p *peer) match(prompts ...prompt) []int {
	p.t.Helper()
	return p.do("match", map[string]any{"prompts": prompts}).Matched
}

// awaitSubscriber waits until what is published is heard.
func (p *peer) awaitSubscriber() {
	p.t.Helper()
	for end := time.Now().Add(15 * time.Second); p.do("subscribers", nil).Subscribers < 1; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatal("nobody subscribes to the peer")
		}
	}
}

// peerTest is a kvindex, and how long it took it to see things.
type peerTest struct {
	*server
	took  map[string][]time.Duration
	order []string
}

func newPeerTest(t testing.TB, config string) *peerTest {
	t.Helper()
	r := &peerTest{server: serve(t, config), took: map[string][]time.Duration{}}
	t.Cleanup(func() {
		for _, what := range r.order {
			d := r.took[what]
			slices.Sort(d)
			t.Logf("%s: seen after %v (median of %d), at most %v", what,
				d[len(d)/2].Round(time.Millisecond), len(d), d[len(d)-1].Round(time.Millisecond))
		}
	})
	return r
}

// register has kvindex follow a peer.
func (r *peerTest) register(id string, p *peer) {
	r.t.Helper()
	code, body := r.do(http.MethodPost, "/register", fmt.Sprintf(
		`{"instance_id":%q,"model":%q,"endpoint":%q,"replay_endpoint":%q}`, id, peerModel, p.endpoint, p.replay))
	if code != http.StatusCreated {
		r.t.Fatalf("POST /register: %d: %s", code, body)
	}
}

// sees waits until what happened at begin shows.
func (r *peerTest) sees(what string, begin time.Time, check func() string) {
	r.t.Helper()
	r.within(visible, func() string {
		wrong := check()
		if wrong != "" {
			wrong = what + ": " + wrong
		}
		return wrong
	})
	if _, known := r.took[what]; !known {
		r.order = append(r.order, what)
	}
	r.took[what] = append(r.took[what], time.Since(begin))
}

// ask asks for a prompt.
func (r *peerTest) ask(p prompt) answer {
	r.t.Helper()
	return r.query(map[string]any{"model": peerModel, "token_ids": p.tokens()})
}

// exact says what is wrong until kvindex knows of the only instance, id, just
// what its engine p knows now, and says that it does.
func (r *peerTest) exact(id string, p *peer, prompts ...prompt) func() string {
	r.t.Helper()
	at := p.do("match", map[string]any{"prompts": prompts})
	return func() string {
		in := r.instance(id)
		st := in.Streams[0]
		switch {
		case in.State != "live" || in.Reason != "" || st.State != "live":
			return fmt.Sprintf("the instance is %s (%s), its stream %s", in.State, in.Reason, st.State)
		case at.Seq > 0 && (st.LastSeq == nil || *st.LastSeq != uint64(at.Seq-1)):
			return fmt.Sprintf("%d batches were published, the last one seen is %v", at.Seq, shownSeq(st.LastSeq))
		case st.Blocks.GPU != at.Blocks:
			return fmt.Sprintf("%d blocks, the engine has %d", st.Blocks.GPU, at.Blocks)
		}
		for i, p := range prompts {
			a := r.ask(p)
			if a.State != "exact" || a.Reason != "" {
				return fmt.Sprintf("the answer is %s (%s)", a.State, a.Reason)
			}
			if wrong := a.of(id, "live", at.Matched[i]); wrong != "" {
				return fmt.Sprintf("prompt %v: %s", p, wrong)
			}
		}
		return ""
	}
}

// of says what is wrong unless the answer has so many blocks of the instance,
// in that state.
func (a answer) of(id, state string, blocks int) string {
	in, ok := a.Instances[id]
	best := ""
	if blocks > 0 {
		best = id
	}
	if !ok || in.State != state || in.Matched != blocks*peerBlock || in.Reusable != in.Matched || a.Best != best {
		return fmt.Sprintf("%+v, best %q; want %d tokens, state %s", in, a.Best, blocks*peerBlock, state)
	}
	return ""
}

// inexact says what is wrong until the instance is in that state, for a reason
// that begins like that, answers say so, and match so many blocks of prompts.
func (r *peerTest) inexact(id, state, reason string, matched []int, prompts ...prompt) func() string {
	return func() string {
		in := r.instance(id)
		if in.State != state || !strings.HasPrefix(in.Reason, reason) {
			return fmt.Sprintf("the instance is %s (%s); want %s (%s)", in.State, in.Reason, state, reason)
		}
		for i, p := range prompts {
			a := r.ask(p)
			if a.State != "degraded" || !strings.Contains(a.Reason, id+" is "+state) {
				return fmt.Sprintf("the answer is %s (%s)", a.State, a.Reason)
			}
			if wrong := a.of(id, state, matched[i]); wrong != "" {
				return fmt.Sprintf("prompt %v: %s", p, wrong)
			}
			if !strings.HasPrefix(a.Instances[id].Reason, reason) {
				return fmt.Sprintf("the answer's reason is %q", a.Instances[id].Reason)
			}
		}
		return ""
	}
}

func shownSeq(seq *uint64) string {
	if seq == nil {
		return "none"
	}
	return fmt.Sprint(*seq)
}

// streamCounters is what these tests read of a stream beside its state.
type streamCounters struct {
	Results      map[string]int `json:"batch_results"`
	Events       map[string]int `json:"events"`
	Lost         int            `json:"lost_batches"`
	Replays      int            `json:"replays"`
	Incarnations int            `json:"incarnations"`
}

func (r *peerTest) counters(id string) streamCounters {
	r.t.Helper()
	var in struct {
		Streams []streamCounters `json:"streams"`
	}
	r.call(http.MethodGet, "/v1/instances/"+id, nil, &in)
	return in.Streams[0]
}

// The prompts of these tests: two conversations under one system prompt, and
// one that no engine knows.
var (
	talkA   = prompt{{1, 4}, {2, 6}}
	talkB   = prompt{{1, 4}, {3, 5}}
	talkC   = prompt{{4, 3}}
	unknown = prompt{{5, 2}}
)

// TestE2EPeerPublishes has an engine do what engines do, before kvindex knows
// of it and while it is followed.
func TestE2EPeerPublishes(t *testing.T) {
	t.Parallel()
	f := func(name string, o peerOptions, configured bool) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := []prompt{talkA, talkB, talkC, unknown}
			var r *peerTest
			if configured { // kvindex is there first
				o.endpoint, o.replay = "tcp://"+freeAddr(t), "tcp://"+freeAddr(t)
				r = newPeerTest(t, fmt.Sprintf("instances:\n- {id: pod, model: %s, endpoint: %q, replay_endpoint: %q}\n", peerModel, o.endpoint, o.replay))
				if in := r.instance("pod"); in.State != "connecting" {
					t.Errorf("the instance is %s before there is an engine", in.State)
				}
				if a := r.ask(talkA); a.State != "cold" {
					t.Errorf("the answer is %s before there is an engine", a.State)
				}
				if code, body := r.do(http.MethodGet, "/readyz", ""); code != http.StatusServiceUnavailable || !strings.Contains(body, "pod") {
					t.Errorf("/readyz: %d: %s", code, body)
				}
			}
			p := startPeer(t, o)
			// Before anybody listens.
			p.publish(stored(talkA, 0, 7))
			p.publish(stored(talkC, 0, 3))
			p.publish(removed(talkC, 2, 1), stored(talkB, 4, 5))
			begin := time.Now()
			p.bind()
			if !configured {
				r = newPeerTest(t, "")
				begin = time.Now()
				r.register("pod", p)
			}
			r.sees("first contact", begin, r.exact("pod", p, all...))
			if code, body := r.do(http.MethodGet, "/readyz", ""); code != http.StatusOK {
				t.Errorf("/readyz: %d: %s", code, body)
			}

			batch := func(events ...event) {
				t.Helper()
				begin := time.Now()
				p.publish(events...)
				r.sees("a batch", begin, r.exact("pod", p, all...))
			}
			batch(stored(talkA, 7, 3))
			batch(removed(talkA, 8, 2))
			batch(removed(talkB, 8, 1), removed(talkB, 7, 1), stored(talkC, 2, 1))
			batch(stored(talkA, 0, 1)) // a second copy of the first block
			batch(removed(talkA, 0, 1))
			batch(removed(talkA, 2, 1)) // a parent goes before its children
			batch(stored(talkA, 2, 1))
			batch(removed(talkC, 1, 1), stored(talkC, 1, 1))
			for i := range 20 {
				batch(stored(prompt{{1, 4}, {100 + i, 3}}, 4, 3))
			}
			batch(cleared())
			batch(stored(talkB, 0, 9))

			// An exact repeat: the engine computes its last block anew.
			a := r.query(map[string]any{"model": peerModel, "token_ids": talkB.tokens()[:9*peerBlock]})
			if in := a.Instances["pod"]; in.Matched != 9*peerBlock || in.Reusable != 8*peerBlock {
				t.Errorf("an exact repeat: %+v", in)
			}
			c := r.counters("pod")
			if c.Lost != 0 || c.Incarnations != 1 || c.Results["poison"] != 0 {
				t.Errorf("%+v; want no loss and one incarnation", c)
			}
		})
	}
	f("maps, replay with topic, registered", peerOptions{events: "map", layout: "topic"}, false)
	f("maps, replay without topic, configured", peerOptions{events: "map", layout: "plain"}, true)
	f("arrays, replay without topic, registered", peerOptions{events: "array", layout: "plain"}, false)
	f("arrays, replay with topic, configured", peerOptions{events: "array", layout: "topic"}, true)
}

func TestE2EPeerKilled(t *testing.T) {
	t.Parallel()
	r := newPeerTest(t, "")
	p := startPeer(t, peerOptions{}).bind()
	begin := time.Now()
	r.register("pod", p)
	p.publish(stored(talkA, 0, 10))
	r.sees("first contact", begin, r.exact("pod", p, talkA, unknown))
	begin = time.Now()
	p.kill()
	// What is known still answers, and is marked.
	gone := r.inexact("pod", "disconnected", "", []int{10, 0}, talkA, unknown)
	r.sees("a kill", begin, gone)
	time.Sleep(500 * time.Millisecond) // attempts to reconnect change nothing
	r.sees("a kill, later", time.Now(), gone)
}

// TestE2EPeerRestarts has a new process take the address of one that was
// killed: what the old one held is gone.
func TestE2EPeerRestarts(t *testing.T) {
	t.Parallel()
	// start is an engine with some blocks that kvindex knows exactly, and is
	// killed.
	start := func(t *testing.T, o peerOptions) (*peerTest, *peer) {
		t.Helper()
		t.Parallel()
		r := newPeerTest(t, "")
		p := startPeer(t, o).bind()
		begin := time.Now()
		r.register("pod", p)
		if o.noReplay {
			p.awaitSubscriber()
		}
		p.publish(stored(talkA, 0, 10))
		p.publish(stored(talkC, 0, 3))
		p.publish(removed(talkA, 9, 1))
		r.sees("first contact", begin, r.exact("pod", p, talkA, talkC))
		p.kill()
		r.sees("a kill", p.end, r.inexact("pod", "disconnected", "", []int{9, 3}, talkA, talkC))
		return r, p.successor()
	}
	// incarnations checks that one restart was seen, and nothing lost.
	incarnations := func(t *testing.T, r *peerTest) {
		t.Helper()
		if c := r.counters("pod"); c.Incarnations != 2 || c.Lost != 0 {
			t.Errorf("%+v; want two incarnations and no loss", c)
		}
	}

	t.Run("with fewer batches than before", func(t *testing.T) {
		r, p := start(t, peerOptions{})
		p.publish(stored(talkB, 0, 6))
		begin := time.Now()
		p.bind()
		r.sees("the restart", begin, r.exact("pod", p, talkA, talkB, talkC))
		begin = time.Now()
		p.publish(stored(talkC, 0, 1))
		r.sees("a batch after it", begin, r.exact("pod", p, talkA, talkB, talkC))
		incarnations(t, r)
	})
	t.Run("with nothing", func(t *testing.T) {
		r, p := start(t, peerOptions{layout: "plain"})
		begin := time.Now()
		p.bind()
		r.sees("the restart", begin, r.exact("pod", p, talkA, talkB, talkC))
		begin = time.Now()
		p.publish(stored(talkA, 0, 2))
		r.sees("a batch after it", begin, r.exact("pod", p, talkA, talkB, talkC))
		incarnations(t, r)
	})
	t.Run("masked by more batches than before", func(t *testing.T) {
		r, p := start(t, peerOptions{})
		// The same prompt has fewer blocks than in the old process, another more.
		p.publish(stored(talkA, 0, 2))
		for i := range 9 {
			p.publish(stored(talkB, i, 1))
		}
		check := r.exact("pod", p, talkA, talkB, talkC)
		begin := time.Now()
		p.bind()
		// From here on no answer that counts the instance as live may have a
		// block of the old process.
		truth := p.match(talkA, talkC)
		never := func() {
			for i, q := range []prompt{talkA, talkC} {
				if in := r.ask(q).Instances["pod"]; in.State == "live" && in.Matched != truth[i]*peerBlock {
					t.Fatalf("a live instance answers %d tokens for %v, and its engine holds %d\nlog of kvindex:\n%s",
						in.Matched, q, truth[i]*peerBlock, r.log)
				}
			}
		}
		r.sees("the restart", begin, func() string { never(); return check() })
		for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
			never()
		}
		if wrong := check(); wrong != "" {
			t.Error(wrong)
		}
		incarnations(t, r)
	})
	t.Run("without replay, from seq 0", func(t *testing.T) {
		r, p := start(t, peerOptions{noReplay: true})
		begin := time.Now()
		p.bind()
		// Until it says something nobody knows whether it restarted.
		r.sees("the reconnection", begin, r.inexact("pod", "degraded", "unverified", []int{9, 3}, talkA, talkC))
		p.awaitSubscriber()
		begin = time.Now()
		p.publish(stored(talkB, 0, 6))
		r.sees("the first batch", begin, r.exact("pod", p, talkA, talkB, talkC))
		incarnations(t, r)
	})
	t.Run("without replay, from a later seq", func(t *testing.T) {
		r, p := start(t, peerOptions{noReplay: true})
		p.publish(stored(talkB, 0, 6))
		p.publish(stored(talkC, 0, 2))
		begin := time.Now()
		p.bind()
		r.sees("the reconnection", begin, r.inexact("pod", "degraded", "unverified", []int{9, 3}, talkA, talkC))
		p.awaitSubscriber()
		begin = time.Now()
		p.publish(stored(talkA, 0, 1), stored(talkB, 6, 3)) // the parent of the second is not known
		r.sees("the first batch", begin, r.inexact("pod", "degraded", "history: known from seq 2", []int{1, 0, 0}, talkA, unknown, talkC))
		if in := r.ask(talkB).Instances["pod"]; in.Matched > p.match(talkB)[0]*peerBlock {
			t.Errorf("%+v: more than the engine holds", in)
		}
		begin = time.Now()
		p.publish(cleared())
		p.publish(stored(talkB, 0, 3))
		r.sees("a clear", begin, r.exact("pod", p, talkA, talkB, talkC))
		incarnations(t, r)
	})
}

// TestE2EPeerGaps loses batches on the way.
func TestE2EPeerGaps(t *testing.T) {
	t.Parallel()
	start := func(t *testing.T, o peerOptions) (*peerTest, *peer) {
		t.Helper()
		t.Parallel()
		r := newPeerTest(t, "")
		p := startPeer(t, o).bind()
		begin := time.Now()
		r.register("pod", p)
		if o.noReplay {
			p.awaitSubscriber()
		}
		p.publish(stored(talkA, 0, 2))
		r.sees("first contact", begin, r.exact("pod", p, talkA))
		return r, p
	}
	lost := func(t *testing.T, r *peerTest, n int) {
		t.Helper()
		if c := r.counters("pod"); c.Lost != n || c.Incarnations != 1 {
			t.Errorf("%+v; want %d lost batches of one incarnation", c, n)
		}
		if line := fmt.Sprintf(`kvindex_lost_batches_total{dp_rank="0",instance="pod"} %d`, n); !strings.Contains(r.metrics(), line+"\n") {
			t.Errorf("/metrics has no %s", line)
		}
	}
	// ends checks that the gap is over when the engine has cleared its cache.
	ends := func(r *peerTest, p *peer) {
		begin := time.Now()
		p.publish(cleared())
		r.sees("a clear", begin, r.exact("pod", p, talkA, talkB, talkC))
		begin = time.Now()
		p.publish(stored(talkA, 0, 10))
		r.sees("a batch after it", begin, r.exact("pod", p, talkA, talkB, talkC))
	}

	t.Run("repaired", func(t *testing.T) {
		r, p := start(t, peerOptions{})
		for range 3 {
			p.lose("live", stored(talkA, 2, 2))
			p.lose("live", removed(talkA, 3, 1), removed(talkA, 1, 1))
			p.lose("live", stored(talkA, 1, 1))
			begin := time.Now()
			p.publish(stored(talkA, 3, 7))
			r.sees("a repair", begin, r.exact("pod", p, talkA, talkB))
			begin = time.Now()
			p.publish(cleared(), stored(talkA, 0, 2))
			r.sees("a batch", begin, r.exact("pod", p, talkA, talkB))
		}
		lost(t, r, 0)
	})
	t.Run("not in the replay", func(t *testing.T) {
		r, p := start(t, peerOptions{})
		p.lose("all", stored(talkA, 2, 3))
		p.lose("all", stored(talkB, 4, 5))
		begin := time.Now()
		p.publish(stored(talkA, 5, 5), stored(talkC, 0, 3)) // the parent of the first is lost
		r.sees("a gap", begin, r.inexact("pod", "degraded", "gap: 2 batches lost", []int{2, 2, 3}, talkA, talkB, talkC))
		if truth := p.match(talkA, talkB, talkC); !slices.Equal(truth, []int{10, 9, 3}) {
			t.Errorf("the engine holds %v", truth) // the test's own arithmetic
		}
		// Removals and fresh stores apply.
		begin = time.Now()
		p.publish(removed(talkC, 2, 1), stored(talkA, 2, 1))
		r.sees("a batch in a degraded stream", begin, r.inexact("pod", "degraded", "history: known from seq 3 on", []int{3, 3, 2}, talkA, talkB, talkC))
		lost(t, r, 2)
		ends(r, p)
		lost(t, r, 2)
	})
	t.Run("older than the replay", func(t *testing.T) {
		r, p := start(t, peerOptions{buffer: 3})
		for i := range 5 {
			p.lose("live", stored(talkA, 2+i, 1))
		}
		begin := time.Now()
		p.publish(stored(talkC, 0, 3)) // with the last two of those
		r.sees("a gap", begin, r.inexact("pod", "degraded", "gap: 3 batches lost", []int{2, 2, 3}, talkA, talkB, talkC))
		lost(t, r, 3)
		ends(r, p)
	})
	t.Run("without replay", func(t *testing.T) {
		r, p := start(t, peerOptions{noReplay: true})
		p.lose("live", stored(talkA, 2, 3))
		p.lose("live", stored(talkB, 4, 2))
		p.lose("live", stored(talkB, 6, 3))
		begin := time.Now()
		p.publish(stored(talkA, 5, 5), stored(talkC, 0, 2))
		r.sees("a gap", begin, r.inexact("pod", "degraded", "gap: 3 batches lost; without a replay endpoint", []int{2, 2, 2}, talkA, talkB, talkC))
		lost(t, r, 3)
		ends(r, p)
	})
}

func (r *peerTest) metrics() string {
	r.t.Helper()
	code, body := r.do(http.MethodGet, "/metrics", "")
	if code != http.StatusOK {
		r.t.Fatalf("GET /metrics: %d: %s", code, body)
	}
	return body
}

// TestE2EPeerPoison sends what is no batch between good ones: it costs itself
// and nothing else.
func TestE2EPeerPoison(t *testing.T) {
	t.Parallel()
	r := newPeerTest(t, "")
	p := startPeer(t, peerOptions{}).bind()
	begin := time.Now()
	r.register("pod", p)

	noise := make([]byte, 300)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	noise[0] = 0xc1 // the byte that msgpack never uses
	seq := strings.Repeat("00", 7) + "09"
	list := []struct {
		result string   // under which it is counted
		frames []string // in hex, as they are
		batch  string   // or a payload, in hex, in a batch
	}{
		{result: "frame_count", frames: []string{"90"}},
		{result: "frame_count", frames: []string{"", seq}},
		{result: "frame_count", frames: []string{"", seq, "90", "00"}},
		{result: "seq_length", frames: []string{"", "00000009", "90"}},
		{result: "seq_length", frames: []string{"", "", "90"}},
		{result: "seq_reserved", frames: []string{"", strings.Repeat("ff", 8), "90"}},
		{result: "poison", batch: hex.EncodeToString(noise)},
		{result: "poison", batch: hex.EncodeToString([]byte(`{"ts": 1, "events": []}`))},
		{result: "poison", batch: "ddffffffff"},   // an array of 4 G elements, none of which is there
		{result: "poison", batch: "93cb41dac309"}, // cut off
		{result: "poison", batch: ""},
	}
	talk, other := prompt{{1, 1 + len(list)}}, prompt{{2, 1}}
	p.publish(stored(talk, 0, 1), stored(other, 0, 1))
	r.sees("first contact", begin, r.exact("pod", p, talk))
	want, lost := map[string]int{"applied": 1}, 0
	for i, m := range list {
		if m.frames != nil {
			p.do("send", map[string]any{"frames": m.frames})
		} else {
			p.do("raw", map[string]any{"payload": m.batch})
			lost++
		}
		want[m.result]++
		want["applied"]++
		begin = time.Now()
		p.publish(stored(talk, i+1, 1))
		check := r.exact("pod", p, talk)
		if lost > 0 { // a batch that cannot be read is a batch that is missing
			check = r.inexact("pod", "degraded", fmt.Sprintf("poison: %d batches could not be decoded", lost), p.match(talk), talk)
		}
		r.sees("a batch after poison", begin, check)
	}
	r.sees("the counters", time.Now(), func() string {
		c := r.counters("pod")
		delete(c.Results, "duplicate") // of the look back after the connection
		if !maps.Equal(c.Results, want) || c.Lost != lost {
			return fmt.Sprintf("%+v; want %v and %d lost", c, want, lost)
		}
		text := r.metrics()
		for result, n := range want {
			if line := fmt.Sprintf(`kvindex_batches_total{dp_rank="0",instance="pod",result=%q} %d`, result, n); !strings.Contains(text, line+"\n") {
				return "/metrics has no " + line
			}
		}
		return ""
	})
	// Who comes later, in place of the first, gets the batches of it from the
	// replay, and reads on.
	begin = time.Now()
	r.register("late", p)
	r.sees("poison in a replay", begin, func() string {
		in := r.instance("late")
		a := r.ask(talk).Instances["late"]
		if want := fmt.Sprintf("poison: %d batches could not be decoded", lost); in.State != "degraded" || !strings.HasPrefix(in.Reason, want) {
			return fmt.Sprintf("the instance is %s (%s); want degraded (%s)", in.State, in.Reason, want)
		}
		if a.Matched != p.match(talk)[0]*peerBlock {
			return fmt.Sprintf("%+v", a)
		}
		return ""
	})
	begin = time.Now()
	p.publish(cleared(), stored(talkB, 0, 4))
	r.sees("a clear", begin, r.exact("late", p, talk, talkB))
}

// TestE2EPeerConnects has an engine whose endpoint lacks the wildcard: vLLM
// then connects where it should bind, and nothing ever comes.
func TestE2EPeerConnects(t *testing.T) {
	t.Parallel()
	r := newPeerTest(t, "")
	p := startPeer(t, peerOptions{noReplay: true, endpoint: "tcp://" + freeAddr(t)})
	p.do("connect", nil)
	p.endpoint = p.opts.endpoint
	p.publish(stored(talkA, 0, 10))
	begin := time.Now()
	r.register("pod", p)
	r.within(15*time.Second, func() string {
		in := r.instance("pod")
		if in.State != "connecting" {
			t.Fatalf("the instance is %s (%s)", in.State, in.Reason)
		}
		if a := r.ask(talkA); a.State != "cold" || a.Instances["pod"].Matched != 0 {
			t.Fatalf("the answer is %+v", a)
		}
		if !strings.Contains(in.Hint, "`*`") || !strings.Contains(in.Hint, p.endpoint) {
			return fmt.Sprintf("the hint is %q", in.Hint)
		}
		return ""
	})
	t.Logf("the hint came after %v", time.Since(begin).Round(time.Millisecond))
	// The operator corrects the endpoint and restarts the engine.
	p.kill()
	next := p.successor()
	begin = time.Now()
	next.bind().awaitSubscriber()
	next.publish(stored(talkA, 0, 10))
	r.sees("the corrected engine", begin, r.exact("pod", next, talkA))
	if in := r.instance("pod"); in.Hint != "" {
		t.Errorf("the hint stays: %q", in.Hint)
	}
}

// TestE2EPeerSilent has a connected engine that says nothing, as when its
// topic is another one.
func TestE2EPeerSilent(t *testing.T) {
	t.Parallel()
	r := newPeerTest(t, "events: {silence_hint: 300ms}\n")
	p := startPeer(t, peerOptions{noReplay: true}).bind()
	begin := time.Now()
	r.register("pod", p)
	r.sees("silence of 300 ms", begin, func() string {
		if in := r.instance("pod"); in.State != "degraded" || !strings.HasPrefix(in.Reason, "history") || !strings.Contains(in.Hint, "`*`") {
			return fmt.Sprintf("the instance is %s (%s), the hint %q", in.State, in.Reason, in.Hint)
		}
		return ""
	})
}

// engineHTTP is an engine's HTTP server as far as it describes itself.
func engineHTTP(t testing.TB, answers map[string]string) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, ok := answers[q.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			body = `{"detail":"Not Found"}`
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(srv.Close)
	return srv
}

// TestE2EPeerDescribesItself registers engines by the URL of their HTTP
// server.
func TestE2EPeerDescribesItself(t *testing.T) {
	t.Parallel()
	const models = `{"object":"list","data":[{"id":"ada","object":"model","parent":"tiny"},{"id":"tiny","object":"model","root":"/models/tiny","parent":null,"max_model_len":4096}]}`
	// source is what vLLM 0.32 says of one rank: the addresses that it binds.
	source := func(p *peer) string {
		bound := func(endpoint string) string { return strings.Replace(endpoint, "127.0.0.1", "*", 1) }
		return fmt.Sprintf(`{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":%q,"replay_endpoint":%q,"buffer_steps":10000,"hwm":100000,"max_queue_size":100000,"topic":"kv@pod-0@tiny"}`,
			bound(p.endpoint), bound(p.replay))
	}
	r := newPeerTest(t, "")
	ranks := []*peer{startPeer(t, peerOptions{}).bind(), startPeer(t, peerOptions{rank: 1}).bind()}
	ranks[0].publish(stored(talkA, 0, 3))
	ranks[1].publish(stored(talkA, 0, 8))
	srv := engineHTTP(t, map[string]string{
		"/kv_event_sources": fmt.Sprintf(`{"0":%s,"1":%s}`, source(ranks[0]), source(ranks[1])),
		"/v1/models":        models,
	})
	begin := time.Now()
	code, body := r.do(http.MethodPost, "/register", fmt.Sprintf(`{"url":%q}`, srv.URL))
	var out struct {
		ID    string `json:"instance_id"`
		Model string `json:"model"`
	}
	if err := json.Unmarshal([]byte(body), &out); err != nil || code != http.StatusCreated || out.Model != peerModel || out.ID == "" {
		t.Fatalf("POST /register: %d: %s", code, body)
	}
	// follows is as exact, with two ranks: the answer is the better one's.
	follows := func() func() string {
		want := max(ranks[0].match(talkA)[0], ranks[1].match(talkA)[0])
		return func() string {
			in := r.instance(out.ID)
			if in.State != "live" || len(in.Streams) != 2 {
				return fmt.Sprintf("%+v", in)
			}
			a := r.ask(talkA)
			if a.State != "exact" {
				return fmt.Sprintf("the answer is %s (%s)", a.State, a.Reason)
			}
			return a.of(out.ID, "live", want)
		}
	}
	r.sees("first contact", begin, follows())
	begin = time.Now()
	ranks[0].publish(stored(talkA, 3, 7))
	r.sees("a batch", begin, follows())
	if code, body := r.do(http.MethodPost, "/register", fmt.Sprintf(`{"url":%q}`, srv.URL+"/")); code != http.StatusOK {
		t.Errorf("the same again: %d: %s", code, body)
	}

	refused := func(what string, answers map[string]string, missing ...string) {
		t.Helper()
		srv := engineHTTP(t, answers)
		code, body := r.do(http.MethodPost, "/register", fmt.Sprintf(`{"url":%q}`, srv.URL))
		var e struct {
			Code   string `json:"error"`
			Reason string `json:"reason"`
			Field  string `json:"field"`
		}
		if err := json.Unmarshal([]byte(body), &e); err != nil || code != http.StatusUnprocessableEntity || e.Code != "incomplete" || e.Field != missing[0] {
			t.Errorf("%s: %d: %s; want 422 for %s", what, code, body, missing[0])
		}
		for _, m := range missing {
			if !strings.Contains(e.Reason, m) {
				t.Errorf("%s: the reason does not name %s: %s", what, m, body)
			}
		}
	}
	refused("an engine before 0.32", map[string]string{"/v1/models": models}, "endpoint", "/kv_event_sources", "404")
	refused("no events", map[string]string{"/kv_event_sources": `{}`, "/v1/models": models}, "endpoint", "KV events")
	refused("publisher null", map[string]string{"/kv_event_sources": `{"0":{"enable_kv_cache_events":true,"publisher":"null","endpoint":"tcp://*:5557"}}`, "/v1/models": models}, "endpoint", "--kv-events-config")
	refused("no model", map[string]string{"/kv_event_sources": fmt.Sprintf(`{"0":%s}`, source(ranks[0]))}, "model", "/v1/models")
	refused("another server", nil, "endpoint", "model")
	var list struct {
		Instances []instance `json:"instances"`
	}
	if r.call(http.MethodGet, "/v1/instances", nil, &list); len(list.Instances) != 1 {
		t.Errorf("%d instances after registrations that were refused", len(list.Instances))
	}
}

// TestE2EPeerStop ends kvindex in the middle of its work.
func TestE2EPeerStop(t *testing.T) {
	t.Parallel()
	r := newPeerTest(t, "")
	var peers []*peer
	for i := range 3 {
		p := startPeer(t, peerOptions{}).bind()
		p.do("chatter", map[string]any{"every": 0.002})
		r.register(fmt.Sprint("pod-", i), p)
		peers = append(peers, p)
	}
	backlog := startPeer(t, peerOptions{}).bind()
	backlog.do("fill", map[string]any{"batches": 10_000})
	for i := range peers {
		r.within(visible, func() string {
			in := r.instance(fmt.Sprint("pod-", i))
			if in.State != "live" || in.Streams[0].LastSeq == nil || *in.Streams[0].LastSeq < 100 {
				return fmt.Sprintf("%+v", in)
			}
			return ""
		})
	}
	// Routers ask, and one instance is being caught up with.
	body, err := json.Marshal(map[string]any{"model": peerModel, "token_ids": talkA.tokens()})
	if err != nil {
		t.Fatal(err)
	}
	var routers sync.WaitGroup
	for range 2 {
		routers.Go(func() {
			for {
				resp, err := http.Post(r.url+"/v1/query", "application/json", strings.NewReader(string(body)))
				if err != nil {
					return // it has ended
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
	r.register("backlog", backlog)
	begin := time.Now()
	r.stop() // fails the test unless it ends with 0
	took := time.Since(begin)
	t.Logf("SIGTERM to exit: %v", took.Round(time.Millisecond))
	if took > 5*time.Second {
		t.Errorf("it took %v to stop", took)
	}
	routers.Wait()
	text := r.log.String()
	if !strings.Contains(text, `"msg":"bye"`) {
		t.Errorf("no farewell in the log:\n%s", text)
	}
	for _, bad := range []string{"panic", "DATA RACE", `"level":"ERROR"`} {
		if strings.Contains(text, bad) {
			t.Errorf("%s in the log:\n%s", bad, text)
		}
	}
	for i, p := range peers { // the engines do not care
		if n := p.do("chatter", map[string]any{"every": 0}).Published; n < 100 {
			t.Errorf("peer %d has published %d batches", i, n)
		}
	}
}
