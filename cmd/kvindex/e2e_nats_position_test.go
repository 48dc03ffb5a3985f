package main_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kvindex/kvindex/events/natssource"
)

// newFaultRun is a run of its own: what it reports nobody reads.
func newFaultRun(t *testing.T) *faultRun {
	return &faultRun{TB: t, seed: 1, rand: rand.New(rand.NewPCG(1, 1)), begin: time.Now()}
}

// position is up to where s has read the log.
func (s *server) position() float64 { return s.metric("kvindex_nats_position ") }

// taken is how many messages of the log s has read.
func (s *server) taken() float64 { return s.metric(`kvindex_nats_messages_total{result="taken"}`) }

// surprises is how often the log was not what s took it for.
func (s *server) surprises() float64 { return s.metric("kvindex_nats_surprises_total") }

// TestE2ENATSPosition: who comes back from a snapshot reads the log on from
// where the snapshot is, and not all of it again; but where the log is no longer
// that log, or the snapshot does not know all of it.
func TestE2ENATSPosition(t *testing.T) {
	f := newFaultRun(t)
	n := startNATS(t)
	p := f.relayed("pod-0", n.url())
	p.work(150)
	snapshots, dir := f.snapshotsIn()
	config := overNATS(n.url()) + snapshots
	s := f.serve(config)
	f.live(s, p)
	before := s.position()
	if before < 150 || s.taken() != before {
		t.Fatalf("the log is read up to %v, in %v messages", before, s.taken())
	}

	f.awaitSnapshot(s, func() { p.work(1) })
	s.kill(syscall.SIGKILL)
	p.work(10)
	s = f.serve(config)
	f.live(s, p)
	if n, most := s.taken(), s.position()-before; n == 0 || n > most || s.surprises() > 0 {
		t.Errorf("%v messages are read after a restart, and only %v are newer than the snapshot; %v surprises", n, most, s.surprises())
	}
	stdout, _, _ := output(t, nil, "snapshot", "dump", dir)
	if want := "read over NATS  KV_EVENTS up to message "; !strings.Contains(stdout, want) {
		t.Errorf("the dump does not say %q:\n%s", want, stdout)
	}

	// Nothing is new: the instance is known all the same, and soon live.
	s.kill(syscall.SIGTERM)
	s = f.serve(config)
	f.live(s, p)
	if n := s.taken(); n > 0 {
		t.Errorf("%v messages are read after a restart in which none came", n)
	}

	// With a choice of models the one who wrote the snapshot had not made.
	s.kill(syscall.SIGTERM)
	s = f.serve(strings.Replace(config, "}", ", models: [sim]}", 1))
	f.live(s, p)
	if s.taken() != s.position() {
		t.Errorf("%v messages are read of %v", s.taken(), s.position())
	}

	// Another log of that name, which has got longer than the one before.
	s.kill(syscall.SIGTERM)
	s = f.serve(config)
	f.live(s, p)
	s.kill(syscall.SIGTERM)
	f.admin(n.url(), func(ctx context.Context, _ *nats.Conn, js jetstream.JetStream) error {
		return js.DeleteStream(ctx, natssource.DefaultStream)
	})
	p.work(300)
	s = f.serve(config)
	f.live(s, p)
	if s.surprises() != 1 || s.taken() != s.position() {
		t.Errorf("%v surprises, %v messages are read of %v", s.surprises(), s.taken(), s.position())
	}
}

// TestE2ENATSReady: who is ready knows what can be known: of engines, too, of
// which the log has nothing any more.
func TestE2ENATSReady(t *testing.T) {
	f := newFaultRun(t)
	n := startNATS(t)
	p := f.relayed("pod-0", n.url())
	prompt := p.work(20)
	s := f.serve(overNATS(n.url()))
	f.live(s, p)
	f.admin(n.url(), func(ctx context.Context, _ *nats.Conn, js jetstream.JetStream) error {
		st, err := js.Stream(ctx, natssource.DefaultStream)
		if err != nil {
			return err
		}
		return st.Purge(ctx)
	})
	s = f.serve(overNATS(n.url()))
	s.awaitReady()
	if n, state := p.matched(s, prompt); n != len(prompt)/16 || state != "exact" {
		t.Errorf("%d blocks of %d are found, and the answer is %s", n, len(prompt)/16, state)
	}
}

// awaitReady waits until s says that it is ready.
func (s *server) awaitReady() {
	s.t.Helper()
	s.within(faultWait, func() string {
		if code, text := s.do("GET", "/readyz", ""); code != 200 {
			return fmt.Sprintf("not ready: %d %s", code, text)
		}
		return ""
	})
}
