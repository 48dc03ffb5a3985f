package events

import (
	"math"
	"sort"
)

// startReplay asks for everything from the last applied batch on, that batch
// included where there is one: it must come back unchanged, else the process
// behind the address is another one.
func (m *machine) startReplay() {
	m.syncing, m.settling = true, false
	m.verified, m.got, m.progress, m.low = false, 0, 0, math.MaxUint64
	m.live = m.live && len(m.pending) > 0
	m.verify = m.started && m.next > 0 && !m.log
	m.from = 0
	if m.log || !m.started {
		m.from = m.next
	}
	if m.verify {
		m.from = m.next - 1
		// A batch that was given up is in no buffer: nothing to compare.
		if m.fromCRC, m.verify = m.recent.get(m.from); !m.verify {
			m.from = m.next
		}
	}
	m.out = append(m.out, action{kind: actReplay, seq: m.from})
}

func (m *machine) stopReplay() {
	m.syncing, m.settling = false, false
	m.out = append(m.out, action{kind: actStop})
}

func (m *machine) onReplayed(msg message) {
	if !m.syncing || m.log && msg.boot != m.boot {
		m.drop(msg, whyStale)
		return
	}
	m.got++
	m.low = min(m.low, msg.seq)
	if m.verify && msg.seq < m.from {
		m.drop(msg, whyDuplicate)
		return
	}
	if m.verify && !m.verified {
		if msg.seq != m.from {
			// The server began later, or dropped the first one. Without it
			// nothing is proved yet: keep the rest aside.
			m.holdOrConflict(msg)
			return
		}
		if msg.crc != m.fromCRC {
			m.newIncarnation(whyMasked)
			m.startReplay()
			return
		}
		m.verified, m.restored = true, false
		m.drop(msg, whyDuplicate)
		m.drain()
		m.finishIfCaughtUp()
		return
	}
	switch {
	case msg.seq == m.next:
		m.started = true
		m.apply(msg)
		m.drain()
		m.finishIfCaughtUp()
	case msg.seq > m.next:
		m.holdOrConflict(msg)
	case m.conflicts(msg):
		m.newIncarnation(whyMasked)
		m.startReplay()
	default:
		m.dropOld(msg)
	}
}

// holdOrConflict keeps msg for later, unless another payload waits under its
// seq: then what waits is of two processes, and only a new replay can tell
// which is alive.
func (m *machine) holdOrConflict(msg message) {
	if m.conflicts(msg) {
		m.newIncarnation(whyMasked)
		m.startReplay()
		return
	}
	m.hold(msg)
}

func (m *machine) onReplayEnd(complete bool) {
	if !m.syncing {
		return
	}
	switch {
	case m.progress > 0:
		m.stalls = 0
	case m.stalls == 0:
		m.stalls, m.oldest = 1, m.low
	default:
		m.stalls, m.oldest = m.stalls+1, min(m.oldest, m.low)
	}
	if m.verify && !m.verified {
		m.endUnverified(complete)
		return
	}
	m.drain()
	switch {
	case len(m.pending) > 0:
		if m.stalls < maxStalls {
			m.startReplay()
			return
		}
		m.giveUpMissing()
		m.stalls = 0
		if len(m.pending) > 0 || m.spilled {
			m.startReplay()
			return
		}
		m.finish(m.live)
	case m.spilled:
		m.spilled = false
		m.startReplay()
	case complete && m.progress == 0:
		// The end marker alone proves nothing; a round that brings nothing new
		// does.
		m.started = true
		m.finish(true)
	case m.stalls >= maxStalls:
		m.finish(m.live)
	default:
		settling := m.settling
		m.startReplay()
		m.settling = settling
	}
}

// endUnverified handles a replay that did not bring the batch that we know.
func (m *machine) endUnverified(complete bool) {
	empty := complete && m.got == 0
	switch {
	case m.stalls < maxStalls && (!empty || m.stalls < 2):
		m.startReplay()
	case empty:
		// The engine answers, and has nothing from that seq on: it began anew.
		m.newIncarnation(whyVanished)
		m.startReplay()
	case m.sameConn:
		// The connection never broke, so it is the same process, whose buffer
		// no longer reaches back (or whose replay is not answered).
		m.giveUpMissing()
		m.stalls = 0
		if len(m.pending) > 0 {
			m.startReplay()
			return
		}
		m.finish(m.live)
	default:
		m.newIncarnationKeepingPending()
	}
}

// giveUpMissing goes on without the batches that replays did not bring: those
// before the first one that waits, and also all that lie before the oldest
// that the server still has, or everywhere if it sent nothing at all. Each of
// these gaps would otherwise take a few replays of its own, of everything.
// What follows the last live batch is no gap: it may be on its way.
func (m *machine) giveUpMissing() {
	for first := true; len(m.pending) > 0 && (first || m.pending[0].seq <= min(m.oldest, m.liveTop)); first = false {
		m.giveUp(m.pending[0].seq)
		m.drain()
	}
}

// newIncarnationKeepingPending starts over with what the replay brought: the
// engine could not be proved to be the one that we knew.
func (m *machine) newIncarnationKeepingPending() {
	kept, bytes := m.pending, m.pendingBytes
	m.pending, m.pendingBytes = nil, 0
	m.newIncarnation(whyUnverified)
	m.pending, m.pendingBytes = kept, bytes
	if len(m.pending) == 0 {
		// Not even that: the replay service is not answering. The next live
		// batch tells where we are.
		m.fresh = true
		return
	}
	m.startReplay()
}

// finish ends the replay: what comes live is applied at once from here on. It is
// told whether there is nothing between the last batch that we have and the next
// one that comes: a replay ended without anything new, or has met the live
// batches. Otherwise that stays open until the next batch shows it, or another
// replay.
func (m *machine) finish(met bool) {
	m.syncing, m.settling, m.live = false, false, false
	m.open = !met && !m.log // of a log the relay says where it ends: told
	m.stalls = 0
	m.out = append(m.out, action{kind: actStop})
}

// finishIfCaughtUp ends the replay when it has met the live batches: they are
// the proof that nothing is missing, which an end marker is not.
func (m *machine) finishIfCaughtUp() {
	if m.live && len(m.pending) == 0 && !m.spilled {
		m.finish(true)
	}
}

// holdLive keeps a live batch until the batches before it are there.
func (m *machine) holdLive(msg message) {
	m.live = true
	m.hold(msg)
}

// applyMeanwhile applies a live batch that follows the last applied one on the
// same connection: no replay could tell more about what is between them. What
// waits is of the same process only if the replay has shown it.
func (m *machine) applyMeanwhile(msg message) {
	m.live = true
	m.apply(msg)
	if !m.verify || m.verified {
		m.drain()
	}
	m.finishIfCaughtUp()
}

// hold keeps msg until the batches before it are there.
func (m *machine) hold(msg message) {
	if m.started && msg.seq < m.next {
		m.dropOld(msg)
		return
	}
	i, dup := m.findPending(msg.seq)
	if dup {
		m.drop(msg, whyDuplicate)
		return
	}
	if m.pendingBytes+len(msg.payload) > m.maxPending {
		m.spilled = true
		m.drop(msg, whyOverflow)
		return
	}
	m.pending = append(m.pending, message{})
	copy(m.pending[i+1:], m.pending[i:])
	m.pending[i] = msg
	m.pendingBytes += len(msg.payload)
}

// drain applies what has become contiguous.
func (m *machine) drain() {
	n := 0
	for n < len(m.pending) {
		msg := m.pending[n]
		if msg.seq > m.next {
			break
		}
		n++
		m.pendingBytes -= len(msg.payload)
		if msg.seq < m.next {
			m.dropOld(msg)
			continue
		}
		m.started = true
		m.apply(msg)
	}
	if n > 0 {
		rest := copy(m.pending, m.pending[n:])
		clear(m.pending[rest:]) // let go of the payloads
		m.pending = m.pending[:rest]
	}
}

func (m *machine) dropPending(why string) {
	for _, msg := range m.pending {
		m.drop(msg, why)
	}
	m.pending, m.pendingBytes, m.spilled, m.live = nil, 0, false, false
}

// findPending returns where seq waits, or would.
func (m *machine) findPending(seq uint64) (int, bool) {
	i := sort.Search(len(m.pending), func(i int) bool { return m.pending[i].seq >= seq })
	return i, i < len(m.pending) && m.pending[i].seq == seq
}

// ringSize is how many batches back a duplicate is told from a restart.
const ringSize = 1024

// crcRing remembers the CRCs of the last batches applied. The zero value is
// empty.
type crcRing struct {
	size  int       // 0 is ringSize
	slots []crcSlot // grows to size: idle streams stay small
}

type crcSlot struct {
	seq uint64 // +1, so that the zero slot is empty
	crc uint32
}

// span is how many batches r remembers.
func (r *crcRing) span() uint64 {
	if r.size == 0 {
		return ringSize
	}
	return uint64(r.size)
}

func (r *crcRing) put(seq uint64, crc uint32) {
	i := int(seq % r.span())
	for len(r.slots) <= i {
		r.slots = append(r.slots, crcSlot{})
	}
	r.slots[i] = crcSlot{seq + 1, crc}
}

func (r *crcRing) get(seq uint64) (uint32, bool) {
	i := int(seq % r.span())
	if i >= len(r.slots) || r.slots[i].seq != seq+1 {
		return 0, false
	}
	return r.slots[i].crc, true
}
