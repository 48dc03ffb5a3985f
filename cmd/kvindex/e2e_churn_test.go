package main_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvindex/kvindex/events/enginesim"
	"github.com/kvindex/kvindex/indexer"
)

// TestE2EChurn lets 64 simulated engines of all kinds work, fail, restart and
// come back while routers ask. Whatever happens, no request fails and no
// answer is impossible. Now and then the faults end, and some time later every
// stream is equal to its engine, or says that it is not, and why; the reason
// must follow from what was done to that stream since its engine's last start.
// No block of a process that has ended is left, and memory and goroutines are
// what they were.
//
// KVINDEX_CHURN is how long it goes on (20s), not counting the pauses; with it
// progress is also written to stderr. KVINDEX_SEED repeats all choices of a
// run, though not its timing.
func TestE2EChurn(t *testing.T) {
	c := newChurn(t)
	c.followAll()
	goroutines, rss := c.goroutines(), 0
	rounds := max(3, int(c.duration/churnRound))
	for i := range rounds {
		c.stir(c.duration / time.Duration(rounds))
		c.calmDown(i)
		c.settle()
		if i == (rounds-1)/3 {
			rss = c.rss()
		}
	}
	c.report()
	c.checkResources(rss, goroutines)
	if log := c.s.log.String(); strings.Contains(log, `"level":"ERROR"`) || strings.Contains(log, "panic") {
		t.Error("kvindex logged an error")
	}
}

const (
	churnEngines    = 64
	churnVocabulary = 32_000
	churnWait       = time.Minute // how long things may take to become quiet
	churnPace       = 100 * time.Millisecond
	churnRound      = 15 * time.Second
)

// churn is the binary, the engines that it follows, and what is counted.
type churn struct {
	t        *testing.T
	s        *server
	client   *http.Client
	begin    time.Time
	duration time.Duration
	loud     bool
	rand     *rand.Rand
	engines  []*churnEngine

	requests, queries, wrong atomic.Int64
	probes                   int

	mu     sync.Mutex
	faults map[string]int
	delays []time.Duration // until a calm engine's batch was in an answer
	took   []time.Duration // by queries, up to 100,000 of them
}

func newChurn(t *testing.T) *churn {
	duration, seed := 20*time.Second, uint64(time.Now().UnixNano())
	var err error
	text := os.Getenv("KVINDEX_CHURN")
	if text != "" {
		if duration, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	if s := os.Getenv("KVINDEX_SEED"); s != "" {
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	c := &churn{
		t: t, begin: time.Now(), duration: duration, loud: text != "",
		// Idle connections are given up before kvindex does: it would take a POST
		// that comes at that moment with it.
		client: &http.Client{Timeout: churnWait, Transport: &http.Transport{MaxIdleConnsPerHost: 100, IdleConnTimeout: 20 * time.Second}},
		rand:   rand.New(rand.NewPCG(seed, 1)),
		faults: map[string]int{},
	}
	c.logf("KVINDEX_SEED=%d KVINDEX_CHURN=%v", seed, duration)
	c.s = serve(t, "log:\n  level: warn\n")
	for i := range churnEngines {
		c.engines = append(c.engines, c.start(i))
	}
	return c
}

func (c *churn) logf(format string, args ...any) {
	c.t.Helper()
	c.t.Logf(format, args...)
	if c.loud {
		fmt.Fprintf(os.Stderr, format+"\n", args...)
	}
}

// errorf reports what is wrong, though not a thousand times.
func (c *churn) errorf(format string, args ...any) {
	c.t.Helper()
	if c.wrong.Add(1) <= 50 {
		c.t.Errorf(format, args...)
	}
}

// temper is what an engine has to endure.
type temper int

const (
	calm   temper = iota // nothing: it must be live and up to date all the time
	shaken               // what a replay repairs, if there is one
	wild                 // everything
)

// blame is what was done to a stream since its engine started, as far as it
// explains what an index lacks.
type blame uint8

const (
	lost    blame = 1 << iota // batches that no replay brings
	late                      // batches that only a replay brings
	joined                    // followed from the middle, or anew
	deaf                      // replays that do not come, again and again
	garbage                   // batches that nobody can decode
	sized                     // stores that contradict themselves
)

// churnEngine is an engine and what its driver knows of it.
type churnEngine struct {
	*enginesim.Engine
	c      *churn
	n      int
	id     string
	model  string
	o      enginesim.EngineOptions
	temper temper
	size   int  // block size that it is registered with, 0: none
	loras  bool // its events can tell adapters
	salts  bool // ... and salts
	rand   *rand.Rand
	life   atomic.Int64 // which process it is
	blame  []blame      // by rank
	mildAt []time.Time  // the last passing fault of the rank's replays
	turn   [][]uint32   // a conversation of each rank
}

// start starts the i-th engine. Every kind there is comes several times.
func (c *churn) start(i int) *churnEngine {
	encodings := []enginesim.Encoding{
		enginesim.R4, enginesim.R5, enginesim.R6, enginesim.R7, enginesim.R8, enginesim.R9, enginesim.R9,
		enginesim.S1, enginesim.S2, enginesim.S3, enginesim.S4, enginesim.S5,
	}
	enc := encodings[i%len(encodings)]
	sglang := enc >= enginesim.S1
	e := &churnEngine{
		c: c, n: i, id: fmt.Sprintf("pod-%02d", i), model: []string{"alpha", "beta"}[i%2],
		rand:  rand.New(rand.NewPCG(c.rand.Uint64(), uint64(i))),
		loras: enc >= enginesim.R5 && !sglang || enc == enginesim.S5,
		salts: enc >= enginesim.R6 && !sglang || enc >= enginesim.S4,
	}
	if sglang {
		e.model = "gamma"
	}
	switch {
	case i%16 == 0:
		e.temper = calm
	case i%2 == 1:
		e.temper = wild
	default:
		e.temper = shaken
	}
	e.options(enc, sglang)
	var err error
	if e.Engine, err = enginesim.Start(e.o); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = e.Close() })
	e.blame, e.mildAt, e.turn = make([]blame, e.Ranks()), make([]time.Time, e.Ranks()), make([][]uint32, e.Ranks())
	return e
}

// options chooses what kind of engine e is.
func (e *churnEngine) options(enc enginesim.Encoding, sglang bool) {
	r := e.rand
	chance := func(n int) bool { return r.IntN(n) == 0 }
	p := enginesim.PoolOptions{
		Blocks: 120 + r.IntN(120), BlockSize: 16, Vocabulary: churnVocabulary,
		QueueEmpty: chance(2), MergeRemoved: sglang || chance(3), StartupClear: enc >= enginesim.S4,
	}
	switch {
	case enc == enginesim.S1:
		p.BlockSize, p.Blocks = 1, 16*p.Blocks
	case chance(4):
		p.BlockSize = 32
	}
	switch {
	case sglang:
		p.Hash = enginesim.HashSGLang
	case chance(3):
		p.Hash = enginesim.HashBytes
	}
	if e.n%6 == 5 {
		p.Tenant = "acme"
	}
	if chance(3) {
		p.ChunkTokens = 32
	}
	if chance(3) && enc != enginesim.S1 && enc != enginesim.S2 { // which do not name the tier
		// ResetCPU, for the index drops all tiers with "all blocks cleared".
		p.CPUBlocks, p.ResetCPU, p.OffloadTokens, p.OffloadDelay = 2*p.Blocks, true, sglang || chance(2), r.IntN(4)
	}
	e.o = enginesim.EngineOptions{
		Pool: p, Encoding: enc, Ranks: 1 + e.n/2%2*r.IntN(2), FirstRank: r.IntN(2) * r.IntN(5),
		PrivateHashes: chance(3), Seed: r.Uint64(),
		Stream: enginesim.StreamOptions{
			BufferSteps: 2000, NoReplay: chance(6) && e.temper != calm,
			Layout: enginesim.ReplayWithoutTopic + enginesim.ReplayLayout(r.IntN(2)),
		},
	}
	if e.temper == calm {
		e.o.Pool.Blocks *= 4
		e.o.Stream.BufferSteps = 20_000
	} else if chance(6) {
		e.o.Stream.BufferSteps = 40
	}
	if chance(2) {
		e.size = p.BlockSize
	}
	if chance(2) {
		e.o.Stream.Topic = "kv@" + e.id + "@" + e.model
	}
}

// ask sends a request and decodes the answer, which must have one of the
// given statuses.
func (c *churn) ask(method, path string, body, into any, statuses ...int) bool {
	b, err := json.Marshal(body)
	if err != nil {
		c.errorf("%v", err)
		return false
	}
	req, err := http.NewRequestWithContext(context.Background(), method, c.s.url+path, bytes.NewReader(b))
	if err != nil {
		c.errorf("%v", err)
		return false
	}
	resp, err := c.client.Do(req)
	if err != nil {
		c.errorf("%s %s: %v", method, path, err)
		return false
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || !slices.Contains(statuses, resp.StatusCode) {
		c.errorf("%s %s: %s, %v: %.500s", method, path, resp.Status, err, text)
		return false
	}
	if into == nil {
		return true
	}
	if raw, ok := into.(*[]byte); ok {
		*raw = text
		return true
	}
	if err := json.Unmarshal(text, into); err != nil {
		c.errorf("%s %s: %v: %.500s", method, path, err, text)
		return false
	}
	return true
}

func (e *churnEngine) register() {
	for k := range e.Ranks() {
		body := map[string]any{
			"instance_id": e.id, "model": e.model, "endpoint": e.Endpoint(k), "dp_rank": e.Rank(k).ID(), "type": "vLLM",
		}
		for name, v := range map[string]string{"replay_endpoint": e.ReplayEndpoint(k), "tenant_id": e.o.Pool.Tenant} {
			if v != "" {
				body[name] = v
			}
		}
		if e.size != 0 {
			body["block_size"] = e.size
		}
		e.c.ask(http.MethodPost, "/register", body, nil, http.StatusOK, http.StatusCreated)
	}
}

// followAll registers all engines and waits until each is connected.
func (c *churn) followAll() {
	for _, e := range c.engines {
		e.register()
	}
	c.awaitSubscribers()
	c.await("all streams are followed", func() (wrong []string) {
		for key, st := range c.streams() {
			if st.State != "live" && (st.State != "degraded" || st.Replay != "") {
				wrong = append(wrong, fmt.Sprintf("%v is %s", key, st.State))
			}
		}
		return wrong
	})
}

func (c *churn) awaitSubscribers() {
	ctx, cancel := context.WithTimeout(context.Background(), churnWait)
	defer cancel()
	for _, e := range c.engines {
		if err := e.WaitSubscribers(ctx); err != nil {
			c.t.Fatalf("%s: %v", e.id, err)
		}
	}
}

// await waits until nothing is wrong any more.
func (c *churn) await(what string, check func() []string) {
	c.t.Helper()
	begin, limit := time.Now(), churnWait
	if raceEnabled {
		limit *= 2
	}
	for {
		wrong := check()
		if len(wrong) == 0 {
			c.logf("%s after %v", what, time.Since(begin).Round(time.Millisecond))
			return
		}
		if time.Since(begin) > limit {
			c.t.Fatalf("not so after %v: %s:\n%s", limit, what, strings.Join(wrong, "\n"))
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// stir is the churn itself.
func (c *churn) stir(d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	var wg sync.WaitGroup
	for _, e := range c.engines {
		wg.Go(func() { e.drive(ctx) })
	}
	for i := range 4 {
		r := rand.New(rand.NewPCG(c.rand.Uint64(), uint64(i)))
		wg.Go(func() { c.query(ctx, r) })
	}
	wg.Go(func() { c.probe(ctx) })
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
			c.progress()
		case <-ctx.Done():
		}
	}
	wg.Wait()
}

func (c *churn) progress() {
	var batches uint64
	for _, e := range c.engines {
		for k := range e.Ranks() {
			batches += e.Rank(k).Stream().Counts().Published
		}
	}
	c.mu.Lock()
	faults := 0
	for _, n := range c.faults {
		faults += n
	}
	c.mu.Unlock()
	c.logf("%4.0f s: %d requests, %d batches, %d faults, %d queries, %d errors, rss %d MiB",
		time.Since(c.begin).Seconds(), c.requests.Load(), batches, faults, c.queries.Load(), c.wrong.Load(), c.rss()>>20)
}

func percentiles(d []time.Duration) string {
	if len(d) == 0 {
		return "nothing"
	}
	slices.Sort(d)
	at := func(p int) time.Duration { return d[(len(d)-1)*p/100].Round(10 * time.Microsecond) }
	return fmt.Sprintf("p50 %v, p99 %v, max %v (%d)", at(50), at(99), at(100), len(d))
}

// drive is the life of one engine.
func (e *churnEngine) drive(ctx context.Context) {
	faults := churnFaults()
	for ctx.Err() == nil {
		k := e.rand.IntN(e.Ranks())
		var err error
		if f := faults[e.rand.IntN(len(faults))]; e.rand.IntN(10) == 0 && e.temper >= f.temper {
			if err = f.do(e, k); err == nil {
				e.c.mu.Lock()
				e.c.faults[f.name]++
				e.c.mu.Unlock()
			}
			if errors.Is(err, errUnfit) {
				err = nil
			}
			if err != nil {
				err = fmt.Errorf("%s: %w", f.name, err)
			}
		} else {
			err = e.work(k)
		}
		if err != nil {
			e.c.errorf("%s: %v", e.id, err)
			return
		}
		time.Sleep(rand.N(2 * churnPace))
	}
}

// work runs a few requests on a rank, all at the same time.
func (e *churnEngine) work(k int) error {
	rank := e.Rank(k)
	var jobs []*enginesim.Job
	for range 1 + e.rand.IntN(3) {
		j, err := rank.Begin(e.request(k))
		if err != nil {
			return err
		}
		jobs = append(jobs, j)
	}
	busy := func(j *enginesim.Job) bool { return !j.Done() }
	for slices.ContainsFunc(jobs, busy) {
		if e.rand.IntN(50) == 0 {
			rank.Finish(jobs[0]) // the client went away
		}
		if err := rank.Step(); err != nil {
			return err
		}
	}
	e.c.requests.Add(int64(len(jobs)))
	e.turn[k] = slices.Clone(jobs[0].Tokens())
	return nil
}

func (e *churnEngine) request(k int) enginesim.Request {
	req := enginesim.Request{Generate: e.rand.IntN(40)}
	switch n := e.rand.IntN(10); {
	case n < 3:
		req.Tokens = e.own(k, e.life.Load(), e.rand.IntN(ownPrompts))
		return req
	case n < 5 && len(e.turn[k]) > 0 && len(e.turn[k]) < 400:
		req.Tokens = append(e.turn[k], 1, 2, 3)
	default:
		req.Tokens = sharedPrompt(e.rand)
	}
	if e.loras && e.rand.IntN(5) == 0 {
		req.LoRA = []string{"ada", "bob"}[e.rand.IntN(2)]
	}
	if e.salts && e.rand.IntN(5) == 0 {
		req.Salt = []string{"sea", "rock"}[e.rand.IntN(2)]
	}
	return req
}

// sharedPrompt is one of many prompts that begin alike, the same for all
// engines.
func sharedPrompt(r *rand.Rand) []uint32 {
	conversation, end := r.Uint64N(24), r.Uint64N(6)
	tokens := fill(rand.New(rand.NewPCG(conversation, 0)), 16*(1+r.IntN(10)))
	return append(tokens, fill(rand.New(rand.NewPCG(conversation, 1+end)), 1+int(9*end))...)
}

// ownPrompts is how many prompts a rank has that no other process ever gets.
const ownPrompts = 4

// own is a prompt that only one process of one rank ever gets: a hit anywhere
// else is an invention. The first token alone says so.
func (e *churnEngine) own(k int, life int64, n int) []uint32 {
	r := rand.New(rand.NewPCG(uint64(e.n)<<8|uint64(k), uint64(life)<<8|uint64(n)))
	tokens := fill(r, 40+r.IntN(120))
	tokens[0] = 1<<30 | uint32(e.n)<<20 | uint32(k)<<16 | uint32(life)
	return tokens
}

func fill(r *rand.Rand, n int) []uint32 {
	tokens := make([]uint32, n)
	for i := range tokens {
		tokens[i] = uint32(r.IntN(churnVocabulary))
	}
	return tokens
}

// errUnfit is what a fault returns that the engine cannot have.
var errUnfit = errors.New("this engine cannot have this fault")

// churnFault is something that goes wrong with rank k of an engine.
type churnFault struct {
	name   string
	temper temper // for engines of this temper or a worse one
	do     func(e *churnEngine, k int) error
}

// churnFaults are all faults; some are here twice to happen more often.
func churnFaults() []churnFault {
	return []churnFault{
		{"skip", wild, func(e *churnEngine, k int) error { return e.stream(k, lost).Skip(1 + e.rand.IntN(3)) }},
		{"drop", shaken, func(e *churnEngine, k int) error { return e.stream(k, late).DropLive(1 + e.rand.IntN(5)) }},
		{"drop", shaken, func(e *churnEngine, k int) error { return e.stream(k, late).DropLive(1 + e.rand.IntN(5)) }},
		{"duplicate", shaken, func(e *churnEngine, k int) error { return e.stream(k, 0).Duplicate(1 + e.rand.IntN(5)) }},
		{"reorder", shaken, func(e *churnEngine, k int) error { return e.stream(k, late).Reorder(2 + e.rand.IntN(5)) }},
		{"resend", shaken, (*churnEngine).resend},
		{"jump", wild, (*churnEngine).jump},
		{"silence", shaken, (*churnEngine).silence},
		{"frames", shaken, func(e *churnEngine, k int) error {
			empty := e.o.Encoding.AppendBatch(nil, enginesim.Batch{Time: float64(time.Now().UnixNano()) / 1e9, Rank: e.Rank(k).ID()})
			return e.poison(k, enginesim.OneFrame+enginesim.Garble(e.rand.IntN(5)), empty, late)
		}},
		{"poison", wild, func(e *churnEngine, k int) error {
			return e.poison(k, enginesim.Garble(e.rand.IntN(6)), nil, late|garbage)
		}},
		{"replay, mild", shaken, (*churnEngine).replayMild},
		{"replay, mild", shaken, (*churnEngine).replayMild},
		{"replay, harsh", wild, (*churnEngine).replayHarsh},
		{"heal", shaken, func(e *churnEngine, k int) error { return e.stream(k, 0).Heal() }},
		{"restart", shaken, func(e *churnEngine, _ int) error { return e.restart(enginesim.RestartOptions{}) }},
		{"restart, down", shaken, func(e *churnEngine, _ int) error {
			return e.restart(enginesim.RestartOptions{Down: time.Duration(e.rand.IntN(400)) * time.Millisecond})
		}},
		{"restart, masked", shaken, func(e *churnEngine, _ int) error {
			return e.restart(enginesim.RestartOptions{Masked: true, Ahead: 1 + e.rand.IntN(20)})
		}},
		{"clear", shaken, func(e *churnEngine, k int) error { return e.Rank(k).Clear() }},
		{"clear", shaken, func(e *churnEngine, k int) error { return e.Rank(k).Clear() }},
		{"flood", shaken, func(e *churnEngine, k int) error { return e.Rank(k).Flood(50 + e.rand.IntN(200)) }},
		{"block size", wild, (*churnEngine).wrongSize},
		{"unregister", shaken, (*churnEngine).unregister},
		{"resync", shaken, func(e *churnEngine, _ int) error {
			e.blameAll(joined)
			e.c.ask(http.MethodPost, "/v1/instances/"+e.id+"/resync", nil, nil, http.StatusOK)
			return nil
		}},
	}
}

// stream is the stream of a rank, which is about to be blamed.
func (e *churnEngine) stream(k int, b blame) *enginesim.Stream {
	e.blame[k] |= b
	return e.Rank(k).Stream()
}

func (e *churnEngine) blameAll(b blame) {
	for k := range e.blame {
		e.blame[k] |= b
	}
}

// healAll takes back all faults that have not shown yet.
func (e *churnEngine) healAll() error {
	var err error
	for k := range e.Ranks() {
		e.Rank(k).WrongBlockSize(0, 0)
		err = errors.Join(err, e.Rank(k).Stream().Heal())
	}
	return err
}

func (e *churnEngine) resend(k int) error {
	s := e.stream(k, 0)
	seq := s.Seq()
	if seq == 0 {
		return errUnfit
	}
	back := min(seq, 40)
	if s.Resend(seq-1-e.rand.Uint64N(back)) != nil {
		return errUnfit // it was never in the buffer
	}
	return nil
}

// jump moves the numbering. Backward it looks like a process that began anew
// without closing its connection, where replays would bring both; so only
// engines without have it.
func (e *churnEngine) jump(k int) error {
	s := e.stream(k, lost)
	if n := 1 + e.rand.Int64N(5); e.o.Stream.NoReplay && s.Seq() > 5 && e.rand.IntN(2) == 0 {
		return s.Jump(-n)
	}
	return s.Jump(1 + e.rand.Int64N(5))
}

// silence makes the engine hang for a while, with work to do.
func (e *churnEngine) silence(k int) error {
	s := e.stream(k, 0)
	if err := s.Silence(true); err != nil {
		return err
	}
	if err := e.work(k); err != nil {
		return err
	}
	time.Sleep(time.Duration(e.rand.IntN(500)) * time.Millisecond)
	return s.Silence(false)
}

func (e *churnEngine) poison(k int, g enginesim.Garble, payload []byte, b blame) error {
	_, err := e.stream(k, b).Poison(g, payload)
	return err
}

// replayMild makes one or two replays go wrong in ways that asking again
// repairs, and something to replay.
func (e *churnEngine) replayMild(k int) error {
	if e.o.Stream.NoReplay || time.Since(e.mildAt[k]) < 5*time.Second {
		return errUnfit
	}
	e.mildAt[k] = time.Now()
	list := []enginesim.ReplayFault{
		{Truncate: 2 + e.rand.IntN(5), LoseEnd: true}, {Truncate: 2 + e.rand.IntN(20)},
		{Holes: 0.3}, {LoseEnd: true}, {Pace: time.Millisecond, Truncate: 200},
	}
	f := list[e.rand.IntN(len(list))]
	f.Times = 1 + e.rand.IntN(2)
	s := e.stream(k, late)
	return errors.Join(s.FaultReplay(f), s.DropLive(1+e.rand.IntN(8)))
}

// replayHarsh makes replays fail for so long that they may be given up.
func (e *churnEngine) replayHarsh(k int) error {
	if e.o.Stream.NoReplay {
		return errUnfit
	}
	list := []enginesim.ReplayFault{
		{Ignore: true}, {Truncate: -1}, {Truncate: 1}, {Truncate: -1, LoseEnd: true}, {Holes: 0.9}, {Pace: 3 * time.Millisecond, Holes: 0.5, Truncate: 100},
	}
	f := list[e.rand.IntN(len(list))]
	f.Times = 1 + e.rand.IntN(6)
	s := e.stream(k, late|deaf)
	return errors.Join(s.FaultReplay(f), s.DropLive(1+e.rand.IntN(3)))
}

// restart ends the process and starts the next. Every other time the new one
// has none of the old one's faults.
func (e *churnEngine) restart(o enginesim.RestartOptions) error {
	o.Wait = churnWait
	if e.rand.IntN(2) == 0 {
		if err := e.healAll(); err != nil {
			return err
		}
		clear(e.blame)
	}
	e.blameAll(joined)
	if err := e.Restart(o); err != nil {
		return err
	}
	e.life.Add(1)
	clear(e.turn)
	return nil
}

func (e *churnEngine) wrongSize(k int) error {
	if e.o.Pool.CPUBlocks > 0 {
		return errUnfit // what is wrong with other tiers is counted, and degrades nothing
	}
	e.blame[k] |= sized
	e.Rank(k).WrongBlockSize(e.o.Pool.BlockSize+1+e.rand.IntN(2)*e.o.Pool.BlockSize, 1+e.rand.IntN(3))
	return nil
}

// unregister lets kvindex forget the engine, or one rank of it, for a while.
func (e *churnEngine) unregister(k int) error {
	body := map[string]any{"instance_id": e.id}
	if e.rand.IntN(2) == 0 {
		body["dp_rank"] = e.Rank(k).ID()
		e.blame[k] |= joined
	} else {
		e.blameAll(joined)
	}
	e.c.ask(http.MethodPost, "/unregister", body, nil, http.StatusOK)
	time.Sleep(time.Duration(e.rand.IntN(200)) * time.Millisecond)
	e.register()
	return nil
}

// query asks like a router.
func (c *churn) query(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		body, tokens, owner := c.question(r)
		var a churnAnswer
		begin := time.Now()
		if c.ask(http.MethodPost, "/v1/query", body, &a, http.StatusOK) {
			c.mu.Lock()
			if len(c.took) < 100_000 {
				c.took = append(c.took, time.Since(begin))
			}
			c.mu.Unlock()
			if wrong := a.check(tokens, owner); wrong != "" {
				c.errorf("%s: %+v", wrong, a)
			}
		}
		if r.IntN(100) == 0 {
			for _, path := range []string{"/v1/instances", "/v1/dump", "/v1/stats", "/v1/models", "/metrics", "/workers"} {
				c.ask(http.MethodGet, path, nil, new([]byte), http.StatusOK)
			}
		}
		c.queries.Add(1)
		time.Sleep(time.Duration(r.IntN(10)) * time.Millisecond)
	}
}

// question makes a query. owner is the only instance that may hold any of its
// prompt; "any" may all.
func (c *churn) question(r *rand.Rand) (body map[string]any, length int, owner string) {
	e := c.engines[r.IntN(len(c.engines))]
	body = map[string]any{"model": e.model}
	if e.o.Pool.Tenant != "" {
		body["tenant_id"] = e.o.Pool.Tenant
	}
	var tokens []uint32
	switch r.IntN(4) {
	case 0: // what only one process has been asked
		life := max(0, e.life.Load()-r.Int64N(3))
		tokens, owner = e.own(r.IntN(e.Ranks()), life, r.IntN(ownPrompts)), e.id
	case 1: // what nobody has ever been asked
		tokens, owner = fill(r, 200), "nobody"
		tokens[0] = 1 << 31
	case 2: // ... in this scope
		tokens, owner = sharedPrompt(r), "nobody"
		body[[]string{"cache_salt", "lora_name"}[r.IntN(2)]] = "never"
	default:
		tokens, owner = sharedPrompt(r), "any"
		if e.salts && r.IntN(3) == 0 {
			body["cache_salt"] = "sea"
		}
		if r.IntN(3) == 0 {
			body["candidates"] = []string{e.id, c.engines[r.IntN(len(c.engines))].id, "nobody"}
		}
	}
	if r.IntN(2) == 0 {
		body["token_ids"] = tokens
		return body, len(tokens), owner
	}
	b := make([]byte, 0, 4*len(tokens))
	for _, t := range tokens {
		b = append(b, byte(t), byte(t>>8), byte(t>>16), byte(t>>24))
	}
	body["token_ids_b64"] = base64.StdEncoding.EncodeToString(b)
	return body, len(tokens), owner
}

// churnAnswer is an answer of POST /v1/query.
type churnAnswer struct {
	State        string  `json:"state"`
	Reason       string  `json:"reason"`
	Best         *string `json:"best"`
	PromptTokens int     `json:"prompt_tokens"`
	Instances    map[string]struct {
		Matched  int    `json:"matched_tokens"`
		Reusable int    `json:"reusable_tokens"`
		GPU      int    `json:"gpu"`
		CPU      int    `json:"cpu"`
		Disk     int    `json:"disk"`
		State    string `json:"state"`
		Reason   string `json:"reason"`
	} `json:"instances"`
}

// check finds what cannot be, whatever happens meanwhile; see question.
func (a *churnAnswer) check(tokens int, owner string) string {
	states := []string{"connecting", "live", "replaying", "degraded", "disconnected", "gone", "unknown"}
	most := 0
	for id, in := range a.Instances {
		switch {
		case in.Matched > 0 && owner != "any" && owner != id:
			return fmt.Sprintf("%s is said to hold what only %s can", id, owner)
		case in.Matched > tokens || in.Reusable > in.Matched || in.Reusable == tokens && tokens > 0:
			return id + " matches too much"
		case in.GPU > in.CPU || in.CPU > in.Disk || in.Disk != in.Matched:
			return id + ": the tiers are not cumulative"
		case !slices.Contains(states, in.State) || in.State == "degraded" && in.Reason == "":
			return id + " has a state that says nothing"
		case a.State == "exact" && in.State != "live" && in.State != "unknown":
			return id + " is not live, and the answer calls itself exact"
		}
		most = max(most, in.Matched)
	}
	switch {
	case a.PromptTokens != tokens:
		return "the prompt has another length"
	case !slices.Contains([]string{"exact", "degraded", "cold"}, a.State):
		return "the state says nothing"
	case (most > 0) != (a.Best != nil) || a.Best != nil && a.Instances[*a.Best].Matched != most:
		return "best is not the best"
	}
	return ""
}

// probe runs a prompt on a calm engine and asks for it until it is found: the
// faults of others must not delay it, and the engine is live all the time.
func (c *churn) probe(ctx context.Context) {
	for ; ctx.Err() == nil; c.probes++ {
		e := c.engines[c.probes%4*16]
		tokens := e.own(15, int64(c.probes), 0)
		if _, err := e.Rank(0).Run(enginesim.Request{Tokens: tokens}); err != nil {
			c.errorf("%s: %v", e.id, err)
			return
		}
		begin := time.Now()
		bs := e.o.Pool.BlockSize
		body := map[string]any{"model": e.model, "tenant_id": e.o.Pool.Tenant, "candidates": []string{e.id}, "token_ids": tokens}
		if e.o.Pool.Tenant == "" {
			delete(body, "tenant_id")
		}
		for {
			var a churnAnswer
			if !c.ask(http.MethodPost, "/v1/query", body, &a, http.StatusOK) {
				return
			}
			if in := a.Instances[e.id]; in.State != "live" || a.State != "exact" {
				c.errorf("nothing has ever happened to %s, and it is %s (%s); the answer is %s", e.id, in.State, in.Reason, a.State)
			}
			if a.Instances[e.id].Matched == len(tokens)/bs*bs {
				break
			}
			if time.Since(begin) > churnWait {
				c.errorf("a batch of %s is not visible after %v: %+v", e.id, time.Since(begin), a)
				break
			}
		}
		c.mu.Lock()
		c.delays = append(c.delays, time.Since(begin))
		c.mu.Unlock()
		time.Sleep(50 * time.Millisecond)
	}
}

// calmDown ends all faults. A quarter of the engines starts once more and
// another quarter clears its cache: nothing excuses these. All publish a
// little more, so that whatever is missing shows.
func (c *churn) calmDown(round int) {
	each := func(do func(e *churnEngine) error) {
		for _, e := range c.engines {
			if err := do(e); err != nil {
				c.t.Fatalf("%s: %v", e.id, err)
			}
		}
		c.awaitSubscribers()
	}
	share := func(e *churnEngine) int { return (e.n/2 + round) % 4 }
	each((*churnEngine).healAll)
	each(func(e *churnEngine) error {
		if e.temper == calm || share(e) != 0 {
			return nil
		}
		return e.restart(enginesim.RestartOptions{})
	})
	each((*churnEngine).publish)
	each(func(e *churnEngine) error {
		if share(e) > 1 {
			return nil
		}
		clear(e.blame)
		if share(e) == 0 {
			return nil // it was followed from its first batch on
		}
		for k := range e.Ranks() {
			if err := e.Rank(k).Clear(); err != nil {
				return err
			}
		}
		return nil
	})
	each((*churnEngine).publish)
}

// publish makes some batches on each rank without changing much of its cache:
// enough to get past every number that a jump went over.
func (e *churnEngine) publish() error {
	for k := range e.Ranks() {
		for range 16 {
			if _, err := e.Rank(k).Run(enginesim.Request{Tokens: fill(e.rand, e.o.Pool.BlockSize+1)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// streamKey names a stream of an instance.
type streamKey struct {
	instance string
	rank     int
}

// churnStream is a stream of GET /v1/instances.
type churnStream struct {
	Rank    int               `json:"dp_rank"`
	Replay  string            `json:"replay_endpoint"`
	State   string            `json:"state"`
	Reason  string            `json:"reason"`
	LastSeq *uint64           `json:"last_seq"`
	Batches uint64            `json:"batches"`
	Events  map[string]uint64 `json:"events"`
	Lost    uint64            `json:"lost_batches"`
	Replays uint64            `json:"replays"`
	Results map[string]uint64 `json:"batch_results"`
	Skipped map[string]uint64 `json:"skipped"`
}

func (c *churn) streams() map[streamKey]churnStream {
	var v struct {
		Instances []struct {
			ID      string        `json:"id"`
			Streams []churnStream `json:"streams"`
		} `json:"instances"`
	}
	c.ask(http.MethodGet, "/v1/instances", nil, &v, http.StatusOK)
	m := map[streamKey]churnStream{}
	for _, in := range v.Instances {
		for _, st := range in.Streams {
			m[streamKey{in.ID, st.Rank}] = st
		}
	}
	return m
}

// holdings is what each stream holds: how many copies of which block.
type holdings map[streamKey]map[enginesim.BlockKey]int

// dump reads GET /v1/dump.
func (c *churn) dump() (all, certain holdings) {
	var text []byte
	c.ask(http.MethodGet, "/v1/dump", nil, &text, http.StatusOK)
	return readDump(c.t, text)
}

// readDump reads what GET /v1/dump answers: all of it, and what is not suspect.
func readDump(t testing.TB, text []byte) (all, certain holdings) {
	t.Helper()
	all, certain = holdings{}, holdings{}
	for line := range bytes.Lines(text) {
		var b struct {
			Seq     uint64 `json:"seq_hash,string"`
			Holders []struct {
				Instance string `json:"instance"`
				Rank     int    `json:"dp_rank"`
				Tier     string `json:"tier"`
				Copies   int    `json:"copies"`
				Suspect  bool   `json:"suspect"`
			} `json:"holders"`
		}
		if err := json.Unmarshal(line, &b); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		for _, o := range b.Holders {
			key := streamKey{o.Instance, o.Rank}
			tier := map[string]indexer.Tier{"gpu": indexer.GPU, "cpu": indexer.CPU, "disk": indexer.Disk}[o.Tier]
			block := enginesim.BlockKey{Rank: o.Rank, Tier: tier, Seq: indexer.SeqHash(b.Seq)}
			all.add(key, block, o.Copies)
			if !o.Suspect {
				certain.add(key, block, o.Copies)
			}
		}
	}
	return all, certain
}

func (h holdings) add(key streamKey, block enginesim.BlockKey, copies int) {
	if h[key] == nil {
		h[key] = map[enginesim.BlockKey]int{}
	}
	h[key][block] = copies
}

// difference counts what is not in have but in truth, the other way round,
// and there in another number of copies.
func difference(have map[enginesim.BlockKey]int, truth enginesim.Truth) (missing, extra, copies int) {
	for key, s := range truth {
		switch n, ok := have[key]; {
		case !ok:
			missing++
		case n != s.Copies:
			copies++
		}
	}
	for key := range have {
		if _, ok := truth[key]; !ok {
			extra++
		}
	}
	return missing, extra, copies
}

// settle waits until every stream is equal to its engine or says rightly why
// not.
func (c *churn) settle() {
	var total churnStream
	var states, skipped map[string]uint64
	c.await("all streams are equal to their engines or rightly degraded", func() (wrong []string) {
		total = churnStream{Events: map[string]uint64{}, Results: map[string]uint64{}}
		states, skipped = map[string]uint64{}, map[string]uint64{}
		streams := c.streams()
		have, certain := c.dump()
		for _, e := range c.engines {
			for k := range e.Ranks() {
				key := streamKey{e.id, e.Rank(k).ID()}
				st, ok := streams[key]
				if !ok {
					wrong = append(wrong, fmt.Sprintf("%v is not there", key))
					continue
				}
				if w := e.verdict(k, st, have[key], certain[key]); w != "" {
					wrong = append(wrong, fmt.Sprintf("%v: %s", key, w))
				}
				cause, _, _ := strings.Cut(st.Reason, ":")
				states[strings.TrimSpace(st.State+" "+cause)]++
				total.Batches += st.Batches
				total.Lost += st.Lost
				total.Replays += st.Replays
				addAll(total.Events, st.Events)
				addAll(total.Results, st.Results)
				addAll(skipped, st.Skipped)
			}
		}
		return wrong
	})
	c.logf("streams %v; since each was registered last: %d batches %v, events %v, skipped %v, %d replays, %d batches lost",
		states, total.Batches, total.Results, total.Events, skipped, total.Replays, total.Lost)
}

// report prints what the test went through.
func (c *churn) report() {
	c.progress()
	c.logf("faults: %v", c.faults)
	c.logf("a calm engine's batch was in an answer after %s; queries took %s", percentiles(c.delays), percentiles(c.took))
}

func addAll(sum, m map[string]uint64) {
	for name, n := range m {
		sum[name] += n
	}
}

// verdict says what is wrong with a stream of which kvindex has st and have, not
// all of that certain; "" is nothing.
func (e *churnEngine) verdict(k int, st churnStream, have, certain map[enginesim.BlockKey]int) string {
	hasher := indexer.NewHasher(indexer.DefaultSeed)
	truth := e.Rank(k).Truth(hasher)
	missing, extra, copies := difference(have, truth)
	_, invented, _ := difference(certain, truth)
	last, next := int64(-1), e.Rank(k).Stream().Seq()
	if st.LastSeq != nil {
		last = int64(*st.LastSeq)
	}
	what := fmt.Sprintf("%s (%s): %d blocks missing, %d too many (of these %d certain), %d in another number of copies; last seq %d of %d, process %d, blame %06b, skipped %v; %+v",
		st.State, st.Reason, missing, extra, invented, copies, last, next, e.life.Load(), e.blame[k], st.Skipped, e.o)
	if n := e.dead(k, hasher, have); n > 0 {
		return fmt.Sprintf("holds %d blocks of processes that have ended: %s", n, what)
	}
	cause, _, _ := strings.Cut(st.Reason, ":")
	switch {
	case last+1 != int64(next):
		return "has not seen the last batch: " + what
	case st.State == "live":
		if missing+extra+copies > 0 {
			return "calls itself live and differs: " + what
		}
	case st.State != "degraded":
		return what
	case invented > 0:
		return "is certain of what the engine does not have: " + what
	case !e.excuses(k, cause):
		return "nothing that was done to it accounts for its state: " + what
	case cause == "history" && extra > 0:
		return "knows only part, and some of that is wrong: " + what
	}
	return ""
}

// excuses reports whether what was done to the stream accounts for its being
// degraded for this cause.
func (e *churnEngine) excuses(k int, cause string) bool {
	b := e.blame[k]
	replayed := !e.o.Stream.NoReplay && b&deaf == 0 && e.Rank(k).Stream().Seq() <= uint64(e.o.Stream.BufferSteps)
	missed := b&lost != 0 || b&(late|joined) != 0 && !replayed
	switch cause {
	case "gap":
		return missed
	case "history": // also when nothing is suspect any more
		return missed || b&(garbage|sized) != 0
	case "poison":
		return b&garbage != 0
	case "bad_events":
		return b&sized != 0
	}
	return false
}

// dead counts the blocks in have of prompts that only ended processes were
// asked.
func (e *churnEngine) dead(k int, h indexer.Hasher, have map[enginesim.BlockKey]int) (n int) {
	scope, bs := h.Scope(indexer.Scope{Tenant: e.o.Pool.Tenant}), e.o.Pool.BlockSize
	for life := range e.life.Load() {
		for p := range ownPrompts {
			var seq indexer.SeqHash
			i := 0
			for block := range slices.Chunk(e.own(k, life, p), bs) {
				if len(block) < bs {
					break
				}
				if local := h.Local(block, nil); i == 0 {
					seq = h.Root(scope, local)
				} else {
					seq = h.Next(seq, local)
				}
				for tier := indexer.GPU; tier < indexer.NumTiers; tier++ {
					if _, ok := have[enginesim.BlockKey{Rank: e.Rank(k).ID(), Tier: tier, Seq: seq}]; ok {
						n++
					}
				}
				i++
			}
		}
	}
	return n
}

// rss is the memory of the binary in bytes, 0 where there is no /proc.
func (c *churn) rss() int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.s.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	kib, _ := strconv.Atoi(strings.Fields(rest + " 0")[0])
	return kib << 10
}

func (c *churn) goroutines() int {
	c.client.CloseIdleConnections()
	var text []byte
	c.ask(http.MethodGet, "/metrics", nil, &text, http.StatusOK)
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, "go_goroutines "); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(v))
			return n
		}
	}
	c.t.Fatal("no go_goroutines among the metrics")
	return 0
}

// checkResources compares what kvindex takes with what it took before.
func (c *churn) checkResources(rss, goroutines int) {
	now := 0
	c.await("goroutines are what they were", func() []string {
		if now = c.goroutines(); now > goroutines+16 {
			return []string{fmt.Sprintf("%d goroutines, %d before the churn", now, goroutines)}
		}
		return nil
	})
	end := c.rss()
	c.logf("rss: %d MiB after a third, %d MiB at the end; goroutines: %d before, %d at the end", rss>>20, end>>20, goroutines, now)
	limit := rss*13/10 + 32<<20
	if raceEnabled {
		limit *= 2 // the race detector's own memory is most of it, and grows for longer
	}
	if end > limit {
		c.errorf("memory grew from %d to %d MiB, more than to %d", rss>>20, end>>20, limit>>20)
	}
}

// TestE2EFlood asks all the time while an engine publishes 100,000 batches as
// fast as it can: no query fails or waits long, and no batch is lost.
func TestE2EFlood(t *testing.T) {
	const batches = 100_000
	c := &churn{t: t, begin: time.Now(), s: serve(t, ""), client: &http.Client{Timeout: churnWait}, rand: rand.New(rand.NewPCG(1, 1))}
	e := &churnEngine{c: c, id: "pod", model: "alpha", rand: c.rand}
	// Its queue takes them all, so that it drops none itself.
	e.o = enginesim.EngineOptions{Pool: enginesim.PoolOptions{Blocks: 5000}, Stream: enginesim.StreamOptions{HWM: 2 * batches}}
	var err error
	if e.Engine, err = enginesim.Start(e.o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	c.engines, e.blame = []*churnEngine{e}, make([]blame, 1)
	c.followAll()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var wg sync.WaitGroup
	for i := range 2 {
		r := rand.New(rand.NewPCG(2, uint64(i)))
		wg.Go(func() { c.query(ctx, r) })
	}
	begin := time.Now()
	if err := e.Rank(0).Flood(batches); err != nil {
		t.Fatal(err)
	}
	flooded := time.Since(begin)
	c.settle()
	took := time.Since(begin)
	cancel()
	wg.Wait()
	slow := percentiles(c.took)
	c.logf("%d batches made in %v, in the index after %v; queries took %s", batches, flooded, took, slow)
	if p99 := c.took[len(c.took)*99/100]; p99 > time.Second {
		t.Errorf("queries took %s", slow)
	}
	if st := c.streams()[streamKey{e.id, 0}]; st.State != "live" || st.Results["applied"] != batches || st.Lost != 0 {
		t.Errorf("%+v", st)
	}
}
