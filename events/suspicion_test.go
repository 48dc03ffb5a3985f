package events

import (
	"testing"
	"time"

	"github.com/kvindex/kvindex/indexer"
)

// TestSuspectIsDroppedInTheEnd: after a loss that nothing repairs, what was held
// goes on to answer for the time that it may, and then what the engine can
// replay takes its place.
func TestSuspectIsDroppedInTheEnd(t *testing.T) {
	for _, replay := range []bool{true, false} {
		b := newBench(t, func(o *SessionOptions) {
			o.SuspectTTL = time.Minute
			if !replay {
				o.Stream.ReplayEndpoint = ""
			}
		})
		now := time.Now()
		b.s.Connected()
		first, late, later := b.batch(stored(1, 0, 2)), b.batch(stored(2, 0, 2)), b.batch(stored(3, 0, 2))
		if replay {
			b.settle(first)
		} else {
			b.live(0, first)
		}
		b.want(Live, "")
		b.s.Tick(now)
		b.live(2, late)
		if replay { // the engine has nothing of it any more
			for range 10 {
				if id, _, ok := b.s.Replay(); ok {
					b.s.ReplayTimeout(id)
				}
			}
		}
		b.want(Degraded, CauseGap)
		b.s.Tick(now.Add(time.Second))
		if st := b.s.Status(); st.Suspect != 4 {
			t.Errorf("%d blocks are suspect, want 4", st.Suspect)
		}
		b.s.Tick(now.Add(59 * time.Second))
		b.wantMatched(1, 2)
		b.s.Tick(now.Add(62 * time.Second))
		b.wantMatched(1, 0)
		b.wantMatched(2, 0)
		if replay {
			id, from, ok := b.s.Replay()
			if !ok || from != 2 { // what is before the loss has just been dropped
				t.Fatalf("replay from %d, %v", from, ok)
			}
			b.s.Replayed(id, [][]byte{nil, nil, {0, 0, 0, 0, 0, 0, 0, 2}, late})
			for range 10 {
				if id, _, ok := b.s.Replay(); ok {
					b.s.ReplayTimeout(id)
				}
			}
			b.wantMatched(2, 2)
		}
		b.live(3, later)
		b.want(Degraded, CauseHistory)
		b.wantMatched(3, 2)
		b.s.Tick(now.Add(time.Hour))
		b.s.Tick(now.Add(2 * time.Hour)) // what is known is true: nothing is suspect
		b.wantMatched(3, 2)
		if st := b.s.Status(); st.Suspect != 0 || st.Counters.Restarts[whyExpired] != 1 {
			t.Errorf("%d suspect, %v", st.Suspect, st.Counters.Restarts)
		}
	}
}

// TestStaleBlocksStayDropped: what was dropped because a removal may have been
// lost does not come back with the replay of what the engine stored before.
func TestStaleBlocksStayDropped(t *testing.T) {
	poison := []byte{0xc1}
	for _, what := range []string{"gap", "poison"} {
		b := newBench(t, func(o *SessionOptions) { o.SuspectTTL = time.Minute })
		now := time.Now()
		b.s.Connected()
		first, late := b.batch(stored(1, 0, 2)), b.batch(stored(2, 0, 2))
		b.settle(first)
		if what == "poison" {
			b.live(1, poison)
		}
		b.live(2, late)
		giveUp := func() {
			for range 20 {
				if id, from, ok := b.s.Replay(); ok {
					for seq, p := range map[uint64][]byte{0: first, 2: late} {
						if seq >= from {
							b.s.Replayed(id, [][]byte{nil, nil, {0, 0, 0, 0, 0, 0, 0, byte(seq)}, p})
						}
					}
					b.s.ReplayTimeout(id)
				}
			}
		}
		giveUp()
		b.want(Degraded, what)
		b.wantMatched(1, 2)
		b.s.Tick(now)
		b.s.Tick(now.Add(2 * time.Minute))
		giveUp()
		b.want(Degraded, CauseHistory)
		b.wantMatched(1, 0)
		b.wantMatched(2, 2)
		b.s.Tick(now.Add(time.Hour))
		b.s.Tick(now.Add(2 * time.Hour))
		b.wantMatched(2, 2)
	}
}

// TestDisconnectedIsNotBelievedForEver: a connection that is down for longer
// than the grace makes what is held suspect.
func TestDisconnectedIsNotBelievedForEver(t *testing.T) {
	b := newBench(t, func(o *SessionOptions) { o.SuspectTTL, o.Grace = time.Minute, 10*time.Second })
	now := time.Now()
	b.s.Connected()
	first := b.batch(stored(1, 0, 2))
	b.settle(first)
	b.s.Disconnected()
	suspect := func(after time.Duration, want int) {
		t.Helper()
		b.s.Tick(now.Add(after))
		if st := b.s.Status(); st.Suspect != want {
			t.Errorf("%v: %d blocks are suspect, want %d", after, st.Suspect, want)
		}
	}
	suspect(0, 0)
	suspect(9*time.Second, 0)
	suspect(11*time.Second, 2)
	b.s.Connected()
	b.settle(first)
	b.want(Live, "")
	suspect(20*time.Second, 0)
	b.s.Disconnected()
	suspect(30*time.Second, 0)
	suspect(41*time.Second, 2)
	b.wantMatched(1, 2)
	b.s.Tick(now.Add(102 * time.Second))
	b.wantMatched(1, 0)
	b.want(Disconnected, "")
	b.s.Connected()
	b.settle(first)
	b.want(Live, "")
	b.wantMatched(1, 2)
}

// crashed is what a new process has of b's stream: the index restored from a
// snapshot and a session that goes on from there.
func (b *bench) crashed(change func(*SessionOptions)) *bench {
	b.t.Helper()
	now := time.Now()
	b.s.mu.Lock()
	st, ok := b.s.streamState(now)
	b.s.mu.Unlock()
	if !ok {
		b.t.Fatal("there is nothing to go on from")
	}
	snapshot := b.index.AppendSnapshot(nil)
	index, err := indexer.New(indexer.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	read, err := index.ReadSnapshot(snapshot)
	if err != nil {
		b.t.Fatal(err)
	}
	read.Use()
	holders := map[int]*indexer.Holder{}
	for _, r := range read.Holders {
		holders[r.Stream.Rank] = r.Holder
	}
	o := b.s.opts
	o.Index, o.Restore = index, &Restore{State: st, Holders: holders}
	if change != nil {
		change(&o)
	}
	n := &bench{t: b.t, index: index, s: NewSession(o), ts: b.ts}
	b.t.Cleanup(func() {
		n.s.Close()
		index.Close()
	})
	return n
}

// TestRestoredStream: it answers, marked; contact proves it and brings what was
// missed, or drops it.
func TestRestoredStream(t *testing.T) {
	begin := func() (b *bench, batches [][]byte) {
		b = newBench(t, nil)
		b.s.Connected()
		batches = [][]byte{b.batch(stored(1, 0, 2)), b.batch(stored(1, 0, 2)), b.batch(stored(2, 0, 2))}
		b.settle(batches...)
		b.want(Live, "")
		return b, batches
	}
	t.Run("same engine", func(t *testing.T) {
		b, batches := begin()
		n := b.crashed(nil)
		n.want(Degraded, CauseRestored)
		n.wantMatched(1, 2)
		if st := n.s.Status(); st.Suspect != 4 || st.LastSeq != 2 {
			t.Errorf("%d suspect, seq %d", st.Suspect, st.LastSeq)
		}
		n.s.Connected()
		n.settle(append(batches, b.batch(removed(2, 1), removed(1, 1)))...)
		n.want(Live, "")
		n.wantMatched(1, 2) // of two copies one went
		n.wantMatched(2, 1)
		n.s.Tick(time.Now())
		if st := n.s.Status(); st.Suspect != 0 {
			t.Errorf("%d suspect", st.Suspect)
		}
	})
	t.Run("another process", func(t *testing.T) {
		b, _ := begin()
		n := b.crashed(nil)
		n.s.Connected()
		n.settle(b.batch(stored(3, 0, 1)), b.batch(stored(4, 0, 1)), b.batch(stored(5, 0, 1)), b.batch(stored(6, 0, 1)))
		n.want(Live, "")
		n.wantMatched(1, 0)
		n.wantMatched(6, 1)
	})
	t.Run("no replay", func(t *testing.T) {
		b, _ := begin()
		n := b.crashed(func(o *SessionOptions) { o.Stream.ReplayEndpoint = "" })
		n.wantMatched(1, 2)
		n.s.Connected()
		n.wantMatched(1, 0)
	})
	t.Run("never again", func(t *testing.T) {
		b, _ := begin()
		n := b.crashed(func(o *SessionOptions) { o.SuspectTTL = time.Minute })
		n.s.Tick(time.Now().Add(59 * time.Second))
		n.wantMatched(1, 2)
		n.s.Tick(time.Now().Add(61 * time.Second))
		n.wantMatched(1, 0)
	})
}
