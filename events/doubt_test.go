package events

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/kvindex/kvindex/indexer"
)

// sure returns how many blocks of a prompt pod-0 holds certainly.
func (b *bench) sure(prompt int) int {
	best := 0
	for _, t := range b.index.Tables("m") {
		var r indexer.Result
		t.MatchTokens(promptTokens(prompt, 20), 0, 0, &r)
		for _, s := range r.Streams {
			best = max(best, s.Sure[indexer.GPU])
		}
	}
	return best
}

// wantSure checks how much of a prompt matches, and how much of that is certain.
func (b *bench) wantSure(prompt, matched, sure int) {
	b.t.Helper()
	b.wantMatched(prompt, matched)
	if got := b.sure(prompt); got != sure {
		b.t.Errorf("prompt %d: %d blocks are certain, want %d", prompt, got, sure)
	}
}

// giveUp answers replays with what the engine has, by seq, until none is wanted.
func (b *bench) giveUp(has map[uint64][]byte) {
	b.t.Helper()
	for range 30 {
		id, from, ok := b.s.Replay()
		if !ok {
			return
		}
		for seq := from; seq < from+20; seq++ {
			if p, some := has[seq]; some {
				b.s.Replayed(id, [][]byte{nil, nil, binary.BigEndian.AppendUint64(nil, seq), p})
			}
		}
		b.s.ReplayTimeout(id)
	}
	b.t.Fatal("replays do not end")
}

// TestLossSplitsWhatIsHeld: after a loss that nothing repairs, what was held goes
// on to answer as suspect. What the engine uses again is certain, what it does not
// is dropped in the end; what was stored after the loss is certain all the time.
func TestLossSplitsWhatIsHeld(t *testing.T) {
	for _, how := range []string{"gap", "gap, no replay", "poison", "bad event"} {
		t.Run(how, func(t *testing.T) {
			b := newBench(t, func(o *SessionOptions) {
				o.SuspectTTL = time.Minute
				if how == "gap, no replay" {
					o.Stream.ReplayEndpoint = ""
				}
			})
			now := time.Now()
			b.s.Connected()
			has := map[uint64][]byte{0: b.batch(stored(1, 0, 4), stored(2, 0, 4), stored(4, 0, 2))}
			if how == "gap, no replay" {
				b.live(0, has[0])
			} else {
				b.settle(has[0])
			}
			b.want(Live, "")
			has[2] = b.batch(stored(3, 0, 2))
			cause := CauseGap
			switch how {
			case "poison":
				b.live(1, []byte{0xc1})
				cause = CausePoison
			case "bad event":
				b.live(1, b.batch(map[string]any{"type": "BlockRemoved", "block_hashes": "none"}))
				cause = CauseEvents
			}
			b.live(2, has[2])
			b.giveUp(has)
			b.want(Degraded, cause)
			b.s.Tick(now.Add(time.Second))
			if st := b.s.Status(); st.Suspect != 10 {
				t.Errorf("%d blocks are suspect, want 10", st.Suspect)
			}
			b.wantSure(1, 4, 0)
			b.wantSure(3, 2, 2)
			b.live(3, b.batch(stored(1, 4, 1), removed(4, 0))) // of prompt 1 the engine uses all
			b.wantSure(1, 5, 5)
			b.wantSure(2, 4, 0)
			b.wantSure(4, 0, 0)
			b.want(Degraded, cause)
			b.s.Tick(now.Add(59 * time.Second))
			b.wantSure(2, 4, 0)
			b.s.Tick(now.Add(62 * time.Second))
			b.wantSure(1, 5, 5)
			b.wantSure(2, 0, 0)
			b.wantSure(3, 2, 2)
			b.want(Degraded, CauseHistory+": known from seq 2 on")
			b.s.Tick(now.Add(time.Hour)) // what is known is true: nothing is suspect
			b.wantSure(1, 5, 5)
			if st := b.s.Status(); st.Suspect != 0 || len(st.Counters.Restarts) != 0 {
				t.Errorf("%d suspect, %v", st.Suspect, st.Counters.Restarts)
			}
			if _, _, ok := b.s.Replay(); ok {
				t.Error("a replay is wanted: it would bring back what was dropped")
			}
			b.live(4, b.batch(cleared()))
			b.want(Live, "")
		})
	}
}

// TestNothingSuspectIsLeft: when the engine has used again all that was held, or
// removed it, the loss is settled before the time is over.
func TestNothingSuspectIsLeft(t *testing.T) {
	b := newBench(t, func(o *SessionOptions) { o.Stream.ReplayEndpoint = "" })
	b.s.Connected()
	b.live(0, b.batch(stored(1, 0, 2), stored(2, 0, 1)))
	b.live(2, b.batch(stored(1, 2, 1)))
	b.want(Degraded, CauseGap)
	b.live(3, b.batch(removed(2, 0)))
	b.want(Degraded, CauseHistory)
	b.wantSure(1, 3, 3)
}

// TestLossesInARow: what is held is not set apart anew for each of them; until it
// is, all counts as suspect.
func TestLossesInARow(t *testing.T) {
	b := newBench(t, func(o *SessionOptions) {
		o.SuspectTTL = 8 * time.Hour
		o.Stream.ReplayEndpoint = ""
	})
	now := time.Now()
	b.s.Connected()
	b.live(0, b.batch(stored(1, 0, 2)))
	b.live(2, b.batch(stored(2, 0, 2)))
	b.wantSure(1, 2, 0)
	b.wantSure(2, 2, 2)
	b.live(4, b.batch(stored(3, 0, 2)))
	b.live(6, b.batch(stored(4, 0, 2)))
	b.wantSure(2, 2, 0)
	b.wantSure(4, 2, 0)
	if st := b.s.Status(); st.Suspect != 8 {
		t.Errorf("%d blocks are suspect, want 8", st.Suspect)
	}
	b.s.Tick(now.Add(2 * time.Hour)) // long enough after the first
	b.wantSure(4, 2, 0)
	b.live(7, b.batch(stored(5, 0, 2), stored(4, 2, 1)))
	b.wantSure(5, 2, 2)
	b.wantSure(4, 3, 3)
	b.s.Tick(now.Add(9 * time.Hour))
	for prompt, want := range map[int]int{1: 0, 2: 0, 3: 0, 4: 3, 5: 2} {
		b.wantSure(prompt, want, want)
	}
	b.want(Degraded, CauseHistory)
}

// TestRefusedStoresMakeNothingSuspect: a store that cannot be placed is missing,
// which makes nothing wrong that was held.
func TestRefusedStoresMakeNothingSuspect(t *testing.T) {
	b := newBench(t, nil)
	b.s.Connected()
	b.settle()
	b.live(0, b.batch(stored(1, 0, 2)))
	bad := stored(2, 0, 2)
	bad["token_ids"] = []int{1, 2, 3}
	b.live(1, b.batch(bad))
	b.want(Degraded, CauseEvents)
	b.wantSure(1, 2, 2)
	b.s.Tick(time.Now())
	b.s.Tick(time.Now().Add(time.Hour))
	b.wantSure(1, 2, 2)
	b.want(Degraded, CauseEvents)
}

// TestDoubtIsRestored: what was suspect when a snapshot was taken is so after it.
func TestDoubtIsRestored(t *testing.T) {
	b := newBench(t, nil)
	b.s.Connected()
	poison := []byte{0xc1}
	all := [][]byte{b.batch(stored(1, 0, 2), stored(2, 0, 2)), poison, b.batch(stored(1, 2, 1))}
	b.settle(all...)
	b.wantSure(1, 3, 3)
	b.wantSure(2, 2, 0)
	n := b.crashed(nil)
	n.want(Degraded, CauseRestored)
	n.wantSure(1, 3, 0) // nothing is certain before the engine proves to be the same
	n.s.Connected()
	n.settle(all...)
	n.want(Degraded, CausePoison)
	n.wantSure(1, 3, 3)
	n.wantSure(2, 2, 0)
	n.s.Tick(time.Now().Add(DefaultSuspectTTL + time.Minute))
	n.wantSure(1, 3, 3)
	n.wantSure(2, 0, 0)
	n.want(Degraded, CauseHistory)
}
