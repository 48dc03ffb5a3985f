package natssource_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/kvindex/kvindex/events"
	"github.com/kvindex/kvindex/events/enginesim"
	"github.com/kvindex/kvindex/events/natssource"
	"github.com/kvindex/kvindex/events/natssource/relay"
	"github.com/kvindex/kvindex/events/zmqsource"
	"github.com/kvindex/kvindex/indexer"
)

// TestMain looks for goroutines that are left. A NATS server that is shut down
// while a stream is being created leaves two of its own behind.
func TestMain(m *testing.M) {
	const natsd = "github.com/nats-io/nats-server/v2/server"
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction(natsd+".(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreAnyFunction(natsd+"/ats.Register.func1"))
}

// model is what all simulated engines serve; its name needs escaping.
const model = "Org/sim-0.5*B"

// rig is a NATS server, real and in this process.
type rig struct {
	t     testing.TB
	opts  *server.Options
	srv   *server.Server
	token string        // file with the token that the server asks for; empty: none
	hold  chan struct{} // readers take nothing before it is closed; nil: at once
}

func newRig(t testing.TB) *rig {
	t.Helper()
	addr, err := enginesim.FreeAddr() // which stays free while the server is down
	check(t, err)
	_, text, err := net.SplitHostPort(addr)
	check(t, err)
	port, err := strconv.Atoi(text)
	check(t, err)
	r := &rig{t: t, opts: &server.Options{
		Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
	}}
	r.start()
	t.Cleanup(r.stop)
	return r
}

// start starts the server, on the same port and with the same files as before.
func (r *rig) start() {
	r.t.Helper()
	srv, err := server.NewServer(r.opts)
	check(r.t, err)
	srv.Start()
	if !srv.ReadyForConnections(10 * time.Second) {
		r.t.Fatal("the NATS server does not start")
	}
	r.srv = srv
}

func (r *rig) stop() {
	r.srv.Shutdown()
	r.srv.WaitForShutdown()
}

func (r *rig) url() string { return fmt.Sprintf("nats://127.0.0.1:%d", r.opts.Port) }

func (r *rig) connect() natssource.ConnectOptions {
	return natssource.ConnectOptions{URL: r.url(), Name: "test", TokenFile: r.token}
}

// admin runs fn with a connection of its own, as an operator would.
func (r *rig) admin(fn func(ctx context.Context, js jetstream.JetStream)) {
	r.t.Helper()
	nc, err := nats.Connect(r.url())
	check(r.t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	check(r.t, err)
	ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
	defer cancel()
	fn(ctx, js)
}

// purge drops everything that the stream has.
func (r *rig) purge() {
	r.t.Helper()
	r.admin(func(ctx context.Context, js jetstream.JetStream) {
		st, err := js.Stream(ctx, natssource.DefaultStream)
		check(r.t, err)
		check(r.t, st.Purge(ctx))
	})
}

// engine starts a simulated engine.
func (r *rig) engine(o enginesim.EngineOptions) *enginesim.Engine {
	r.t.Helper()
	e, err := enginesim.Start(o)
	check(r.t, err)
	r.t.Cleanup(func() {
		if err := e.Close(); err != nil {
			r.t.Error(err)
		}
	})
	return e
}

// relayed is a running relay.
type relayed struct {
	*relay.Relay
	t    testing.TB
	stop func()
}

// relay starts the relay of an engine, under an instance id.
func (r *rig) relay(id string, e *enginesim.Engine, change func(*relay.Options)) *relayed {
	r.t.Helper()
	sockets, err := zmqsource.New(zmqsource.Options{})
	check(r.t, err)
	o := relay.Options{
		Connect: r.connect(), Instance: id, Model: model, Follow: sockets.Follow, Fetch: sockets.Fetch,
		StatusEvery: 100 * time.Millisecond, Logger: logger(),
	}
	for i := range e.Ranks() {
		o.Streams = append(o.Streams, events.StreamSpec{Rank: e.Rank(i).ID(), Endpoint: e.Endpoint(i), ReplayEndpoint: e.ReplayEndpoint(i)})
	}
	if change != nil {
		change(&o)
	}
	rel, err := relay.New(o)
	check(r.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- rel.Run(ctx) }()
	out := &relayed{Relay: rel, t: r.t}
	out.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("the relay of %s: %v", id, err)
		}
		rel.Close()
		check(r.t, sockets.Close())
	})
	r.t.Cleanup(out.stop)
	return out
}

// reader is what kvindex is made of: an index that follows a stream of NATS,
// and sockets too.
type reader struct {
	*rig
	index  *indexer.Index
	fleet  *events.Fleet
	source *natssource.Source
	stop   func()
}

func (r *rig) reader(change func(*natssource.Options)) *reader {
	r.t.Helper()
	index, err := indexer.New(indexer.Options{})
	check(r.t, err)
	o := natssource.Options{Connect: r.connect(), Check: 100 * time.Millisecond, Silence: 3 * time.Second, Logger: logger()}
	if change != nil {
		change(&o)
	}
	source, err := natssource.New(o)
	check(r.t, err)
	sockets, err := zmqsource.New(zmqsource.Options{})
	check(r.t, err)
	fleet := events.NewFleet(events.FleetOptions{Index: index, Logger: logger(), Source: func(ctx context.Context, s *events.Session) error {
		if s.Stream().Transport() == events.TransportNATS {
			if r.hold != nil {
				<-r.hold
			}
			return source.Follow(ctx, s)
		}
		return sockets.Follow(ctx, s)
	}})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- source.Run(ctx, fleet) }()
	out := &reader{rig: r, index: index, fleet: fleet, source: source}
	out.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			r.t.Errorf("Run ended with %v", err)
		}
		fleet.Close()
		source.Close()
		check(r.t, sockets.Close())
		index.Close()
	})
	r.t.Cleanup(out.stop)
	return out
}

// logger says what happens, if asked to.
func logger() *slog.Logger {
	if os.Getenv("KVINDEX_TEST_LOG") == "" {
		return nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, nil))
}

func (r *reader) status(id string, rank int) (events.StreamStatus, bool) {
	in, ok := r.fleet.Find(id)
	if !ok || len(in.Streams()) <= rank {
		return events.StreamStatus{}, false
	}
	return in.Streams()[rank], true
}

// eventually waits for a condition that states what is wrong until it holds.
func eventually(t testing.TB, check func() string) {
	t.Helper()
	wrong := check()
	for end := time.Now().Add(30 * time.Second); wrong != "" && time.Now().Before(end); wrong = check() {
		time.Sleep(2 * time.Millisecond)
	}
	if wrong != "" {
		t.Fatal(wrong)
	}
}

// awaitState waits until every rank of id has a state.
func (r *reader) awaitState(id string, want events.State, reason string) {
	r.t.Helper()
	eventually(r.t, func() string {
		in, ok := r.fleet.Find(id)
		if !ok {
			return id + " is not followed: " + r.source.Report().Trouble
		}
		for _, st := range in.Streams() {
			if st.State != want || !strings.HasPrefix(st.Reason, reason) {
				return fmt.Sprintf("%s/%d is %v (%s), want %v (%s); note %q; %+v; %+v", id, st.Rank, st.State, st.Reason, want, reason, st.Note, st.Counters, r.source.Report())
			}
		}
		return ""
	})
}

// awaitTruth waits until the index has of id exactly what its engine holds and
// says so.
func (r *reader) awaitTruth(id string, e *enginesim.Engine) {
	r.t.Helper()
	eventually(r.t, func() string {
		if d := difference(r.index, id, e); d != "" {
			st, _ := r.status(id, 0)
			return fmt.Sprintf("%s; %v (%s) at seq %d, engine at %d; note %q; %+v; %+v", d, st.State, st.Reason, st.LastSeq, e.Rank(0).Stream().Seq(), st.Note, st.Counters, r.source.Report())
		}
		return ""
	})
	r.awaitState(id, events.Live, "")
	if d := difference(r.index, id, e); d != "" {
		r.t.Fatalf("%s is live: %s", id, d)
	}
}

// difference compares the index's content of one instance with its engine's.
func difference(x *indexer.Index, id string, e *enginesim.Engine) string {
	have := map[enginesim.BlockKey]int{}
	for _, tb := range x.Tables(model) {
		tb.Walk(func(b indexer.BlockInfo) bool {
			for _, h := range b.Holders {
				if h.Stream.Instance == id {
					have[enginesim.BlockKey{Rank: h.Stream.Rank, Tier: h.Tier, Seq: b.Seq}] = h.Copies
				}
			}
			return true
		})
	}
	truth := e.Truth(x.Hasher())
	missing, wrong := 0, 0
	for k, s := range truth {
		switch n, ok := have[k]; {
		case !ok:
			missing++
		case n != s.Copies:
			wrong++
		}
		delete(have, k)
	}
	if missing+wrong+len(have) == 0 {
		return ""
	}
	return fmt.Sprintf("%s: of %d blocks %d are missing in the index, %d have another number of copies, and %d are there that the engine does not hold", id, len(truth), missing, wrong, len(have))
}

// work runs n requests that share prefixes, the ranks in turn.
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
