package main_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kvindex/kvindex/events/enginesim"
	"github.com/kvindex/kvindex/indexer/snapshot/redistest"
)

// siege is load on some engines while they, what lies between, and kvindex itself
// fail at random. It goes in rounds: load and faults, then quiet, in which
// everything must become right.
type siege struct {
	f      *faultRun
	config string
	dir    string            // of snapshots
	redis  *redistest.Server // nil: none
	s      *server
	pods   []*besieged

	kills    int
	restored int             // times that it went on from a snapshot
	exact    []time.Duration // from each start until all streams were live
	answers  map[string]int  // by state
	faults   map[string]int

	// unseen says that engines end while kvindex runs: until it hears of that,
	// which takes no time worth mentioning, it answers for the ended process.
	unseen bool
	ghosts int // such answers
}

// besieged is a pod of a siege.
type besieged struct {
	*pod
	rand        *rand.Rand // of its load
	pub, replay *proxy

	mu     sync.Mutex
	alive  [][]uint32 // prompts that only this process has had
	dead   [][]uint32 // ... that only ended ones had
	blamed bool       // something was done to it that no replay repairs
}

// newSiege starts kvindex, with snapshots in a directory and in redis if it is not
// nil, and n engines.
func newSiege(f *faultRun, n int, redis *redistest.Server) *siege {
	g := &siege{f: f, redis: redis, answers: map[string]int{}, faults: map[string]int{}}
	g.config, g.dir = f.snapshotsIn()
	if redis != nil {
		g.config = fmt.Sprintf("snapshot: {interval: 1s, dir: %s, redis: \"redis://%s\"}\n", g.dir, redis.Addr)
	}
	g.s = f.serve(g.config)
	for i := range n {
		o := podOptions(f)
		o.Ranks = 1 + i%2
		o.Pool.Blocks = 150 + 50*i
		b := &besieged{pod: f.pod(fmt.Sprintf("pod-%d", i), o), rand: rand.New(rand.NewPCG(f.seed, uint64(i)))}
		if o.Ranks == 1 {
			b.pub, b.replay = startProxy(f, b.Endpoint(0)), startProxy(f, b.ReplayEndpoint(0))
			b.registerAt(g.s, b.pub.endpoint(), b.replay.endpoint())
		} else {
			b.registerAt(g.s, "", b.ReplayEndpoint(0))
		}
		b.awaitSubscribers()
		g.pods = append(g.pods, b)
	}
	g.load(time.Second)
	g.settle()
	f.awaitSnapshot(g.s, func() { g.pods[0].work(1) })
	return g
}

// request runs one random request.
func (b *besieged) request() error {
	b.mu.Lock() // no restart between the choice and the end of it
	defer b.mu.Unlock()
	tokens := randomPrompt(b.rand, 16*(2+b.rand.IntN(8))+5)
	if len(b.alive) > 0 && b.rand.IntN(3) == 0 { // another turn of a conversation
		tokens = append(b.alive[b.rand.IntN(len(b.alive))][:32:32], tokens...)
	}
	if b.alive = append(b.alive, tokens); len(b.alive) > 100 {
		b.alive = b.alive[50:]
	}
	_, err := b.Rank(b.rand.IntN(b.Ranks())).Run(enginesim.Request{Tokens: tokens, Generate: b.rand.IntN(20)})
	return err
}

// restart ends the process of the engine.
func (b *besieged) restart(o enginesim.RestartOptions) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bury()
	o.Wait = faultWait
	return b.Restart(o)
}

// bury notes that nothing of what the pod had is there any more. The caller has
// b.mu.
func (b *besieged) bury() {
	if b.dead = append(b.dead, b.alive...); len(b.dead) > 200 {
		b.dead = b.dead[len(b.dead)-200:]
	}
	b.alive = nil
}

// work lets all engines work until ctx ends; wait waits for that.
func (g *siege) work(ctx context.Context) (wait func()) {
	var wg sync.WaitGroup
	for _, b := range g.pods {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := b.request(); err != nil {
					g.f.Errorf("%s: %v", b.id, err)
					return
				}
				time.Sleep(time.Duration(b.rand.IntN(20)) * time.Millisecond)
			}
		})
	}
	return wg.Wait
}

// load lets the engines work for some time, and asks meanwhile.
func (g *siege) load(d time.Duration, meanwhile ...func()) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	wait := g.work(ctx)
	defer wait()
	for ctx.Err() == nil {
		g.ask()
		for _, do := range meanwhile {
			do()
		}
		time.Sleep(5 * time.Millisecond)
	}
	wait()
}

// ask asks for a prompt of a random engine and judges the answer.
func (g *siege) ask() {
	b := g.pods[g.f.rand.IntN(len(g.pods))]
	b.mu.Lock()
	list, ghosts := b.alive, len(b.dead) > 0 && g.f.rand.IntN(2) == 0
	if ghosts {
		list = b.dead
	}
	if len(list) == 0 {
		b.mu.Unlock()
		return
	}
	tokens := list[g.f.rand.IntN(len(list))]
	b.mu.Unlock()
	var a churnAnswer
	g.s.call("POST", "/v1/query", map[string]any{"model": b.model, "token_ids": tokens}, &a)
	g.answers[a.State]++
	if wrong := a.check(len(tokens), b.id); wrong != "" {
		g.f.Errorf("%s: %+v", wrong, a)
	}
	in := a.Instances[b.id]
	if !ghosts || in.Matched == 0 || in.State != "live" {
		return
	}
	g.f.did("%s is live, and answers with %d tokens of an ended process", b.id, in.Matched)
	if !g.unseen {
		g.f.row.Wrong += in.Matched / 16
		g.f.Errorf("%s is live, and answers with %d tokens of a process that ended while kvindex was dead", b.id, in.Matched)
	}
	g.ghosts++
}

// kill ends kvindex by a signal under load and starts it again; engines may begin
// anew meanwhile.
func (g *siege) kill(signal syscall.Signal, restart bool) {
	g.f.did("kvindex: %v", signal)
	ctx, cancel := context.WithCancel(context.Background())
	wait := g.work(ctx)
	g.s.kill(signal)
	if restart {
		b := g.pods[g.f.rand.IntN(len(g.pods))]
		o := enginesim.RestartOptions{Masked: g.f.rand.IntN(2) == 0, Ahead: 1 + g.f.rand.IntN(10)}
		g.f.did("%s restarts meanwhile: %+v", b.id, o)
		g.f.check(b.restart(o))
	}
	time.Sleep(time.Duration(g.f.rand.IntN(200)) * time.Millisecond)
	g.kills++
	g.f.started = time.Now()
	g.s = g.f.serve(g.config)
	for range 5 { // what it says at first
		g.ask()
	}
	cancel()
	wait()
	if strings.Contains(g.s.log.String(), "restored a snapshot") {
		g.restored++
	} else { // nobody tells it again who there is, but we
		g.f.did("started cold")
		for _, b := range g.pods {
			g.register(b)
		}
	}
}

func (g *siege) register(b *besieged) {
	if b.pub != nil {
		b.registerAt(g.s, b.pub.endpoint(), b.replay.endpoint())
		return
	}
	b.registerAt(g.s, "", b.ReplayEndpoint(0))
}

// settle waits until all pods are live and held exactly, and judges that nothing
// of an ended process is answered any more.
func (g *siege) settle() {
	g.f.Helper()
	for _, b := range g.pods {
		g.f.quiet(g.s, "live", "", b.pod)
		b.mu.Lock()
		dead := b.dead[max(0, len(b.dead)-5):]
		b.mu.Unlock()
		for _, tokens := range dead {
			if n, state := b.matched(g.s, tokens); n > 0 {
				g.f.row.Wrong += n
				g.f.Errorf("%s: %d blocks of an ended process are answered; the answer is %s", b.id, n, state)
			}
		}
	}
	if !g.f.started.IsZero() {
		g.exact = append(g.exact, time.Since(g.f.started))
		g.f.did("all exact after %v", g.exact[len(g.exact)-1])
	}
}
