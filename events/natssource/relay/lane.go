package relay

import (
	"cmp"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/kvindex/kvindex/events"
	"github.com/kvindex/kvindex/events/natssource"
)

// lane is one rank on its way from the engine to NATS.
type lane struct {
	relay *Relay
	spec  events.StreamSpec
	name  natssource.Name
	log   *slog.Logger
	work  chan struct{} // there is something to publish
	tell  chan struct{} // the status has changed

	mu       sync.Mutex
	boot     string
	announce int // how often the log is to be told of boot, beyond told
	told     int
	buf      buffer
	next     uint64           // seq of the batch that comes next
	anchor   *natssource.Mark // the batch of boot that the log ended with when the relay began
	older    map[uint64][]byte
	olderAt  time.Time
	renamed  time.Time // when boot was last replaced for the same process
	up       bool
	full     bool // batches are being let go
	count    Counters
	session  *events.Session
}

func newLane(r *Relay, spec events.StreamSpec) *lane {
	name := natssource.Name{Model: r.opts.Model, Instance: r.opts.Instance, Rank: spec.Rank}
	return &lane{
		relay: r, spec: spec, name: name, log: r.opts.Logger.With("subject", name.Events()),
		work: make(chan struct{}, 1), tell: make(chan struct{}, 1),
		buf: buffer{maxBatches: r.opts.BufferBatches, maxBytes: r.opts.BufferBytes},
	}
}

// open makes the session that puts the engine's batches in order. last is
// what the log has of this stream; the zero value is nothing.
func (l *lane) open(last lastLogged) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := events.SessionOptions{
		Instance: l.name.Instance, Model: l.name.Model, Stream: l.spec, Logger: l.relay.opts.Logger,
		Tap: l.take, Restarted: l.restarted,
	}
	if last.batch != nil && l.spec.ReplayEndpoint != "" {
		l.boot, l.next, l.anchor = last.boot, last.batch.Seq+1, last.batch
		o.Resume = &events.Resume{Seq: last.batch.Seq, CRC: last.batch.CRC}
	} else {
		l.begin(last.boot)
	}
	l.session = events.NewSession(o)
}

// begin starts an incarnation whose boot id sorts after the given one.
func (l *lane) begin(after string) {
	boot, ok := nextBoot(after)
	if !ok {
		l.log.Error("no boot id sorts after the last one: it is no id that a relay makes", "boot", after)
		return
	}
	if n := l.buf.reset(); n > 0 {
		l.count.LetGo += uint64(n)
	}
	l.boot, l.next, l.anchor, l.older = boot, 0, nil, nil
	l.announce++
	l.count.Boots++
	l.wakeUp()
}

// restarted is called by the session when the engine is a new process.
func (l *lane) restarted(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begin(l.boot)
	l.log.Info("the engine is a new process", "why", why, "boot", l.boot)
}

// take is called by the session with every batch, in order. The payload is
// kept.
func (l *lane) take(_ string, seq uint64, payload []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next = seq + 1
	l.count.Batches++
	n := l.buf.add(entry{seq, payload})
	l.count.LetGo += uint64(n)
	if n > 0 && !l.full {
		l.full = true
		l.log.Warn("the buffer is full, NATS does not take what it holds: the oldest batches are let go, and readers will see a gap",
			"batches", len(l.buf.entries), "bytes", l.buf.bytes)
	}
	l.wakeUp()
}

func (l *lane) wakeUp() {
	select {
	case l.work <- struct{}{}:
	default:
	}
}

// status is what readers are told. It also notices when that has changed.
func (l *lane) status() (s natssource.Status, changed bool) {
	engine := l.session.Status() // not under the lock, which the session's calls take
	l.mu.Lock()
	defer l.mu.Unlock()
	up := l.up
	switch {
	case engine.State == events.Live,
		// Without a batch nothing is known of an engine that cannot replay.
		engine.State == events.Degraded && engine.HasBatch && !strings.HasPrefix(engine.Reason, events.CauseUnverified):
		up = true
	case engine.State != events.Replaying: // a replay of what got lost on the way takes milliseconds
		up = false
	}
	changed = up != l.up
	l.up = up
	s = natssource.Status{Boot: l.boot, Next: l.next, State: engine.State.String(), Up: up}
	if !up {
		s.Reason = cmp.Or(engine.Note, engine.Reason)
	}
	return s, changed
}

// renameEvery is the least time between two boot ids of one process.
const renameEvery = time.Minute

// rename gives the present process another boot id, which sorts after one that
// readers know: the clock went back. They start it anew. It may also be that
// another relay runs for the same engine and does the same, so that it is done
// rarely.
func (l *lane) rename(after string) error {
	if time.Since(l.renamed) < renameEvery {
		return fmt.Errorf("readers know of the process %s, which sorts after our %s: is there another relay for %s?", after, l.boot, l.name.Events())
	}
	boot, ok := nextBoot(after)
	if !ok {
		return fmt.Errorf("no boot id sorts after %q", after)
	}
	l.log.Warn("readers know of a later process than the present one: it gets a new boot id", "boot", l.boot, "readers", after, "new", boot)
	l.boot, l.buf.sent, l.renamed = boot, 0, time.Now()
	l.announce++
	l.count.Boots++
	l.wakeUp()
	return nil
}
