package main_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/kvindex/kvindex/events/enginesim"
	"github.com/kvindex/kvindex/indexer/snapshot/redistest"
)

// TestE2ESoak lets faults of streams, engines, the network and snapshots happen
// at random, and kvindex be killed and go on from its snapshot, for KVINDEX_SOAK
// seconds. Every few seconds all ends, and everything must become exact.
// KVINDEX_SEED repeats all choices of a run, though not its timing.
func TestE2ESoak(t *testing.T) {
	seconds, err := strconv.Atoi(os.Getenv("KVINDEX_SOAK"))
	if err != nil {
		t.Skip("KVINDEX_SOAK is no number of seconds; make soak SECONDS=60")
	}
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("KVINDEX_SEED"); s != "" {
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Printf("KVINDEX_SEED=%d KVINDEX_SOAK=%d\n", seed, seconds)
	f := &faultRun{TB: t, seed: seed, rand: rand.New(rand.NewPCG(seed, 0)), begin: time.Now()}
	f.row.Name = "soak"
	t.Cleanup(func() {
		if row := f.end(); row.History != "" {
			fmt.Println("its history:", row.History)
		}
	})
	g := newSiege(f, 6, redistest.Start(f))
	g.unseen = true
	for round := 1; time.Since(f.begin) < time.Duration(seconds)*time.Second; round++ {
		g.storm()
		g.calm()
		fmt.Printf("%5.0f s: round %d: all exact %v after the last start; %d kills, %d starts from snapshots, faults %v, answers %v\n",
			time.Since(f.begin).Seconds(), round, g.exact[len(g.exact)-1].Round(time.Millisecond), g.kills, g.restored, g.faults, g.answers)
	}
	fmt.Printf("exact after %s; %d answers for a process whose end had not been heard of\n", percentiles(g.exact), g.ghosts)
}

// siegeFault is something that goes wrong in a siege with a pod.
type siegeFault struct {
	name   string
	blames bool // a replay may not repair it
	do     func(g *siege, b *besieged, s *enginesim.Stream) error
}

func siegeFaults() []siegeFault {
	return []siegeFault{
		{"drop", false, func(g *siege, _ *besieged, s *enginesim.Stream) error { return s.DropLive(1 + g.f.rand.IntN(5)) }},
		{"skip", true, func(g *siege, _ *besieged, s *enginesim.Stream) error { return s.Skip(1 + g.f.rand.IntN(3)) }},
		{"jump", true, func(g *siege, _ *besieged, s *enginesim.Stream) error { return s.Jump(1 + g.f.rand.Int64N(4)) }},
		{"duplicate", false, func(g *siege, _ *besieged, s *enginesim.Stream) error { return s.Duplicate(1 + g.f.rand.IntN(5)) }},
		{"reorder", false, func(g *siege, _ *besieged, s *enginesim.Stream) error { return s.Reorder(2 + g.f.rand.IntN(5)) }},
		{"poison", true, func(g *siege, _ *besieged, s *enginesim.Stream) error {
			_, err := s.Poison(enginesim.Garble(g.f.rand.IntN(6)), nil)
			return err
		}},
		{"block size", true, func(_ *siege, b *besieged, _ *enginesim.Stream) error {
			b.Rank(0).WrongBlockSize(48, 2)
			return nil
		}},
		{"replay", true, func(g *siege, _ *besieged, s *enginesim.Stream) error {
			list := []enginesim.ReplayFault{{Ignore: true}, {Truncate: -1}, {Truncate: 5, LoseEnd: true}, {Holes: 0.5}, {LoseEnd: true}}
			fault := list[g.f.rand.IntN(len(list))]
			fault.Times = 1 + g.f.rand.IntN(5)
			if err := s.FaultReplay(fault); err != nil {
				return err
			}
			return s.DropLive(2)
		}},
		{"silence", false, func(_ *siege, _ *besieged, s *enginesim.Stream) error { return s.Silence(true) }},
		{"clear", false, func(_ *siege, b *besieged, _ *enginesim.Stream) error { return b.clear() }},
		{"restart", false, func(g *siege, b *besieged, _ *enginesim.Stream) error { return b.restart(g.rebirth()) }},
		{"restart", false, func(g *siege, b *besieged, _ *enginesim.Stream) error { return b.restart(g.rebirth()) }},
		{"cut", false, func(_ *siege, b *besieged, _ *enginesim.Stream) error { b.through((*proxy).cut); return nil }},
		{"stalled", false, network(stalled)},
		{"blackhole", false, network(blackhole)},
		{"half-open", false, network(halfOpen)},
		{"refused", false, network(refusing)},
		{"slow", false, func(g *siege, b *besieged, _ *enginesim.Stream) error {
			d := time.Duration(g.f.rand.IntN(30)) * time.Millisecond
			b.through(func(p *proxy) { p.slow(d) })
			return nil
		}},
	}
}

// network is the fault that what lies between kvindex and a pod is in a mode.
func network(mode proxyMode) func(*siege, *besieged, *enginesim.Stream) error {
	return func(_ *siege, b *besieged, _ *enginesim.Stream) error {
		b.through(func(p *proxy) { p.set(mode) })
		return nil
	}
}

// through does something to the proxies of a pod, if it has any.
func (b *besieged) through(do func(*proxy)) {
	if b.pub != nil {
		do(b.pub)
		do(b.replay)
	}
}

func (g *siege) rebirth() enginesim.RestartOptions {
	return enginesim.RestartOptions{
		Masked: g.f.rand.IntN(2) == 0, Ahead: 1 + g.f.rand.IntN(10), Down: time.Duration(g.f.rand.IntN(200)) * time.Millisecond,
	}
}

// clear empties the cache of a pod: what it had is as gone as with a process.
func (b *besieged) clear() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bury()
	for k := range b.Ranks() {
		if err := b.Rank(k).Clear(); err != nil {
			return err
		}
	}
	return nil
}

// storm is some seconds of load and faults.
func (g *siege) storm() {
	faults := siegeFaults()
	for range 3 + g.f.rand.IntN(4) {
		g.load(time.Duration(g.f.rand.IntN(400)) * time.Millisecond)
		switch n := g.f.rand.IntN(10); {
		case n < 2:
			g.kill([]syscall.Signal{syscall.SIGKILL, syscall.SIGKILL, syscall.SIGTERM}[g.f.rand.IntN(3)], g.f.rand.IntN(2) == 0)
			g.faults["kill"]++
		case n < 4:
			g.spoil()
		default:
			x, b := faults[g.f.rand.IntN(len(faults))], g.pods[g.f.rand.IntN(len(g.pods))]
			g.f.did("%s: %s", b.id, x.name)
			g.faults[x.name]++
			b.blamed = b.blamed || x.blames
			g.f.check(x.do(g, b, b.Rank(g.f.rand.IntN(b.Ranks())).Stream()))
		}
	}
}

// spoil does something to where snapshots are.
func (g *siege) spoil() {
	files, err := filepath.Glob(filepath.Join(g.dir, "*.snapshot"))
	g.f.check(err)
	slices.Sort(files)
	what := []string{"flip", "truncate", "remove", "redis stops", "redis dies"}[g.f.rand.IntN(5)]
	g.f.did("snapshots: %s", what)
	g.faults[what]++
	switch what {
	case "redis stops":
		g.redis.Pause()
		g.load(300 * time.Millisecond)
		g.redis.Resume()
		return
	case "redis dies":
		g.redis.Stop()
		g.load(300 * time.Millisecond)
		g.redis.Restart()
		return
	}
	if len(files) == 0 {
		return
	}
	file := files[len(files)-1]
	b, err := os.ReadFile(file)
	if err != nil {
		return // replaced meanwhile
	}
	switch what {
	case "flip":
		b[g.f.rand.IntN(len(b))] ^= 1 << g.f.rand.IntN(8)
	case "truncate":
		b = b[:g.f.rand.IntN(len(b))]
	default:
		_ = os.Remove(file) // it may be gone
		return
	}
	g.f.check(os.WriteFile(file, b, 0o600))
}

// calm ends all faults, gives pods that lost something for good a clear, and
// judges.
func (g *siege) calm() {
	g.f.started = time.Now()
	for _, b := range g.pods {
		b.through(func(p *proxy) { p.set(passing); p.slow(0) })
		for k := range b.Ranks() {
			b.Rank(k).WrongBlockSize(0, 0)
			g.f.check(b.Rank(k).Stream().Heal())
		}
	}
	g.load(300 * time.Millisecond)
	for _, b := range g.pods {
		// What is said of it before the clear must be true, or marked.
		g.s.within(faultWait, func() string {
			st := b.status(g.s)
			missing, extra, _, invented := b.judged(g.s)
			switch {
			case st.State == "live" && missing+extra == 0, st.State == "degraded" && b.blamed && invented == 0:
				return ""
			}
			return fmt.Sprintf("%s (blamed: %v) is %s (%s), %d blocks are missing, %d too many: %+v", b.id, b.blamed, st.State, st.Reason, missing, extra, st)
		})
		if b.blamed {
			g.f.check(b.clear())
			b.blamed = false
		}
	}
	g.load(200 * time.Millisecond)
	g.settle()
}
