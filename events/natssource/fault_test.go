package natssource_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kvindex/kvindex/events"
	"github.com/kvindex/kvindex/events/enginesim"
	"github.com/kvindex/kvindex/events/natssource"
	"github.com/kvindex/kvindex/events/natssource/relay"
)

const pod = "pod-0"

// followed is an engine with its relay and a reader that has caught up.
func followed(t *testing.T, o enginesim.EngineOptions, change func(*relay.Options)) (*rig, *enginesim.Engine, *relayed, *reader) {
	t.Helper()
	r := newRig(t)
	e := r.engine(o)
	work(t, e, 10)
	rel := r.relay(pod, e, change)
	k := r.reader(nil)
	k.awaitTruth(pod, e)
	return r, e, rel, k
}

func TestServerRestarts(t *testing.T) {
	r, e, _, k := followed(t, enginesim.EngineOptions{Ranks: 2}, nil)
	r.stop()
	k.awaitState(pod, events.Disconnected, "")
	work(t, e, 20)
	r.start()
	k.awaitTruth(pod, e)
	work(t, e, 10)
	k.awaitTruth(pod, e)
	if st, _ := k.status(pod, 0); st.Counters.Restarts["boot"] != 0 || st.Counters.Lost != 0 {
		t.Errorf("the engine is the same, and nothing was lost: %+v", st.Counters)
	}
}

func TestServerIsThereLast(t *testing.T) {
	r := newRig(t)
	r.stop()
	e := r.engine(enginesim.EngineOptions{})
	work(t, e, 10)
	r.relay(pod, e, nil)
	k := r.reader(nil)
	eventually(t, func() string {
		if why := k.source.Report().Trouble; !strings.Contains(why, "cannot connect to NATS") {
			return "trouble is " + why
		}
		return ""
	})
	r.start()
	k.awaitTruth(pod, e)
}

func TestStreamIsPurged(t *testing.T) {
	t.Run("behind us", func(t *testing.T) {
		r, e, _, k := followed(t, enginesim.EngineOptions{}, nil)
		r.purge()
		work(t, e, 10)
		k.awaitTruth(pod, e)
	})
	t.Run("past us", func(t *testing.T) {
		// The reader was away while batches came and were purged, and the engine
		// is silent since: only the relay can tell.
		r, e, _, k := followed(t, enginesim.EngineOptions{}, nil)
		at := k.source.Position()
		k.stop()
		work(t, e, 20)
		late := r.reader(nil)
		late.awaitTruth(pod, e)
		late.stop()
		r.purge()
		k = r.reader(func(o *natssource.Options) { o.Start = at })
		k.awaitTruth(pod, e)
		if n := k.source.Report().Purged; n != 1 {
			t.Errorf("noticed %d purges", n)
		}
	})
	t.Run("before anybody read it", func(t *testing.T) {
		r := newRig(t)
		e := r.engine(enginesim.EngineOptions{Ranks: 2})
		rel := r.relay(pod, e, nil)
		work(t, e, 20)
		rel.awaitPublished(e)
		r.purge()
		k := r.reader(nil)
		k.awaitTruth(pod, e)
	})
}

// TestResync: an operator has a reader forget what it holds, and it fetches it
// again.
func TestResync(t *testing.T) {
	_, e, _, k := followed(t, enginesim.EngineOptions{Ranks: 2}, nil)
	in, _ := k.fleet.Find(pod)
	in.Resync()
	k.awaitTruth(pod, e)
	work(t, e, 5)
	k.awaitTruth(pod, e)
}

func TestStreamIsCreatedAnew(t *testing.T) {
	r, e, _, k := followed(t, enginesim.EngineOptions{}, nil)
	r.admin(func(ctx context.Context, js jetstream.JetStream) {
		check(t, js.DeleteStream(ctx, natssource.DefaultStream))
	})
	work(t, e, 10)
	k.awaitTruth(pod, e)
	eventually(t, func() string {
		if rep := k.source.Report(); rep.Recreated != 1 || rep.Trouble != "" {
			return "the stream's re-creation is not noticed"
		}
		return ""
	})
	work(t, e, 10)
	k.awaitTruth(pod, e)
}

func TestEngineRestarts(t *testing.T) {
	f := func(name string, o enginesim.RestartOptions, quiet bool) {
		t.Run(name, func(t *testing.T) {
			_, e, rel, k := followed(t, enginesim.EngineOptions{}, nil)
			before := rel.Reports()[0].Boot
			check(t, e.Restart(o))
			if !quiet {
				work(t, e, 5)
			}
			k.awaitTruth(pod, e)
			if after := rel.Reports()[0].Boot; after <= before {
				t.Errorf("boot id %s after %s", after, before)
			}
			work(t, e, 5)
			k.awaitTruth(pod, e)
		})
	}
	f("visible", enginesim.RestartOptions{}, false)
	f("and is silent", enginesim.RestartOptions{}, true)
	f("masked", enginesim.RestartOptions{Masked: true, Ahead: 3}, true)
	f("while NATS is down", enginesim.RestartOptions{}, false)
}

func TestEngineRestartsWhileServerIsDown(t *testing.T) {
	r, e, _, k := followed(t, enginesim.EngineOptions{}, nil)
	r.stop()
	work(t, e, 5)
	check(t, e.Restart(enginesim.RestartOptions{}))
	work(t, e, 5)
	r.start()
	k.awaitTruth(pod, e)
}

// TestEngineIsGone: what a reader says of a dead engine is what it would say if
// it had dialled it itself.
func TestEngineIsGone(t *testing.T) {
	_, e, _, k := followed(t, enginesim.EngineOptions{}, nil)
	check(t, e.Kill())
	k.awaitState(pod, events.Disconnected, "")
	check(t, e.Boot(5*time.Second))
	k.awaitTruth(pod, e)
}

func TestRelayRestarts(t *testing.T) {
	t.Run("with the same engine", func(t *testing.T) {
		// The engine's buffer does not reach back to its start: what readers know
		// of it is more than a new relay could find out.
		r, e, rel, k := followed(t, enginesim.EngineOptions{}, nil)
		boot := rel.Reports()[0].Boot
		rel.stop()
		k.awaitState(pod, events.Disconnected, "")
		work(t, e, 10)
		rel = r.relay(pod, e, nil)
		k.awaitTruth(pod, e)
		if now := rel.Reports()[0].Boot; now != boot {
			t.Errorf("boot id %s became %s", boot, now)
		}
		late := r.reader(nil)
		late.awaitTruth(pod, e)
		r.purge() // now the engine has to be asked for what the new relay has not seen
		late = r.reader(nil)
		late.awaitTruth(pod, e)
		if n := rel.Reports()[0].Fetches; n == 0 {
			t.Error("the engine was not asked")
		}
	})
	t.Run("with another engine", func(t *testing.T) {
		r, e, rel, k := followed(t, enginesim.EngineOptions{}, nil)
		rel.stop()
		check(t, e.Restart(enginesim.RestartOptions{Masked: true, Ahead: 2}))
		r.relay(pod, e, nil)
		k.awaitTruth(pod, e)
	})
	t.Run("and has no replay socket", func(t *testing.T) {
		r := newRig(t)
		e := r.engine(enginesim.EngineOptions{Stream: enginesim.StreamOptions{NoReplay: true}})
		rel := r.relay(pod, e, nil)
		k := r.reader(nil)
		check(t, e.WaitSubscribers(t.Context()))
		work(t, e, 5)
		k.awaitTruth(pod, e)
		rel.stop()
		eventually(t, func() string {
			if e.Rank(0).Stream().Subscribers() > 0 {
				return "the engine has not noticed that the relay is gone"
			}
			return ""
		})
		r.relay(pod, e, nil)
		check(t, e.WaitSubscribers(t.Context()))
		k.awaitState(pod, events.Disconnected, "") // until the engine says something
		work(t, e, 5)
		k.awaitState(pod, events.Degraded, events.CauseHistory)
	})
}

// TestBufferOverflows: what waits for NATS is bounded, and what had to go is
// fetched from the engine or said to be lost.
func TestBufferOverflows(t *testing.T) {
	f := func(name string, fetch bool) {
		t.Run(name, func(t *testing.T) {
			r, e, rel, k := followed(t, enginesim.EngineOptions{}, func(o *relay.Options) {
				o.BufferBatches = 40
				if !fetch {
					o.Fetch = nil
				}
			})
			r.stop()
			work(t, e, 100)
			eventually(t, func() string {
				if rep := rel.Reports()[0]; rep.LetGo == 0 || rep.Next != e.Rank(0).Stream().Seq() {
					return "the buffer has let nothing go"
				}
				return ""
			})
			r.start()
			if fetch {
				k.awaitTruth(pod, e)
				return
			}
			k.awaitState(pod, events.Degraded, events.CauseGap)
			check(t, e.Rank(0).Clear())
			work(t, e, 5)
			k.awaitTruth(pod, e)
		})
	}
	f("fetched from the engine", true)
	f("lost", false)
}

func TestRelayIsSilent(t *testing.T) {
	r := newRig(t)
	e := r.engine(enginesim.EngineOptions{})
	work(t, e, 5)
	rel := r.relay(pod, e, nil)
	k := r.reader(func(o *natssource.Options) { o.Silence, o.Forget = 300*time.Millisecond, 600*time.Millisecond })
	k.awaitTruth(pod, e)
	rel.stop()
	eventually(t, func() string {
		if _, ok := k.fleet.Find(pod); ok {
			return pod + " is still followed"
		}
		return ""
	})
	if d := difference(k.index, pod, e); !strings.Contains(d, " 0 are there") {
		t.Error(d)
	}
	r.relay(pod, e, nil)
	k.awaitTruth(pod, e)
}

// awaitPublished waits until the log has everything that e has published.
func (rel *relayed) awaitPublished(e *enginesim.Engine) {
	rel.t.Helper()
	eventually(rel.t, func() string {
		for i, rep := range rel.Reports() {
			if rep.Next != e.Rank(i).Stream().Seq() || rep.Waiting > 0 {
				return "the relay is behind"
			}
		}
		if len(rel.Reports()) == 0 {
			return "the relay has not begun"
		}
		return ""
	})
}

// TestRelayStopsBeforeItBegan: a relay that never reached NATS ends all the
// same.
func TestRelayStopsBeforeItBegan(t *testing.T) {
	r := newRig(t)
	r.stop()
	rel := r.relay(pod, r.engine(enginesim.EngineOptions{}), nil)
	if ok, awaited := rel.Ready(); ok || len(awaited) == 0 {
		t.Errorf("ready: %v %q", ok, awaited)
	}
	rel.stop()
}

// TestClockWentBack: readers know of a later process than the relay, which has
// lost the log that would have told it so.
func TestClockWentBack(t *testing.T) {
	r, e, rel, k := followed(t, enginesim.EngineOptions{}, nil)
	later := "ffff0000-0000-7000-8000-000000000000"
	name := natssource.Name{Model: model, Instance: pod}
	r.admin(func(ctx context.Context, js jetstream.JetStream) {
		_, err := js.PublishMsg(ctx, natssource.Batch{Boot: later, Began: true}.Msg(name.Events()))
		check(t, err)
	})
	eventually(t, func() string {
		if now := rel.Reports()[0].Boot; now <= later {
			return "boot id " + now
		}
		return ""
	})
	k.awaitTruth(pod, e)
	work(t, e, 5)
	k.awaitTruth(pod, e)
}
