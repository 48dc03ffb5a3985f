package main_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kvindex/kvindex/events/enginesim"
	"github.com/kvindex/kvindex/indexer/snapshot"
)

// snapshotsIn is a configuration with snapshots in a directory of its own.
func (f *faultRun) snapshotsIn() (config, dir string) {
	dir = filepath.Join(f.TempDir(), "data")
	return "snapshot: {interval: 1s, dir: " + dir + "}", dir
}

// awaitSnapshot waits until s has written one that it had not begun before.
func (f *faultRun) awaitSnapshot(s *server, change func()) {
	f.Helper()
	n := s.snapshotsWritten()
	last := time.Time{}
	s.within(faultWait, func() string {
		if now := s.snapshotsWritten(); now < n+2 {
			if time.Since(last) > 300*time.Millisecond { // else there is nothing to write
				change()
				last = time.Now()
			}
			return fmt.Sprintf("%d snapshots are written, %d were before", now, n)
		}
		return ""
	})
}

// killed is fault 10: kvindex is killed under load, again and again.
func killed(f *faultRun) {
	const rounds = 50
	g := newSiege(f, 3, nil)
	f.inject("kill -9 at %d random moments under load, engines restarting meanwhile", rounds)
	for range rounds {
		g.load(time.Duration(100+f.rand.IntN(900)) * time.Millisecond)
		g.kill(syscall.SIGKILL, f.rand.IntN(3) == 0)
		g.settle()
	}
	f.see("%d starts from snapshots, %d cold; exact after %s", g.restored, g.kills-g.restored, percentiles(g.exact))
	f.row.RecoveredIn = g.exact[len(g.exact)-1].Seconds()
}

// restartBoth is fault 11: kvindex and an engine are both gone for a while.
func restartBoth(f *faultRun) {
	config, _ := f.snapshotsIn()
	s := f.serve(config)
	o := podOptions(f)
	o.Stream.BufferSteps = 30 // a replay does not reach far back
	stays, begins, masked := f.pod("stays", o).follow(s), f.pod("begins", o).follow(s), f.pod("masked", o).follow(s)
	pods := []*pod{stays, begins, masked}
	old := map[*pod][]uint32{}
	for _, p := range pods {
		p.work(40)
		old[p] = p.work(1)
	}
	f.live(s, pods...)
	f.awaitSnapshot(s, func() { stays.work(1) })
	f.inject("kvindex is away while 2 of 3 engines begin anew, one masked")
	s.kill(syscall.SIGKILL)
	f.check(begins.Restart(enginesim.RestartOptions{}))
	f.check(masked.Restart(enginesim.RestartOptions{Masked: true, Ahead: 3}))
	stays.work(2)
	begins.work(1)
	s = f.serve(config)
	f.live(s, stays)
	f.quiet(s, "live", "", begins)
	f.quiet(s, "", "", masked) // whose buffer may not reach back to its start
	f.recovered()
	for _, p := range pods[1:] {
		p.noGhost(s, old[p], p.work(1))
	}
	f.see("restored; %s live, others dropped", stays.id)
}

// clockJumps is fault 30: engines' clocks jump, a snapshot comes from the
// future, and kvindex itself is not run for longer than all its patience.
func clockJumps(f *faultRun) {
	jump := 0.0
	o := podOptions(f)
	o.Clock = func() float64 { return float64(time.Now().UnixNano())/1e9 + jump }
	config, dir := f.snapshotsIn()
	config += "\nevents: {grace: 1s, suspect_ttl: 2s}"
	s := f.serve(config)
	p := f.pod("pod-0", o).follow(s)
	p.work(10)
	f.live(s, p)
	f.inject("an engine's clock jumps by 10 years, forward, back, and to before 1970")
	for _, years := range []float64{10, -10, -70} {
		jump = years * 365 * 86400
		p.work(3)
	}
	jump = 0
	p.work(1)
	f.live(s, p)
	f.see("live")
	f.inject("kvindex is not run for 5 s")
	f.check(s.cmd.Process.Signal(syscall.SIGSTOP))
	p.work(3)
	time.Sleep(5 * time.Second)
	f.check(s.cmd.Process.Signal(syscall.SIGCONT))
	f.live(s, p)
	if n := p.status(s).Streams[0].Incarnations; n != 1 {
		f.Errorf("%d incarnations: the engine was taken for another one", n)
	}
	f.see("live, the same incarnation")
	f.inject("a snapshot by a clock a year ahead")
	f.snapshotFile(dir, time.Now().AddDate(1, 0, 0), snapshot.Meta{Cluster: "default", Kind: "other", Version: 1}, []byte("not ours"))
	f.awaitSnapshot(s, func() { p.work(1) })
	s.kill(syscall.SIGKILL)
	s = f.serve(config)
	f.live(s, p)
	f.logged(s, "restored a snapshot")
	f.see("the newest is still found")
}

// twoReplicas is fault 32: replicas that live through different things come to
// hold the same.
func twoReplicas(f *faultRun) {
	config, _ := f.snapshotsIn()
	a, b := f.serve(config), f.serve("")
	var pods []*pod
	for i := range 4 {
		o := podOptions(f)
		o.Ranks = 1 + i%2
		p := f.pod(fmt.Sprintf("pod-%d", i), o).follow(a)
		p.registerAt(b, "", p.ReplayEndpoint(0))
		pods = append(pods, p)
	}
	work := func() {
		for _, p := range pods {
			p.work(6)
		}
	}
	work()
	f.live(a, pods...)
	f.awaitSnapshot(a, func() { pods[0].work(1) })
	f.inject("one of two replicas is killed, restarts from its snapshot, a third takes a peer's; gaps and restarts meanwhile")
	a.kill(syscall.SIGKILL)
	work()
	f.check(pods[0].Restart(enginesim.RestartOptions{Masked: true}))
	f.check(pods[1].Rank(0).Stream().DropLive(3))
	work()
	a = f.serve(config)
	c := f.serve(fmt.Sprintf("snapshot: {peers: [%q]}", b.url))
	work()
	all := []*server{a, b, c}
	for _, s := range all {
		f.live(s, pods...)
	}
	var dumps []string
	for _, s := range all {
		_, text := s.do(http.MethodGet, "/v1/dump", "")
		dumps = append(dumps, sortedLines(text))
	}
	if dumps[0] != dumps[1] || dumps[1] != dumps[2] || len(dumps[0]) < 1000 {
		f.Errorf("the dumps differ: %d, %d and %d bytes", len(dumps[0]), len(dumps[1]), len(dumps[2]))
	}
	f.see("3 equal dumps of %d bytes", len(dumps[0]))
}

// randomPrompt is n tokens that nobody else has.
func randomPrompt(r *rand.Rand, n int) []uint32 {
	tokens := make([]uint32, n)
	for i := range tokens {
		tokens[i] = uint32(r.IntN(32_000))
	}
	return tokens
}
