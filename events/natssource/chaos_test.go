package natssource_test

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kvindex/kvindex/events"
	"github.com/kvindex/kvindex/events/enginesim"
	"github.com/kvindex/kvindex/events/natssource"
)

// TestFaultsInAnyOrder breaks things in a random order and then holds the index
// against the engines. KVINDEX_SEED repeats a schedule.
func TestFaultsInAnyOrder(t *testing.T) {
	seed := rand.Uint64()
	if s, err := strconv.ParseUint(os.Getenv("KVINDEX_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("KVINDEX_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	r := newRig(t)
	e := r.engine(enginesim.EngineOptions{Ranks: 2, Seed: seed, Pool: enginesim.PoolOptions{Blocks: 60}})
	rel := r.relay(pod, e, nil)
	readers := []*reader{r.reader(nil), r.reader(nil)}
	faults := []struct {
		name string
		do   func()
	}{
		{"the server restarts", func() { r.stop(); work(t, e, 5); r.start() }},
		{"the stream is purged", func() {
			r.admin(func(ctx context.Context, js jetstream.JetStream) {
				if st, err := js.Stream(ctx, natssource.DefaultStream); err == nil { // else it is gone
					check(t, st.Purge(ctx))
				}
			})
		}},
		{"the stream is deleted", func() {
			r.admin(func(ctx context.Context, js jetstream.JetStream) {
				_ = js.DeleteStream(ctx, natssource.DefaultStream) // it may be gone already
			})
		}},
		{"the relay restarts", func() { rel.stop(); work(t, e, 5); rel = r.relay(pod, e, nil) }},
		{"the engine restarts", func() { check(t, e.Restart(enginesim.RestartOptions{})) }},
		{"the engine restarts unseen", func() { check(t, e.Restart(enginesim.RestartOptions{Masked: true, Ahead: 2})) }},
		{"a reader restarts", func() {
			at := readers[0].source.Position()
			readers[0].stop()
			work(t, e, 5)
			readers[0] = r.reader(func(o *natssource.Options) { o.Start = at })
		}},
		{"the engine drops batches", func() {
			check(t, e.Rank(0).Stream().DropLive(3))
			check(t, e.Rank(0).Stream().FaultReplay(enginesim.ReplayFault{Times: 2, Holes: 0.3, LoseEnd: true}))
		}},
		{"the engine reorders", func() { check(t, e.Rank(1).Stream().Reorder(3)) }},
	}
	for range 10 {
		f := faults[random.IntN(len(faults))]
		t.Log(f.name)
		f.do()
		work(t, e, 2+random.IntN(6))
		if random.IntN(2) == 0 {
			time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
		}
	}
	for i := range e.Ranks() {
		check(t, e.Rank(i).Stream().Heal())
	}
	work(t, e, 6)
	for _, k := range readers {
		k.awaitTruthOrDegraded(pod, e)
	}
}

// awaitTruthOrDegraded is awaitTruth, but for ranks of which the reader says
// that it does not know everything: it must not hold what the engine does not.
func (r *reader) awaitTruthOrDegraded(id string, e *enginesim.Engine) {
	r.t.Helper()
	eventually(r.t, func() string {
		in, ok := r.fleet.Find(id)
		if !ok {
			return id + " is not followed"
		}
		d, h := difference(r.index, id, e), in.Health()
		switch {
		case h.State == events.Live && d == "":
			return ""
		case h.State == events.Degraded && strings.Contains(d, " 0 have another number of copies, and 0 are there"):
			r.t.Logf("degraded (%s): %s", h.Reason, d)
			return ""
		}
		return h.State.String() + " (" + h.Reason + "): " + d
	})
}

// TestToken: the server asks who comes.
func TestToken(t *testing.T) {
	r := newRig(t)
	r.stop()
	r.opts.Authorization = "secret"
	r.start()
	file := filepath.Join(t.TempDir(), "token")
	check(t, os.WriteFile(file, []byte("secret\n"), 0o600))
	r.token = file
	e := r.engine(enginesim.EngineOptions{})
	work(t, e, 5)
	r.relay(pod, e, nil)
	r.reader(nil).awaitTruth(pod, e)
}
