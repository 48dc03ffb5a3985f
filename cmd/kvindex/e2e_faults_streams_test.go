package main_test

import (
	"fmt"
	"time"

	"github.com/kvindex/kvindex/events/enginesim"
	"github.com/kvindex/kvindex/indexer"
)

// forwardGap: batches that only a replay brings, and batches that nothing does.
// Among the latter are removals, so that what is held afterwards is wrong: it may
// be answered for a while, marked, and not for ever.
func forwardGap(f *faultRun) {
	s := f.serve("events: {suspect_ttl: 3s}")
	o := podOptions(f)
	o.Pool.Blocks = 60
	p := f.pod("pod-0", o).follow(s)
	p.work(20)
	f.live(s, p)
	f.inject("5 batches not sent, but buffered")
	f.check(p.Rank(0).Stream().DropLive(5))
	p.work(8)
	f.live(s, p)
	p.counts(s, "replayed", func(st podStatus) bool { return st.Streams[0].Replays > 1 && st.Streams[0].Lost == 0 })
	f.see("a replay, none lost")
	f.inject("5 batches lost for good, removals among them")
	f.check(p.Rank(0).Stream().Skip(5))
	p.work(8)
	cause := p.is(s, "degraded", "gap")
	var missing, extra, certain, invented int
	s.within(faultWait, func() string {
		if missing, extra, certain, invented = p.judged(s); certain == 0 || invented > 0 {
			return fmt.Sprintf("of %d blocks that are certain after the loss the engine does not have %d: %+v", certain, invented, p.status(s))
		}
		return ""
	})
	f.see("%s, %d lost: %d blocks missing, %d stale, all of them suspect; %d certain", cause, p.status(s).Streams[0].Lost, missing, extra, certain)
	p.counts(s, "suspect blocks dropped", func(st podStatus) bool { _, extra := p.wrong(s); return extra == 0 })
	f.stays(3*time.Second, func() string { // replays do not bring them back
		if _, extra := p.wrong(s); extra > 0 {
			f.row.Wrong = extra
			return fmt.Sprintf("%d stale blocks came back after suspect_ttl: %+v", extra, p.status(s))
		}
		return ""
	})
	f.recovered()
	f.see("then %s, none stale", p.is(s, "degraded", ""))
	f.check(p.Rank(0).Clear())
	p.work(1)
	f.live(s, p)
	f.see("live with a clear")
}

// replayTruncated: a long replay loses batches and its end, as libzmq's ROUTER
// does when it is asked for much, and again.
func replayTruncated(f *faultRun) {
	o := podOptions(f)
	o.Stream.ReplayHWM = 50
	p := f.pod("pod-0", o)
	p.work(600)
	f.inject("%d batches to replay through a high-water mark of 50, cut off and with holes 3 times", p.Rank(0).Stream().Seq())
	f.check(p.Rank(0).Stream().FaultReplay(enginesim.ReplayFault{Times: 3, Truncate: 200 + f.rand.IntN(100), Holes: 0.05, LoseEnd: true}))
	s := f.serve("")
	p.follow(s)
	f.live(s, p)
	f.see("%d replays, none lost", p.status(s).Streams[0].Replays)
	if st := p.status(s).Streams[0]; st.Replays < 2 || st.Lost > 0 {
		f.Errorf("%+v", st)
	}
}

// reordering: batches that come twice, late or in another order.
func reordering(f *faultRun) {
	s := f.serve("")
	p := f.pod("pod-0", podOptions(f)).follow(s)
	p.work(10)
	f.live(s, p)
	stream := p.Rank(0).Stream()
	f.inject("10 batches twice, 6 in another order, 5 old ones again")
	f.check(stream.Duplicate(10))
	p.work(10)
	f.check(stream.Reorder(6))
	p.work(10)
	for range 5 {
		f.check(stream.Resend(f.rand.Uint64N(stream.Seq())))
	}
	p.work(3)
	f.live(s, p)
	st := p.status(s).Streams[0]
	f.see("%v", st.Results)
	if st.Results["duplicate"] == 0 || st.Lost > 0 {
		f.Errorf("%+v", st)
	}
}

// restarted lets a followed engine begin anew and judges that nothing of the old
// process is left.
func restarted(f *faultRun, o enginesim.RestartOptions, work bool) {
	s := f.serve("")
	p := f.pod("pod-0", podOptions(f)).follow(s)
	old := p.work(10)
	f.live(s, p)
	if n, _ := p.matched(s, old); n == 0 {
		f.Error("the prompt of the old process is not found while it lives")
	}
	f.did("restart: %+v", o)
	f.started = time.Now()
	f.check(p.Restart(o))
	if work {
		p.awaitSubscribers()
		p.noGhost(s, old, p.work(1))
	}
	f.live(s, p)
	p.noGhost(s, old, p.work(3))
	f.live(s, p)
	if n := p.status(s).Streams[0].Incarnations; n != 2 {
		f.Errorf("%d processes were seen, not 2", n)
	}
	f.see("2nd incarnation, the old one dropped")
}

func restartVisible(f *faultRun) {
	f.inject("an engine begins anew at batch 0")
	restarted(f, enginesim.RestartOptions{}, true)
}

func restartMasked(f *faultRun) {
	f.inject("a new process passes the old one's numbers before anybody sees it")
	restarted(f, enginesim.RestartOptions{Masked: true, Ahead: 1 + f.rand.IntN(5)}, false)
}

func restartInPlace(f *faultRun) {
	f.inject("a container restarts at its address and is silent")
	restarted(f, enginesim.RestartOptions{Down: time.Second}, false)
}

// poisonBetween: messages that nobody can decode, between good ones.
func poisonBetween(f *faultRun) {
	s := f.serve("")
	p := f.pod("pod-0", podOptions(f)).follow(s)
	p.work(10)
	f.live(s, p)
	stream := p.Rank(0).Stream()
	f.inject("wrong numbers of frames, bad numbers of batches")
	empty := enginesim.DefaultEncoding.AppendBatch(nil, enginesim.Batch{Time: float64(time.Now().Unix())})
	for g := enginesim.OneFrame; g <= enginesim.EndSeq; g++ {
		_, err := stream.Poison(g, empty)
		f.check(err)
		p.work(1)
	}
	f.live(s, p)
	f.see("%v, live after replays", p.status(s).Streams[0].Results)
	f.inject("5 payloads of random bytes")
	for range 5 {
		_, err := stream.Poison(enginesim.BadPayload, nil)
		f.check(err)
		p.work(1)
	}
	f.see("%s", p.is(s, "degraded", "poison"))
	p.counts(s, "poison 5", func(st podStatus) bool { return st.Streams[0].Results["poison"] >= 5 })
	f.marked(s, "poison", p) // nothing was lost with them
	f.check(p.Rank(0).Clear())
	p.work(3)
	f.live(s, p)
	f.see("live with a clear")
}

// ranksAndTiers: what happens to one rank is said of that rank, and blocks of
// every tier are what they are.
func ranksAndTiers(f *faultRun) {
	s := f.serve("")
	o := podOptions(f)
	o.Ranks = 2
	o.Pool.Blocks, o.Pool.CPUBlocks, o.Pool.ResetCPU, o.Pool.OffloadTokens, o.Pool.OffloadDelay = 80, 200, true, true, 2
	p := f.pod("pod-0", o).follow(s)
	p.work(30)
	f.live(s, p)
	f.inject("2 ranks with a host tier: rank 1 loses 3 batches for good")
	f.check(p.Rank(1).Stream().Skip(3))
	p.work(10)
	cause := p.is(s, "degraded", "gap")
	p.counts(s, "rank 0 live", func(st podStatus) bool { return st.Streams[0].State == "live" && st.Streams[1].State == "degraded" })
	f.see("%s; rank 0 is live", cause)
	s.within(faultWait, func() string {
		if n := p.rankWrong(s, 0); n > 0 {
			return fmt.Sprintf("rank 0 is live, and %d of its blocks are wrong", n)
		}
		return ""
	})
	f.inject("rank 1 restarts with rank 0")
	f.check(p.Restart(enginesim.RestartOptions{Masked: true}))
	p.awaitSubscribers()
	p.work(10)
	f.live(s, p)
	st := p.status(s)
	f.see("live, %d incarnations each", st.Streams[1].Incarnations)
}

// rankWrong counts the blocks of one rank, in all tiers, that differ.
func (p *pod) rankWrong(s *server, k int) int {
	_, text := s.do("GET", "/v1/dump", "")
	have, _ := readDump(p.f, []byte(text))
	missing, extra, copies := difference(have[streamKey{p.id, p.Rank(k).ID()}], p.Rank(k).Truth(indexer.NewHasher(indexer.DefaultSeed)))
	return missing + extra + copies
}

// stays fails if what must hold for some time does not.
func (f *faultRun) stays(d time.Duration, check func() string) {
	f.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if wrong := check(); wrong != "" {
			f.Error(wrong)
			return
		}
	}
}
