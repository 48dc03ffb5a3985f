package zmqsource

import (
	"context"
	"time"

	"github.com/kvindex/kvindex/events"
	zmq "github.com/pebbe/zmq4"
)

// settleAfter is how long after a connection the stream is checked again: by
// then the engine has certainly seen the subscription.
const settleAfter = time.Second

// redialAfter is how long after the end of a connection libzmq must have said
// that it tries again. It gives up for good, without a word, where the other side
// broke the protocol, with a frame beyond MaxFrame for one.
const redialAfter = time.Second

// burst is how many live messages are taken before replays and cancellation
// get a look.
const burst = 256

// stream is one followed stream. Only its own goroutine touches it.
type stream struct {
	source  *Source
	session *events.Session
	spec    events.StreamSpec
	wake    chan struct{} // a socket may be readable

	sub    *socket
	mon    *socket
	replay *replay

	started    time.Time
	connected  time.Time // zero while disconnected
	settleAt   time.Time // zero if nothing is to be settled
	redialAt   time.Time // zero unless libzmq may have given up
	hintAt     time.Time // when to look whether the operator needs a hint
	pauseUntil time.Time // no replay before
	failures   int       // replays in a row that were not answered
}

func (st *stream) connect() error {
	st.started = time.Now()
	st.hintAt = st.started.Add(connectHint)
	sub, err := st.source.newSub(st.spec, st.wake)
	if err != nil {
		return err
	}
	st.sub = sub
	// Monitor first, so that no event of the connection is missed.
	if st.mon, err = st.source.newMonitor(sub, st.wake); err != nil {
		return err
	}
	return sub.connect(st.spec.Endpoint)
}

func (st *stream) close() {
	st.endReplay()
	if st.mon != nil {
		st.sub.stopMonitor()
		st.mon.close()
	}
	if st.sub != nil {
		st.sub.close()
	}
}

func (st *stream) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		more := st.receive()
		st.drive()
		st.hints()
		if more {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			continue
		}
		timer.Reset(st.nextDue())
		var slot chan<- struct{}
		if st.wantsSlot() {
			slot = st.source.slots
		}
		st.rearm()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-st.wake:
		case <-st.session.Wake():
		case slot <- struct{}{}:
			st.beginReplay()
		case <-timer.C:
		}
	}
}

// receive hands over what has come and reports whether there may be more.
//
// The monitor tells of a connection before its first message can be read, so
// looking there after taking a message and before handing it over keeps the
// order. The end of a connection is handed over when the socket is empty: a
// new connection takes at least the reconnect interval, so that what is there
// came over the old one; where a slow index makes that untrue, sequence
// numbers and CRCs still tell a restart.
func (st *stream) receive() (more bool) {
	for range burst {
		msg, ok := st.sub.recv()
		news := st.mon.events()
		ended := hasEnd(news)
		if !ended {
			st.handle(news)
		}
		if ok {
			st.session.Live(msg)
		}
		if ended {
			for {
				rest, ok := st.sub.recv()
				if !ok {
					break
				}
				st.session.Live(rest)
			}
			st.handle(news)
		}
		if !ok {
			return false
		}
	}
	return true
}

func hasEnd(news []zmq.Event) bool {
	for _, e := range news {
		if e == zmq.EVENT_DISCONNECTED {
			return true
		}
	}
	return false
}

func (st *stream) handle(news []zmq.Event) {
	for _, e := range news {
		switch e {
		case zmq.EVENT_HANDSHAKE_SUCCEEDED:
			st.connected, st.redialAt = time.Now(), time.Time{}
			st.hintAt = st.connected.Add(st.source.opts.SilenceHint)
			st.failures = 0
			if st.spec.ReplayEndpoint != "" {
				st.settleAt = st.connected.Add(settleAfter)
			}
			st.session.Note("")
			st.session.Connected()
		case zmq.EVENT_CONNECT_RETRIED:
			st.redialAt = time.Time{}
		case zmq.EVENT_DISCONNECTED:
			st.redialAt = time.Now().Add(redialAfter)
			if !st.connected.IsZero() {
				st.connected, st.settleAt = time.Time{}, time.Time{}
				st.hintAt = time.Now().Add(connectHint)
				st.session.Disconnected()
			}
		case zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, zmq.EVENT_HANDSHAKE_FAILED_AUTH:
			st.redialAt = time.Now().Add(redialAfter)
			st.session.Note(handshakeHint(st.spec.Endpoint))
		}
	}
}

// drive moves the replay on, settles a new connection, and makes one that
// libzmq does not make.
func (st *stream) drive() {
	if !st.redialAt.IsZero() && time.Now().After(st.redialAt) {
		st.redialAt = time.Now().Add(redialAfter)
		if err := st.sub.redial(st.spec.Endpoint); err != nil {
			st.session.Note(err.Error())
		}
	}
	if !st.settleAt.IsZero() && time.Now().After(st.settleAt) {
		st.settleAt = time.Time{}
		st.session.Settle()
	}
	st.driveReplay()
}

// rearm lets the watchers report again; what came since the sockets were
// found empty is reported at once.
func (st *stream) rearm() {
	st.sub.rearm()
	st.mon.rearm()
	if st.replay != nil {
		st.replay.sock.rearm()
		st.replay.mon.rearm()
	}
}

// nextDue is how long until something happens by the clock.
func (st *stream) nextDue() time.Duration {
	now := time.Now()
	due := now.Add(time.Hour)
	for _, t := range []time.Time{st.settleAt, st.redialAt, st.hintAt, st.replayDue()} {
		if !t.IsZero() && t.Before(due) {
			due = t
		}
	}
	return max(due.Sub(now), 0)
}
