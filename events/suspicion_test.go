package events

import (
	"testing"
	"time"

	"github.com/kvindex/kvindex/indexer"
)

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

// saved is a snapshot of a stream.
type saved struct {
	state StreamState
	index []byte
}

// save takes a snapshot, nil if there is nothing to go on from.
func (b *bench) save() *saved {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	st, ok := b.s.streamState(time.Now())
	if !ok {
		return nil
	}
	return &saved{st, b.index.AppendSnapshot(nil)}
}

// crashed is what a new process has of b's stream: the index restored from a
// snapshot and a session that goes on from there.
func (b *bench) crashed(change func(*SessionOptions)) *bench {
	b.t.Helper()
	from := b.save()
	if from == nil {
		b.t.Fatal("there is nothing to go on from")
	}
	return b.restored(from, change)
}

func (b *bench) restored(from *saved, change func(*SessionOptions)) *bench {
	b.t.Helper()
	index, err := indexer.New(indexer.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	read, err := index.ReadSnapshot(from.index)
	if err != nil {
		b.t.Fatal(err)
	}
	read.Use()
	holders := map[int]*indexer.Holder{}
	for _, r := range read.Holders {
		holders[r.Stream.Rank] = r.Holder
	}
	o := b.s.opts
	o.Index, o.Restore = index, &Restore{State: from.state, Holders: holders}
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
