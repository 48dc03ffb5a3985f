package events

import "testing"

// unended answers wanted replays with batches, by seq, and no end marker, until
// the session gives up.
func (b *bench) unended(batches map[uint64][]byte) {
	b.t.Helper()
	for range 10 {
		id, from, ok := b.s.Replay()
		if !ok {
			return
		}
		for seq := from; ; seq++ {
			p, have := batches[seq]
			if !have {
				break
			}
			b.s.Replayed(id, replayFrames(seq, p))
		}
		b.s.ReplayTimeout(id)
	}
	b.t.Fatal("the session goes on asking for replays that do not end")
}

// TestReplaysThatNeverEnd: nothing is complete before a replay or the next batch
// has shown it.
func TestReplaysThatNeverEnd(t *testing.T) {
	t.Run("first contact", func(t *testing.T) {
		b := newBench(t, nil)
		b.s.Connected()
		b.unended(nil)
		b.want(Degraded, CauseHistory)
		if !b.s.Open() {
			t.Error("nothing is open")
		}
		b.live(7, b.batch(stored(1, 0, 2)))
		b.unended(nil)
		b.want(Degraded, CauseHistory+": known from seq 7 on")
		b.wantMatched(1, 2)
		if st := b.s.Status(); st.Counters.Lost != 0 || st.Suspect != 0 || b.s.Open() {
			t.Errorf("%+v", st)
		}
	})
	t.Run("first contact with a young engine", func(t *testing.T) {
		b := newBench(t, nil)
		b.s.Connected()
		b.unended(nil)
		b.want(Degraded, CauseHistory)
		b.live(0, b.batch(stored(1, 0, 2)))
		b.want(Live, "")
	})
	t.Run("the next batch follows", func(t *testing.T) {
		b, batches := reconnected(t)
		b.unended(batches)
		b.want(Degraded, CauseUnverified)
		b.wantMatched(1, 2)
		b.live(1, b.batch(stored(1, 2, 1)))
		b.want(Live, "")
		b.wantMatched(1, 3)
	})
	t.Run("the next batch shows a gap", func(t *testing.T) {
		b, batches := reconnected(t)
		b.unended(batches)
		batches[3] = b.batch(stored(2, 0, 1))
		b.live(3, batches[3])
		b.unended(batches)
		b.want(Degraded, CauseGap+": 2 batches lost")
	})
	t.Run("a later replay ends", func(t *testing.T) {
		b, batches := reconnected(t)
		b.unended(batches)
		b.s.Settle()
		b.want(Degraded, CauseUnverified) // it has not come yet
		id, _, _ := b.s.Replay()
		b.s.Replayed(id, replayFrames(0, batches[0]))
		b.s.Replayed(id, replayFrames(EndSeq, nil))
		b.want(Live, "")
	})
	t.Run("a later replay brings more", func(t *testing.T) {
		b, batches := reconnected(t)
		b.unended(batches)
		batches[1] = b.batch(stored(1, 2, 1))
		b.s.Settle()
		b.unended(batches)
		b.want(Degraded, CauseUnverified)
		b.wantMatched(1, 3)
	})
}

// reconnected is a session that has one batch, was cut off and is back. What its
// engine has is in batches, by seq.
func reconnected(t *testing.T) (b *bench, batches map[uint64][]byte) {
	t.Helper()
	b = newBench(t, nil)
	first := b.batch(stored(1, 0, 2))
	b.s.Connected()
	b.settle(first)
	b.want(Live, "")
	b.s.Disconnected()
	b.s.Connected()
	return b, map[uint64][]byte{0: first}
}

// TestRelayIsAhead: a stream out of a log is not live before it is where its
// relay said that it is, whatever became of replays.
func TestRelayIsAhead(t *testing.T) {
	b := newBench(t, func(o *SessionOptions) {
		o.Stream = StreamSpec{Endpoint: "nats://pod-0.kv", ReplayEndpoint: "nats://pod-0.replay"}
	})
	const boot = "1"
	b.s.Began(boot)
	b.s.Told(2)
	b.s.Connected()
	b.want(Replaying, "")
	b.unended(nil)
	b.want(Degraded, CauseHistory)
	b.s.Logged(boot, 0, b.batch(stored(1, 0, 2)))
	b.want(Degraded, CauseUnverified)
	b.s.Told(2)
	b.s.Settle()
	b.want(Replaying, "")
	id, _, _ := b.s.Replay()
	b.s.Refilled(id, boot, 1, b.batch(stored(1, 2, 1)))
	b.s.RefillEnd(id)
	b.settle()
	b.want(Live, "")
	b.wantMatched(1, 3)
}
