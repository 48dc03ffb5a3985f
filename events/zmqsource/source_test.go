package zmqsource

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kvindex/kvindex/events"
	"github.com/kvindex/kvindex/events/enginesim"
	"github.com/kvindex/kvindex/indexer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// model is what all simulated engines serve.
const model = "sim"

// rig is an index that follows simulated engines over real sockets.
type rig struct {
	t      testing.TB
	index  *indexer.Index
	fleet  *events.Fleet
	source *Source
}

func newRig(t testing.TB, o Options) *rig {
	t.Helper()
	index, err := indexer.New(indexer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	source, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	fleet := events.NewFleet(events.FleetOptions{Index: index, Source: source.Follow})
	t.Cleanup(func() {
		fleet.Close()
		if err := source.Close(); err != nil {
			t.Error(err)
		}
		index.Close()
	})
	return &rig{t, index, fleet, source}
}

// start starts an engine; it is not followed yet.
func (r *rig) start(o enginesim.EngineOptions) *enginesim.Engine {
	r.t.Helper()
	e, err := enginesim.Start(o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := e.Close(); err != nil {
			r.t.Error(err)
		}
	})
	return e
}

// follow follows every rank of e under the given id.
func (r *rig) follow(id string, e *enginesim.Engine) {
	r.t.Helper()
	spec := events.InstanceSpec{ID: id, Model: model}
	for i := range e.Ranks() {
		spec.Streams = append(spec.Streams, events.StreamSpec{Rank: e.Rank(i).ID(), Endpoint: e.Endpoint(i), ReplayEndpoint: e.ReplayEndpoint(i)})
	}
	if _, err := r.fleet.Add(spec); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) status(id string) events.StreamStatus {
	r.t.Helper()
	in, ok := r.fleet.Find(id)
	if !ok {
		r.t.Fatalf("%s is not followed", id)
	}
	return in.Streams()[0]
}

// eventually waits for a condition that states what is wrong until it holds.
func (r *rig) eventually(check func() string) {
	r.t.Helper()
	r.within(15*time.Second, check)
}

func (r *rig) within(limit time.Duration, check func() string) {
	r.t.Helper()
	wrong := check()
	for end := time.Now().Add(limit); wrong != "" && time.Now().Before(end); wrong = check() {
		time.Sleep(2 * time.Millisecond)
	}
	if wrong != "" {
		r.t.Fatal(wrong)
	}
}

func (r *rig) awaitState(id string, want events.State, reason string) {
	r.t.Helper()
	r.eventually(func() string {
		st := r.status(id)
		if st.State == want && strings.HasPrefix(st.Reason, reason) {
			return ""
		}
		return fmt.Sprintf("%s is %v (%s), want %v (%s); %+v", id, st.State, st.Reason, want, reason, st.Counters)
	})
}

// awaitTruth waits until the index has of id exactly what its engine holds.
func (r *rig) awaitTruth(id string, e *enginesim.Engine) {
	r.t.Helper()
	r.eventually(func() string { return difference(r.index, id, e) })
}

// difference compares the index with the engine's block pool.
func difference(x *indexer.Index, id string, e *enginesim.Engine) string {
	have := map[enginesim.BlockKey]int{}
	for _, t := range x.Tables(model) {
		t.Walk(func(b indexer.BlockInfo) bool {
			for _, h := range b.Holders {
				if h.Stream.Instance == id {
					have[enginesim.BlockKey{Rank: h.Stream.Rank, Tier: h.Tier, Seq: b.Seq}] = h.Copies
				}
			}
			return true
		})
	}
	truth := e.Truth(x.Hasher())
	missing, copies := 0, 0
	for k, s := range truth {
		n, ok := have[k]
		switch {
		case !ok:
			missing++
		case n != s.Copies:
			copies++
		}
		delete(have, k)
	}
	extra := len(have)
	if missing+extra+copies == 0 {
		return ""
	}
	return fmt.Sprintf("%s: of %d blocks %d are missing in the index, %d have another number of copies, and %d are there that the engine does not hold", id, len(truth), missing, copies, extra)
}

// work runs n requests that share prefixes on every rank of e.
func work(t testing.TB, e *enginesim.Engine, n int) {
	t.Helper()
	for i := range n {
		rank := e.Rank(i % e.Ranks())
		tokens := make([]uint32, 16*(3+i%5)+5)
		for j := range tokens {
			tokens[j] = uint32(j + 7*(i%4)*(j/32))
		}
		if _, err := rank.Run(enginesim.Request{Tokens: tokens, Generate: 20}); err != nil {
			t.Fatal(err)
		}
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestFollowFromTheStart(t *testing.T) {
	for _, layout := range []enginesim.ReplayLayout{enginesim.ReplayWithoutTopic, enginesim.ReplayWithTopic} {
		r := newRig(t, Options{})
		e := r.start(enginesim.EngineOptions{Ranks: 2, Pool: enginesim.PoolOptions{Blocks: 40}, Stream: enginesim.StreamOptions{Layout: layout}})
		work(t, e, 30) // before anybody listens
		r.follow("a", e)
		r.awaitState("a", events.Live, "")
		r.awaitTruth("a", e)
		work(t, e, 30)
		r.awaitTruth("a", e)
		r.awaitState("a", events.Live, "")
		if lost := r.status("a").Counters.Lost; lost != 0 {
			t.Errorf("%d batches lost", lost)
		}
	}
}

func TestGapIsRepaired(t *testing.T) {
	r := newRig(t, Options{})
	e := r.start(enginesim.EngineOptions{})
	s := e.Rank(0).Stream()
	r.follow("a", e)
	r.awaitState("a", events.Live, "")
	check(t, s.DropLive(7))
	check(t, s.FaultReplay(enginesim.ReplayFault{Times: 2, Truncate: 3, LoseEnd: true}))
	work(t, e, 20)
	r.awaitTruth("a", e)
	r.awaitState("a", events.Live, "")
	check(t, s.Duplicate(5))
	check(t, s.Reorder(5))
	work(t, e, 20)
	r.awaitTruth("a", e)
	r.awaitState("a", events.Live, "")
}

func TestGapThatNothingRepairs(t *testing.T) {
	r := newRig(t, Options{})
	e := r.start(enginesim.EngineOptions{})
	r.follow("a", e)
	work(t, e, 10)
	r.awaitState("a", events.Live, "")
	r.awaitTruth("a", e)
	check(t, e.Rank(0).Stream().Skip(2))
	work(t, e, 10)
	r.awaitState("a", events.Degraded, events.CauseGap+": 2 batches lost")
	check(t, e.Rank(0).Clear())
	work(t, e, 10)
	r.awaitState("a", events.Live, "")
	r.awaitTruth("a", e)
}

func TestWithoutReplayEndpoint(t *testing.T) {
	r := newRig(t, Options{})
	e := r.start(enginesim.EngineOptions{Stream: enginesim.StreamOptions{NoReplay: true}})
	r.follow("a", e)
	check(t, e.WaitSubscribers(t.Context()))
	r.awaitState("a", events.Degraded, events.CauseHistory)
	work(t, e, 5)
	r.awaitState("a", events.Live, "") // seen from seq 0 on
	r.awaitTruth("a", e)
	check(t, e.Rank(0).Stream().DropLive(1))
	work(t, e, 5)
	r.awaitState("a", events.Degraded, events.CauseGap)
}

func TestRestart(t *testing.T) {
	f := func(name string, o enginesim.RestartOptions, noReplay bool) {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Options{})
			e := r.start(enginesim.EngineOptions{Stream: enginesim.StreamOptions{NoReplay: noReplay}})
			r.follow("a", e)
			check(t, e.WaitSubscribers(t.Context()))
			work(t, e, 20)
			r.awaitTruth("a", e)
			check(t, e.Restart(o))
			if !noReplay {
				// Nothing is published: the replay alone tells.
				r.awaitTruth("a", e)
			}
			check(t, e.WaitSubscribers(t.Context()))
			work(t, e, 3)
			r.awaitTruth("a", e)
			r.awaitState("a", events.Live, "")
		})
	}
	f("visible", enginesim.RestartOptions{}, false)
	f("after a while", enginesim.RestartOptions{Down: 300 * time.Millisecond}, false)
	f("masked", enginesim.RestartOptions{Masked: true, Ahead: 3}, false)
	f("without replay", enginesim.RestartOptions{}, true)
}

func TestLongReplayThatDropsBatches(t *testing.T) {
	r := newRig(t, Options{})
	e := r.start(enginesim.EngineOptions{Pool: enginesim.PoolOptions{Blocks: 500}})
	check(t, e.Rank(0).Flood(4000))
	// Every replay loses a tenth of its batches; the last ones are whole.
	check(t, e.Rank(0).Stream().FaultReplay(enginesim.ReplayFault{Times: 6, Holes: 0.1, LoseEnd: true}))
	r.follow("a", e)
	r.awaitState("a", events.Live, "")
	r.awaitTruth("a", e)
}

func TestBufferThatDoesNotReachBack(t *testing.T) {
	r := newRig(t, Options{})
	e := r.start(enginesim.EngineOptions{Stream: enginesim.StreamOptions{BufferSteps: 5}})
	work(t, e, 20)
	r.follow("a", e)
	r.awaitState("a", events.Degraded, events.CauseHistory+": known from seq")
	if d := difference(r.index, "a", e); strings.Contains(d, "does not hold") && !strings.Contains(d, " 0 are there") {
		t.Error(d)
	}
}

func TestReplayEndpointThatIsNotThere(t *testing.T) {
	r := newRig(t, Options{ReplayConnect: 50 * time.Millisecond})
	e := r.start(enginesim.EngineOptions{})
	spec := events.InstanceSpec{ID: "a", Model: model, Streams: []events.StreamSpec{{Endpoint: e.Endpoint(0), ReplayEndpoint: "tcp://127.0.0.1:1"}}}
	if _, err := r.fleet.Add(spec); err != nil {
		t.Fatal(err)
	}
	check(t, e.WaitSubscribers(t.Context()))
	r.eventually(func() string {
		if st := r.status("a"); !strings.Contains(st.Note, "replay_endpoint tcp://127.0.0.1:1") {
			return "no note for the operator: " + st.Note
		}
		return ""
	})
	r.eventually(func() string { // it goes on without
		if r.status("a").State == events.Replaying {
			return "still replaying"
		}
		return ""
	})
	work(t, e, 3)
	r.awaitTruth("a", e)
}

func TestOperatorIsToldOfSilence(t *testing.T) {
	r := newRig(t, Options{SilenceHint: 50 * time.Millisecond})
	e := r.start(enginesim.EngineOptions{})
	r.follow("a", e)
	r.eventually(func() string {
		if st := r.status("a"); !strings.Contains(st.Note, "nothing received") || !strings.Contains(st.Note, "`*`") {
			return "no note for the operator: " + st.Note
		}
		return ""
	})
}

func TestRemoveEndsEverything(t *testing.T) {
	r := newRig(t, Options{})
	e := r.start(enginesim.EngineOptions{})
	r.follow("a", e)
	work(t, e, 5)
	r.awaitTruth("a", e)
	if !r.fleet.Remove("a", nil) {
		t.Fatal("not removed")
	}
	for _, tb := range r.index.Tables(model) {
		tb.Walk(func(b indexer.BlockInfo) bool {
			t.Errorf("block %d is still held", b.Seq)
			return false
		})
	}
	if r.fleet.Remove("a", nil) {
		t.Error("removed twice")
	}
}

// TestManyStreamsAreCheap follows 200 streams and counts threads: none may
// come with a stream. The package's doc says why.
func TestManyStreamsAreCheap(t *testing.T) {
	if _, err := os.Stat("/proc/self/task"); err != nil {
		t.Skip("no /proc here to count threads")
	}
	r := newRig(t, Options{})
	e := r.start(enginesim.EngineOptions{Ranks: 8})
	before := threads(t)
	for i := range 200 {
		rank := i % 8
		spec := events.InstanceSpec{ID: fmt.Sprintf("i%03d", i), Model: model, Streams: []events.StreamSpec{
			{Rank: rank, Endpoint: e.Endpoint(rank), ReplayEndpoint: e.ReplayEndpoint(rank)}}}
		if _, err := r.fleet.Add(spec); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 200 {
		r.awaitState(fmt.Sprintf("i%03d", i), events.Live, "")
	}
	work(t, e, 80)
	r.eventually(func() string {
		for i := range 200 {
			if st := r.status(fmt.Sprintf("i%03d", i)); !st.HasBatch || st.LastSeq+1 != e.Rank(i%8).Stream().Seq() {
				return fmt.Sprintf("%d is at seq %d", i, st.LastSeq)
			}
		}
		return ""
	})
	after := threads(t)
	t.Logf("threads: %d before, %d while 200 streams are followed", before, after)
	if after-before >= 200 { // those of calls into libzmq come and go with the machine's load
		t.Errorf("200 streams took %d threads", after-before)
	}
}

func threads(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestFollowEndsWithItsContext(t *testing.T) {
	r := newRig(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	s := events.NewSession(events.SessionOptions{Index: r.index, Instance: "x", Model: model, Stream: events.StreamSpec{Endpoint: "tcp://127.0.0.1:1"}})
	done := make(chan error, 1)
	go func() { done <- r.source.Follow(ctx, s) }()
	cancel()
	select {
	case err := <-done:
		if ctx.Err() == nil || err == nil {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("Follow does not end")
	}
	s.Close()
}

// TestFrameIsTooLarge: libzmq does not connect again after a frame beyond
// MaxFrame; we do.
func TestFrameIsTooLarge(t *testing.T) {
	r := newRig(t, Options{MaxFrame: 50_000})
	e := r.start(enginesim.EngineOptions{})
	r.follow("a", e)
	work(t, e, 5)
	r.awaitTruth("a", e)
	if _, err := e.Rank(0).Stream().Poison(enginesim.BadPayload, make([]byte, 60_000)); err != nil {
		t.Fatal(err)
	}
	r.eventually(func() string {
		if st := r.status("a"); st.Counters.Connects < 2 {
			return fmt.Sprintf("%v (%s) after %d connections", st.State, st.Reason, st.Counters.Connects)
		}
		return ""
	})
	check(t, e.WaitSubscribers(t.Context()))
	work(t, e, 5)
	r.awaitState("a", events.Degraded, events.CauseGap)
	if err := e.Rank(0).Clear(); err != nil {
		t.Fatal(err)
	}
	work(t, e, 5)
	r.awaitTruth("a", e)
	r.awaitState("a", events.Live, "")
}

// TestReplayPortThatIsNotThere: an idle engine whose replays do not come is not
// live, whatever it has cached; and when they do come, it is, without its doing.
func TestReplayPortThatIsNotThere(t *testing.T) {
	r := newRig(t, Options{ReplayConnect: 50 * time.Millisecond, ReplayAgain: 100 * time.Millisecond})
	e := r.start(enginesim.EngineOptions{})
	work(t, e, 5)
	addr, err := enginesim.FreeAddr()
	check(t, err)
	_, err = r.fleet.Add(events.InstanceSpec{ID: "a", Model: model, Streams: []events.StreamSpec{{
		Endpoint: e.Endpoint(0), ReplayEndpoint: "tcp://" + addr,
	}}})
	check(t, err)
	r.awaitState("a", events.Degraded, events.CauseHistory)
	forward(t, addr, strings.TrimPrefix(e.ReplayEndpoint(0), "tcp://"))
	r.awaitState("a", events.Live, "")
	if wrong := difference(r.index, "a", e); wrong != "" {
		t.Error(wrong)
	}
}

// forward makes addr another address of target.
func forward(t *testing.T, addr, target string) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	check(t, err)
	var wg sync.WaitGroup
	t.Cleanup(func() { l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", target)
			if err != nil {
				near.Close()
				continue
			}
			pipe := func(to, from net.Conn) {
				_, _ = io.Copy(to, from) // until either end closes
				to.Close()
				from.Close()
			}
			wg.Go(func() { pipe(near, far) })
			wg.Go(func() { pipe(far, near) })
		}
	})
}
