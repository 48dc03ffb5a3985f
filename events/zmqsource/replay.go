package zmqsource

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kvindex/kvindex/events"
	zmq "github.com/pebbe/zmq4"
)

// retryPause is how long a replay that failed is waited for before the next;
// it doubles while they keep failing.
const retryPause = 50 * time.Millisecond

// replay is a running request for missed batches. Every one has a socket of
// its own, so that nothing of an abandoned one can be taken for its answer.
type replay struct {
	id   uint64
	from uint64
	sock *socket
	mon  *socket // reports of the connection
	sent bool
	got  bool      // something came back
	due  time.Time // when it counts as ended
}

// wantsSlot reports whether a replay is to be started and may be.
func (st *stream) wantsSlot() bool {
	_, _, want := st.session.Replay()
	return want && st.replay == nil && !time.Now().Before(st.pauseUntil)
}

// beginReplay starts the wanted replay; the caller has taken a slot.
func (st *stream) beginReplay() {
	id, from, want := st.session.Replay()
	if !want {
		<-st.source.slots
		return
	}
	sock, mon, err := st.source.newDealer(st.spec.ReplayEndpoint, st.wake)
	if err != nil {
		<-st.source.slots
		st.failedReplay(id, "cannot connect to replay_endpoint "+st.spec.ReplayEndpoint+": "+err.Error())
		return
	}
	st.replay = &replay{id: id, from: from, sock: sock, mon: mon, due: time.Now().Add(st.source.opts.ReplayConnect)}
	st.driveReplay()
}

// driveReplay sends the request once the socket is connected and hands over
// what comes back.
func (st *stream) driveReplay() {
	r := st.replay
	if r == nil {
		return
	}
	if id, _, want := st.session.Replay(); !want || id != r.id {
		st.endReplay()
		return
	}
	if slices.Contains(r.mon.events(), zmq.EVENT_HANDSHAKE_SUCCEEDED) && !r.sent {
		r.sent = r.sock.send(events.ReplayRequest(r.from)...)
		r.due = time.Now().Add(st.source.opts.ReplayFirst)
	}
	for { // also before anything can come, or the watcher would report for ever
		msg, ok := r.sock.recv()
		if !ok {
			break
		}
		r.got, r.due = true, time.Now().Add(st.source.opts.ReplayIdle)
		if st.session.Replayed(r.id, msg) {
			st.failures = 0
			st.endReplay()
			return
		}
	}
	if time.Now().Before(r.due) {
		return
	}
	switch {
	case r.got: // the end marker was lost; what came counts
		st.failures = 0
		st.endReplay()
		st.timedOut(r.id)
	case r.sent:
		st.failedReplay(r.id, "replay_endpoint "+st.spec.ReplayEndpoint+" accepts connections but does not answer: is it the engine's replay port?")
	default:
		st.failedReplay(r.id, "cannot connect to replay_endpoint "+st.spec.ReplayEndpoint+": is replay_endpoint set in --kv-events-config, and reachable?")
	}
}

func (st *stream) failedReplay(id uint64, note string) {
	st.endReplay()
	st.failures++
	pause := retryPause << min(st.failures, 6)
	st.pauseUntil = time.Now().Add(pause/2 + rand.N(pause/2))
	st.session.Note(note)
	st.timedOut(id)
}

// timedOut tells the session that a replay ended without its end. If the session
// gives up then, it is asked again after a while: the engine may be idle, so that
// nothing else would tell what is missing.
func (st *stream) timedOut(id uint64) {
	st.session.ReplayTimeout(id)
	if st.session.Open() && st.settleAt.IsZero() {
		st.settleAt = time.Now().Add(st.source.opts.ReplayAgain)
	}
}

// endReplay closes the running replay, if any, and gives its slot back.
func (st *stream) endReplay() {
	if st.replay == nil {
		return
	}
	st.replay.sock.stopMonitor()
	st.replay.mon.close()
	st.replay.sock.close()
	st.replay = nil
	<-st.source.slots
}

// replayDue is when the replay needs attention by the clock.
func (st *stream) replayDue() time.Time {
	if st.replay != nil {
		return st.replay.due
	}
	if _, _, want := st.session.Replay(); want && time.Now().Before(st.pauseUntil) {
		return st.pauseUntil
	}
	return time.Time{}
}
