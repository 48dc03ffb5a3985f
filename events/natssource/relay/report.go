package relay

import (
	"context"
	"time"

	"github.com/kvindex/kvindex/events"
	"github.com/kvindex/kvindex/events/natssource"
)

// lookEvery is how often the state of the engine's stream is looked at: a
// change is told at once.
const lookEvery = 100 * time.Millisecond

// report tells readers how far the relay is until ctx is cancelled, and then
// that it ends.
func (l *lane) report(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var said time.Time
	for {
		select {
		case <-ctx.Done():
			s, _ := l.status()
			s.Up, s.Reason = false, "the relay has stopped"
			_ = l.relay.nc.PublishMsg(s.Msg(l.name.Status())) // readers notice the silence, too
			_ = l.relay.nc.FlushTimeout(time.Second)
			return
		case <-l.tell:
			said = time.Time{}
		case <-tick.C:
		}
		s, changed := l.status()
		if changed || time.Since(said) >= l.relay.opts.StatusEvery {
			said = time.Now()
			_ = l.relay.nc.PublishMsg(s.Msg(l.name.Status())) // said again soon
		}
	}
}

// speak has the status told now.
func (l *lane) speak() {
	select {
	case l.tell <- struct{}{}:
	default:
	}
}

// Counters count what became of a rank's batches. They never fall.
type Counters struct {
	Batches     uint64 // taken from the engine, in order
	Published   uint64 // acknowledged by NATS
	Duplicates  uint64 // acknowledged a second time, and noticed by NATS
	LetGo       uint64 // never published: the buffer was full, or their process ended first
	TooLarge    uint64 // never published: larger than the server takes
	Failures    uint64 // attempts to publish that failed
	Boots       uint64 // boot ids made
	Requests    uint64 // for batches, of readers
	BadRequests uint64 // ... that make no sense
	Answered    uint64 // batches sent to readers that asked
	Fetches     uint64 // replays of the engine, for readers
}

// Report is a snapshot of one rank.
type Report struct {
	Counters
	Rank     int
	Boot     string
	Next     uint64 // seq of the batch that comes next
	Buffered int    // batches in the buffer
	Bytes    int    // ... and their bytes
	Waiting  int    // of them, not published yet
	Up       bool   // the engine is connected
	Engine   events.StreamStatus
}

// Reports returns a snapshot of every rank that is followed. It is safe for
// concurrent use.
func (r *Relay) Reports() []Report {
	if !r.ready.Load() {
		return nil
	}
	list := make([]Report, 0, len(r.lanes))
	for _, l := range r.lanes {
		engine := l.session.Status()
		l.mu.Lock()
		list = append(list, Report{
			Counters: l.count, Rank: l.name.Rank, Boot: l.boot, Next: l.next, Up: l.up, Engine: engine,
			Buffered: len(l.buf.entries), Bytes: l.buf.bytes, Waiting: len(l.buf.entries) - l.buf.sent,
		})
		l.mu.Unlock()
	}
	return list
}

// Name is the stream of a rank, as readers know it.
func (r *Relay) Name(rank int) natssource.Name {
	return natssource.Name{Model: r.opts.Model, Instance: r.opts.Instance, Rank: rank}
}

// Ready reports whether batches flow: NATS and every rank are connected. The
// reasons say what is missing.
func (r *Relay) Ready() (ok bool, awaited []string) {
	if !r.up.Load() {
		awaited = append(awaited, "NATS is not connected")
	}
	if !r.ready.Load() {
		return false, append(awaited, "the stream is not there yet")
	}
	for _, rep := range r.Reports() {
		if !rep.Up {
			awaited = append(awaited, "dp_rank "+itoa(rep.Rank)+": "+rep.Engine.State.String())
		}
	}
	return len(awaited) == 0, awaited
}
