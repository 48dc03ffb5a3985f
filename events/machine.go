package events

// This file is the recovery logic of a stream: a pure function of a state and
// an input, without sockets, clocks or goroutines, so that property tests can
// drive it through any schedule. Session feeds it and carries out its actions.
//
// Facts it rests on (vLLM's ZmqEventPublisher; SGLang's is a copy of it):
//
//   - seq starts at 0 with the publisher process and rises by 1 a batch.
//   - No boot id is on the wire. Payloads carry a float timestamp, so equal
//     CRCs at equal seqs mean the same process.
//   - The replay server sends what it has from the asked seq on, silently
//     starting later if its buffer does not reach back, may drop batches in
//     the middle, and may lose the end marker.
//   - A batch that was seen live is in the replay buffer until 10,000 others
//     have followed it.

// message is one batch as it came from a transport: undecoded.
type message struct {
	seq     uint64
	crc     uint32
	boot    string // names the process that published it; "" where the transport does not tell
	topic   []byte // only live messages have one
	payload []byte
}

// inputKind says what happened to a stream.
type inputKind uint8

const (
	inConnected    inputKind = iota // the transport is up (again)
	inDisconnected                  // the transport is down
	inLive                          // msg was published
	inReplayed                      // msg came from the current replay
	inReplayEnd                     // the current replay ended; complete: by its end marker
	inSettle                        // time to check that nothing fell between subscription and replay
	inResync                        // an operator asks to start over
	inExpire                        // what is held has been suspect for too long
	inBoot                          // a log says that the process msg.boot has begun (machine_log.go)
)

// input is one thing that happened.
type input struct {
	kind     inputKind
	msg      message
	complete bool
}

// actionKind says what the session must do.
type actionKind uint8

const (
	actApply  actionKind = iota // decode and apply msg
	actDrop                     // count msg under why and forget it
	actRetire                   // the incarnation ended: retire its holders; why says how it was noticed
	actReplay                   // cancel any replay and start one from seq
	actStop                     // cancel the replay
	actLost                     // n batches are lost for good: lose(n)
)

// action is one thing to do. Actions are carried out in order.
type action struct {
	kind actionKind
	msg  message
	why  string
	seq  uint64
	n    uint64
}

// Why batches are dropped and incarnations end; values are metric labels.
const (
	whyDuplicate  = "duplicate"
	whyLate       = "late"     // below the position, and never seen: its place was given up
	whyOverflow   = "overflow" // the buffer of waiting batches is full; a replay will bring it
	whyStale      = "stale"    // of an incarnation that has ended
	whyRestart    = "restart"  // a lower seq with another payload
	whyMasked     = "restart_masked"
	whyVanished   = "restart_empty" // the engine no longer has the last batch that we saw
	whyUnverified = "unverified"    // reconnected without a way to prove continuity
	whyResync     = "resync"
	whyExpired    = "expired" // suspect for too long
	whyBoot       = "boot"    // the log names another process
)

// maxStalls is how many replays in a row may bring no progress before the
// stream goes on without what is missing. Measured on vLLM: re-asking
// converges in 2-9 rounds, every one of which brings something.
const maxStalls = 3

// machine is the state of one stream. The zero value, with canReplay and
// maxPending set, is a stream that has not been contacted.
type machine struct {
	canReplay  bool // there is a replay endpoint
	maxPending int  // bytes of payload that may wait for a replay
	logState        // of a stream that comes out of a log

	connected bool
	met       bool // has been connected or has received something
	fresh     bool // no replay: the next live batch starts an incarnation
	syncing   bool // a replay runs; live batches wait in pending
	settling  bool // ... only to check: the state stays what it was
	open      bool // no replay told what follows the last batch that we have: see finish

	started     bool   // position is meaningful
	restored    bool   // ... from a snapshot, and nothing has proved it yet
	next        uint64 // seq of the next batch to apply
	recent      crcRing
	historyFrom uint64 // the first batch of the incarnation that we have, if not 0
	lost        uint64 // batches of the incarnation given up after that
	poison      uint64 // of these, batches that came and could not be decoded
	trusted     uint64 // nothing is missing from here on

	// the current replay
	from         uint64
	verify       bool   // the batch at from was seen before: it must come again, unchanged
	fromCRC      uint32 // its CRC
	verified     bool
	sameConn     bool      // no disconnect since the last applied batch
	got          int       // batches that this replay brought
	progress     int       // batches applied during this replay
	stalls       int       // replays in a row without progress
	low          uint64    // lowest seq that this replay brought, math.MaxUint64: none
	oldest       uint64    // ... that the stalled ones brought
	pending      []message // waiting, by rising seq
	pendingBytes int
	spilled      bool   // pending overflowed since the last drain
	live         bool   // a live batch has been applied, or has waited, during this replay
	liveTop      uint64 // highest seq seen live on this connection: what follows may be on its way

	out []action
}

// decide advances the machine by one input and returns what to do, in order.
// The slice is valid until the next call.
func (m *machine) decide(in input) []action {
	m.out = m.out[:0]
	switch in.kind {
	case inConnected:
		m.onConnected()
	case inDisconnected:
		m.onDisconnected()
	case inLive:
		m.onLive(in.msg)
	case inReplayed:
		m.onReplayed(in.msg)
	case inReplayEnd:
		m.onReplayEnd(in.complete)
	case inSettle:
		if m.connected && m.canReplay && (m.started || m.open || m.log) && !m.syncing {
			m.startReplay()
			m.settling = true
		}
	case inResync:
		m.newIncarnation(whyResync)
		m.fresh = !m.canReplay
		if m.canReplay && m.connected {
			m.startReplay()
		}
	case inBoot:
		m.enter(in.msg.boot)
	case inExpire:
		m.expire()
	}
	return m.out
}

func (m *machine) onConnected() {
	m.connected, m.down = true, false
	m.liveTop = 0
	reconnect := m.met
	m.met = true
	if m.log {
		m.restored = false // the process that the snapshot tells of goes on, whether or not the log still names it
	}
	if m.canReplay {
		m.fresh = false
		m.stalls = 0
		m.startReplay()
		return
	}
	// Without a replay nothing can prove that the process behind the address
	// is the one that we knew: data fails closed.
	m.fresh = true
	if m.restored {
		m.newIncarnation(whyUnverified)
	}
	if !reconnect {
		m.started = false
	}
}

func (m *machine) onDisconnected() {
	m.connected, m.down = false, true
	if m.log {
		return // what waits is of the process that it names, and the log does not bring it again
	}
	m.sameConn = false
	if !m.started {
		m.next, m.historyFrom = 0, 0 // see expire: where to begin was said of a process that may be gone
	}
	// What waits can be replayed if its process lives on, and must not be
	// applied if it does not.
	m.dropPending(whyStale)
	if m.syncing {
		m.stopReplay()
	}
}

func (m *machine) onLive(msg message) {
	if !m.enter(msg.boot) {
		m.drop(msg, whyStale)
		return
	}
	m.takeLive(msg)
	m.liveTop = max(m.liveTop, msg.seq)
}

func (m *machine) takeLive(msg message) {
	m.met = true
	switch {
	case m.fresh:
		m.fresh = false
		if m.started {
			m.newIncarnation(whyUnverified)
		}
		m.beginAt(msg)
	case m.syncing:
		if m.conflictsLive(msg) {
			m.restart(whyRestart, msg)
			return
		}
		if m.started && (m.sameConn || m.log) && msg.seq == m.next {
			m.applyMeanwhile(msg)
			return
		}
		m.holdLive(msg)
	case !m.started: // a batch before the news of the connection
		if m.canReplay && msg.seq > 0 {
			m.startReplay()
			m.holdLive(msg)
			return
		}
		m.beginAt(msg)
	case msg.seq == m.next:
		m.open = false
		m.apply(msg)
	case msg.seq > m.next:
		if m.canReplay {
			m.stalls = 0
			m.startReplay()
			m.holdLive(msg)
			return
		}
		m.giveUp(msg.seq)
		m.apply(msg)
	case m.conflictsLive(msg):
		m.restart(whyRestart, msg)
	default:
		m.dropOld(msg)
	}
}

// conflicts reports whether msg is proof that another process has taken the
// address: its seq was seen with other bytes.
func (m *machine) conflicts(msg message) bool {
	if m.log {
		return false // it names its process
	}
	if i, ok := m.findPending(msg.seq); ok {
		return m.pending[i].crc != msg.crc
	}
	if !m.started || msg.seq >= m.next {
		return false
	}
	crc, seen := m.recent.get(msg.seq)
	return seen && crc != msg.crc
}

// conflictsLive is conflicts for a live batch, where it is proof, too, that seq
// lies so far behind what came live before that no transport could have delayed
// it. Behind the position it may lie as far as a replay has run ahead.
func (m *machine) conflictsLive(msg message) bool {
	return m.conflicts(msg) || !m.log && m.started && msg.seq < m.next && msg.seq+m.recent.span() < m.liveTop
}

// dropOld drops a batch below the position that is no conflict.
func (m *machine) dropOld(msg message) {
	if _, seen := m.recent.get(msg.seq); seen {
		m.drop(msg, whyDuplicate)
		return
	}
	m.drop(msg, whyLate)
}

// restart begins the incarnation that msg belongs to.
func (m *machine) restart(why string, msg message) {
	m.newIncarnation(why)
	if msg.seq == 0 || !m.canReplay {
		m.beginAt(msg)
		return
	}
	m.startReplay()
	m.holdLive(msg)
}

// newIncarnation forgets the position and has the holders retired.
func (m *machine) newIncarnation(why string) {
	m.dropPending(whyStale)
	if m.syncing {
		m.stopReplay()
	}
	m.out = append(m.out, action{kind: actRetire, why: why})
	m.started, m.restored, m.open, m.next, m.trusted, m.stalls, m.liveTop = false, false, false, 0, 0, 0, 0
	m.cleared()
	m.recent.slots = nil
}

// beginAt starts an incarnation with msg as the first batch that we have.
func (m *machine) beginAt(msg message) {
	m.started, m.open = true, false
	m.next = msg.seq
	m.historyFrom = msg.seq
	m.apply(msg)
}

func (m *machine) apply(msg message) {
	m.recent.put(msg.seq, msg.crc)
	m.next = msg.seq + 1
	m.sameConn = m.connected
	m.progress++
	m.out = append(m.out, action{kind: actApply, msg: msg})
}

func (m *machine) drop(msg message, why string) {
	m.out = append(m.out, action{kind: actDrop, msg: msg, why: why})
}

// giveUp moves the position to seq without the batches before it.
func (m *machine) giveUp(seq uint64) {
	n := seq - m.next
	if n == 0 {
		return
	}
	if !m.started {
		m.started = true
		m.historyFrom = seq
	} else {
		m.out = append(m.out, action{kind: actLost, n: n})
		m.trusted = max(m.trusted, seq)
	}
	m.next = seq
}

// state summarises the machine for people. cause and n are set where it is
// Degraded by what is missing from the stream.
func (m *machine) state() (s State, cause string, n uint64) {
	switch {
	case !m.met && m.restored:
		return Degraded, CauseRestored, 0
	case !m.met:
		return Connecting, "", 0
	case m.log && !m.connected && !m.down:
		return Replaying, "", 0 // on the way through the log
	case !m.connected:
		return Disconnected, "", 0
	case m.syncing && (!m.settling || m.next < m.told):
		return Replaying, "", 0
	case m.fresh && m.started:
		return Degraded, CauseUnverified, 0
	case m.fresh:
		return Degraded, CauseHistory, 0
	case m.restored: // the replay that would prove it goes on behind settling, or the log is silent
		return Degraded, CauseRestored, 0
	case m.lost > m.poison:
		return Degraded, CauseGap, m.lost
	case m.lost > 0:
		return Degraded, CausePoison, m.lost
	case m.behind() && m.next > 0:
		return Degraded, CauseUnverified, 0
	case m.behind():
		return Degraded, CauseHistory, 0
	case m.historyFrom > 0:
		return Degraded, CauseHistory, m.historyFrom
	}
	return Live, "", 0
}

// cleared tells the machine that the engine dropped everything: what was
// missing no longer matters.
func (m *machine) cleared() { m.historyFrom, m.lost, m.poison = 0, 0, 0 }

// settled tells the machine that nothing of what was held before a loss is suspect
// any more. What was stored in what was lost is still not known.
func (m *machine) settled() {
	m.historyFrom, m.lost, m.poison = max(m.historyFrom, m.trusted), 0, 0
}

// lose tells the machine that an actLost was carried out. Only then does it
// count: an actApply before it may have cleared what was missing until there,
// and not what is missing after.
func (m *machine) lose(n uint64) { m.lost += n }

// poisoned tells the machine that the batch with seq, which it had applied, could
// not be decoded: to the stream that is a gap of one.
func (m *machine) poisoned(seq uint64) {
	m.lost++
	m.poison++
	m.doubt(seq)
}

// doubt tells the machine that not all of the batch with seq could be applied.
func (m *machine) doubt(seq uint64) { m.trusted = max(m.trusted, seq+1) }
