package natssource

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvindex/kvindex/events"
)

// item is a message of the log.
type item struct {
	Batch
	logged uint64 // its number in the log
}

// inboxSize is how many messages may wait for a stream's goroutine. Beyond it
// consuming waits.
const inboxSize = 256

// burst is how many messages are taken before anything else gets a look.
const burst = 64

// stream is one followed stream. What is not guarded belongs to its goroutine.
type stream struct {
	source  *Source
	name    Name
	bound   atomic.Bool // its goroutine runs, or has run
	done    chan struct{}
	inbox   chan item
	poke    chan struct{} // something has changed: look
	created time.Time

	queued, taken atomic.Uint64 // numbers in the log of the last item put and taken

	mu      sync.Mutex
	status  Status
	heardAt time.Time // of the last status since the connection is there; zero: none
	news    bool      // status has not been judged
	doubted bool      // the log may lack what came last

	session *events.Session
	up      bool   // the session counts as connected
	down    bool   // it has been told that it is not
	judged  Status // what the relay said when the session was told to replay, while it does
	differs int    // judgements in a row that the relay is elsewhere
	refill  *refill
	retryAt time.Time // no replay before
	fails   int       // replays in a row that were not answered
	note    string
}

func newStream(s *Source, name Name) *stream {
	return &stream{
		source: s, name: name, created: time.Now(),
		done: make(chan struct{}), inbox: make(chan item, inboxSize), poke: make(chan struct{}, 1),
	}
}

// put waits until the item is in the inbox.
func (st *stream) put(ctx context.Context, it item) error {
	st.queued.Store(it.logged)
	select {
	case st.inbox <- it:
	case <-st.done: // no longer followed
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// hear takes what the relay says.
func (st *stream) hear(s Status) {
	st.mu.Lock()
	st.status, st.heardAt, st.news = s, time.Now(), true
	st.mu.Unlock()
	st.wake()
}

// doubt has the relay asked whether there is more than the log has.
func (st *stream) doubt() {
	st.mu.Lock()
	st.doubted = true
	st.mu.Unlock()
	st.wake()
}

func (st *stream) wake() {
	select {
	case st.poke <- struct{}{}:
	default:
	}
}

// silent is for how long nothing has been heard although it could have been.
func (st *stream) silent() time.Duration {
	st.mu.Lock()
	defer st.mu.Unlock()
	since := st.created
	for _, t := range []time.Time{st.heardAt, time.Unix(0, st.source.upSince.Load())} {
		if t.After(since) {
			since = t
		}
	}
	return time.Since(since)
}

func (st *stream) run(ctx context.Context, session *events.Session) error {
	st.session = session
	defer st.endRefill()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		st.take()
		st.judge()
		st.drive()
		timer.Reset(st.nextDue())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case it := <-st.inbox:
			st.apply(it)
		case m := <-st.answers():
			st.answered(m)
		case st.slot() <- struct{}{}:
			st.beginRefill()
		case <-st.poke:
		case <-session.Wake():
		case <-timer.C:
		}
	}
}

// take applies what has come out of the log.
func (st *stream) take() {
	for range burst {
		select {
		case it := <-st.inbox:
			st.apply(it)
		default:
			return
		}
	}
}

func (st *stream) apply(it item) {
	if it.Began {
		st.session.Began(it.Boot)
	} else {
		st.session.Logged(it.Boot, it.Seq, it.Payload)
	}
	st.taken.Store(it.logged)
}

// judge compares what the relay says with what the session has, and tells the
// session whether it is connected.
func (st *stream) judge() {
	st.mu.Lock()
	if !st.source.up.Load() {
		st.heardAt = time.Time{} // what was said before the connection broke is old
	}
	status, heard, news, doubted := st.status, !st.heardAt.IsZero() && time.Since(st.heardAt) < st.source.opts.Silence, st.news, st.doubted
	st.news = false
	st.mu.Unlock()
	switch {
	case !st.source.up.Load():
		st.disconnected("the connection to NATS is down")
		return
	case !heard && st.silent() >= st.source.opts.Silence:
		st.disconnected(fmt.Sprintf("the relay of %s is silent: is it running beside the engine, and connected to NATS?", st.name.Events()))
		return
	case !heard:
		return // connected just now
	case !status.Up:
		st.disconnected("the relay does not reach its engine, or not enough of it: " + status.State + ": " + status.Reason)
		return
	}
	boot, next, _ := st.session.Position()
	atEnd := st.source.atEnd() && len(st.inbox) == 0
	same := boot == status.Boot
	switch {
	case !st.up && same && (atEnd || next >= status.Next):
		st.up, st.down, st.differs = true, false, 0
		st.say(status.Reason)
		st.setDoubted(false) // the session begins with a replay
		st.judged = status
		st.session.Told(status.Next)
		st.session.Connected()
	case st.up && same && doubted && atEnd:
		st.setDoubted(false)
		st.settle(status)
	case !news:
	case same && next >= status.Next:
		st.differs = 0
		if st.up {
			st.say(status.Reason)
		}
	default:
		// Once may be because the status overtook the batch.
		if st.differs++; st.differs >= 2 {
			st.apart(status, boot, same, atEnd)
		}
	}
}

// apart handles a relay that is elsewhere than the session: ahead, or with
// another process. atEnd says that the log will not change that by itself.
// Where the log cannot be read at all, the relay is asked for batches instead.
func (st *stream) apart(status Status, boot string, same, atEnd bool) {
	switch {
	case same && (atEnd || st.source.behind.Load() < 0):
		st.differs = 0
		st.settle(status)
	case !same:
		if atEnd {
			st.askForBoot(boot)
		}
		if st.up {
			st.disconnected("the relay follows another process of the engine, which the log does not tell of yet")
		}
	}
}

// settle has the session ask for what it lacks up to where the relay is.
func (st *stream) settle(status Status) {
	if _, _, asks := st.session.Replay(); !asks {
		st.judged = status
		st.session.Told(status.Next)
		st.session.Settle()
	}
}

func (st *stream) setDoubted(v bool) {
	st.mu.Lock()
	st.doubted = v
	st.mu.Unlock()
}

func (st *stream) disconnected(why string) {
	st.say(why)
	st.differs = 0
	if st.up || !st.down {
		st.up, st.down = false, true
		st.session.Disconnected()
	}
}

func (st *stream) say(note string) {
	if note != st.note {
		st.note = note
		st.session.Note(note)
	}
}

// askForBoot asks for another process than the relay's: the relay then puts the
// news of its own into the log.
func (st *stream) askForBoot(boot string) {
	_ = st.source.nc.PublishMsg(Request{Boot: boot, To: 1}.Msg(st.name.Replay(), "")) // asked again with the next status
}

// nextDue is how long until something happens by the clock.
func (st *stream) nextDue() time.Duration {
	due := time.Minute
	if st.refill != nil {
		due = min(due, time.Until(st.refill.due))
	}
	if _, _, want := st.session.Replay(); want && st.refill == nil {
		due = min(due, max(time.Until(st.retryAt), time.Millisecond))
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.heardAt.IsZero() {
		due = min(due, max(time.Until(st.heardAt.Add(st.source.opts.Silence)), time.Millisecond))
	}
	return max(due, 0)
}
