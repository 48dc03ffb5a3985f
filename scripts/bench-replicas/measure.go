package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// snapshotEvery is the interval of snapshots: short, so that a restart goes on
// from a recent one.
const snapshotEvery = 10 * time.Second

// bench is everything that runs.
type bench struct {
	o        options
	say      func(format string, args ...any)
	dir      string
	binary   string
	nats     *natsServer
	redis    *redisServer
	fleet    *fleet
	relays   []*process
	replicas []*replica
	prober   *prober
}

func measure(ctx context.Context, o options, p *progress) (r *report, err error) {
	b := &bench{o: o, say: p.say, binary: o.binary}
	defer b.close()
	r = &report{CPUs: runtime.NumCPU(), Engines: o.engines, Blocks: o.blocks, Turn: o.turn, Wanted: o.rate}
	if err := b.start(ctx); err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context, *report) error{b.fill, b.atRest, b.findRate, b.underLoad, b.restart, b.compare} {
		if err := step(ctx, r); err != nil {
			return nil, err
		}
	}
	r.Seconds = time.Since(p.begin).Seconds()
	r.judge()
	return r, nil
}

func (b *bench) start(ctx context.Context) (err error) {
	if b.dir, err = os.MkdirTemp("", "bench-replicas-"); err != nil {
		return fmt.Errorf("cannot make a directory for the programs: %w", err)
	}
	if b.binary == "" {
		b.say("building kvindex")
		if b.binary, err = buildProgram(ctx, b.dir); err != nil {
			return err
		}
	}
	b.say("starting Redis, NATS, %d engines and relays, 2 replicas", b.o.engines)
	if b.redis, err = startRedis(ctx, b.dir); err != nil {
		return err
	}
	if b.nats, err = startNATS(filepath.Join(b.dir, "nats")); err != nil {
		return err
	}
	if b.fleet, err = startFleet(b.o); err != nil {
		return err
	}
	if b.relays, err = startRelays(ctx, b.binary, b.fleet, b.nats); err != nil {
		return err
	}
	for range 2 {
		r, err := startReplica(b.binary, b.dir, b.nats, b.redis)
		if err != nil {
			return err
		}
		b.replicas = append(b.replicas, r)
	}
	b.prober = &prober{fleet: b.fleet, replicas: b.replicas, rand: rand.New(rand.NewPCG(3, 3))}
	return nil
}

// close ends everything that was started.
func (b *bench) close() {
	for _, r := range b.replicas {
		r.end(syscall.SIGKILL) // it has no more to do
	}
	for _, p := range b.relays {
		p.end(syscall.SIGKILL)
	}
	if b.fleet != nil {
		b.fleet.close()
	}
	if b.nats != nil {
		b.nats.stop()
	}
	if b.redis != nil {
		b.redis.stop()
	}
	_ = os.RemoveAll(b.dir) // it is in the folder for such
}

// fillRate is how fast caches are filled at least.
const fillRate = 50_000

// fill has the engines work until they are full: from then on each store of a
// block makes a removal.
func (b *bench) fill(ctx context.Context, _ *report) error {
	b.say("filling the engines' caches")
	stop := b.fleet.load(ctx, max(b.o.rate, fillRate))
	for full := int64(b.o.engines*b.o.blocks) * 5 / 4; b.fleet.stored.Load() < full && ctx.Err() == nil; {
		time.Sleep(10 * time.Millisecond)
	}
	if err := errors.Join(stop(), ctx.Err()); err != nil {
		return err
	}
	for _, e := range b.fleet.engines { // those that nobody has begun with yet
		for _, tokens := range b.fleet.system {
			if _, err := b.fleet.run(e, tokens); err != nil {
				return err
			}
		}
	}
	return settle(ctx, b.fleet, b.replicas)
}

// restWindow is how long nothing happens, to see what that costs.
const restWindow = 3 * time.Second

func (b *bench) atRest(ctx context.Context, r *report) error {
	b.say("at rest: %d probes", b.o.probes)
	took, err := b.prober.run(ctx, b.o.probes, 5*time.Millisecond)
	if err != nil {
		return err
	}
	r.Rest = newSpread(took)
	begin := cpuOf(pids(b.relays)...)
	time.Sleep(restWindow)
	r.RelaysIdle = (cpuOf(pids(b.relays)...) - begin).Seconds() / restWindow.Seconds()
	return nil
}

// What counts as bounded: the engines get to publish what they want, and after
// trialTime of it most probes are found within trialLimit.
const (
	trialTime   = 4 * time.Second
	trialProbes = 60
	trialPause  = 40 * time.Millisecond // between them
	trialLimit  = 100 * time.Millisecond
	trialReach  = 0.95
)

// findRate looks for the rate to measure with: all that is wanted, or the
// largest part of it at which what waits stays bounded.
func (b *bench) findRate(ctx context.Context, r *report) error {
	for _, part := range []float64{1, 0.8, 0.65, 0.5, 0.35, 0.25, 0.15, 0.1, 0.05} {
		t, err := b.try(ctx, b.o.rate*part)
		if err != nil {
			return err
		}
		r.Trials = append(r.Trials, t)
		if t.Bounded {
			r.Rate = t.Rate
			return nil
		}
		b.say("%.0f block events/s are too many for this machine", t.Rate)
		if err := settle(ctx, b.fleet, b.replicas); err != nil {
			return err
		}
	}
	return fmt.Errorf("even %g block events a second are too many for this machine: is something else running on it?", b.o.rate/20)
}

func (b *bench) try(ctx context.Context, rate float64) (t trial, err error) {
	b.say("trying %.0f block events/s", rate)
	stop := b.fleet.load(ctx, rate)
	defer func() { err = errors.Join(err, stop()) }()
	stored, begin := b.fleet.stored.Load(), time.Now()
	time.Sleep(trialTime)
	reached := 2 * float64(b.fleet.stored.Load()-stored) / time.Since(begin).Seconds()
	took, err := b.prober.run(ctx, trialProbes, trialPause)
	if err != nil {
		return t, err
	}
	t = trial{Rate: rate, Reached: reached, Visible: newSpread(took)}
	t.Bounded = reached >= trialReach*rate
	for _, list := range took {
		t.Bounded = t.Bounded && percentile(list, 0.9) <= trialLimit
	}
	return t, nil
}

// underLoad measures at the rate that was found.
func (b *bench) underLoad(ctx context.Context, r *report) (err error) {
	b.say("%d probes while engines publish %.0f block events/s", b.o.probes, r.Rate)
	stop := b.fleet.load(ctx, r.Rate)
	defer func() { err = errors.Join(err, stop()) }()
	time.Sleep(time.Second)
	groups := func() [7]time.Duration {
		return [7]time.Duration{
			cpuOf(os.Getpid()), cpuOf(pids(b.relays)...), cpuOf(b.nats.cmd.Process.Pid),
			cpuOf(b.replicas[0].pid()), cpuOf(b.replicas[1].pid()), cpuOf(b.redis.cmd.Process.Pid), cpuOfAll(),
		}
	}
	before, stored, batches, begin := groups(), b.fleet.stored.Load(), b.fleet.batches.Load(), time.Now()
	window := time.Duration(b.o.seconds * float64(time.Second))
	took, err := b.prober.run(ctx, b.o.probes, window/time.Duration(b.o.probes)*9/10)
	if err != nil {
		return err
	}
	time.Sleep(window - time.Since(begin)) // not at all where the probes took longer
	after, seconds := groups(), time.Since(begin).Seconds()
	r.Load = newSpread(took)
	r.Batches = float64(b.fleet.batches.Load() - batches)
	r.Reached = 2 * float64(b.fleet.stored.Load()-stored) / seconds
	r.BatchesPerSecond = r.Batches / seconds
	for i := range before {
		r.CPU[i] = (after[i] - before[i]).Seconds() / seconds
	}
	r.RelayPerBatch = r.CPU[1] / r.BatchesPerSecond * 1e6
	return nil
}

func (b *bench) compare(ctx context.Context, r *report) (err error) {
	b.say("the load is over: comparing what replicas and engines hold")
	if err := settle(ctx, b.fleet, b.replicas); err != nil {
		return err
	}
	r.Dumps, err = compareDumps(b.fleet, b.replicas)
	return err
}
