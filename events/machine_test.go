package events

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// simEngine is the truth that the machine is held against: a publisher
// process, its replay buffer and a subscriber's connection to it.
type simEngine struct {
	process  int // rises with every restart
	batches  []message
	unsent   map[uint64]bool // took a seq, but is in no buffer: lost for good
	bufferTo int             // how many of the last batches a replay can bring
}

func (e *simEngine) publish() message { return e.publishBatch(1) }

// publishBatch publishes a batch of 1 or 2 bytes, which says that everything was
// dropped.
func (e *simEngine) publishBatch(size int) message {
	seq := uint64(len(e.batches))
	msg := message{seq: seq, crc: uint32(e.process)<<20 | uint32(seq), payload: make([]byte, size)}
	e.batches = append(e.batches, msg)
	return msg
}

func (e *simEngine) restart() {
	e.process++
	e.batches, e.unsent = nil, map[uint64]bool{}
}

// replay is what the server sends for a start, before losses on the way.
func (e *simEngine) replay(from uint64) []message {
	oldest := uint64(0)
	if n := len(e.batches); n > e.bufferTo {
		oldest = uint64(n - e.bufferTo)
	}
	var out []message
	for _, b := range e.batches {
		if b.seq >= max(from, oldest) && !e.unsent[b.seq] {
			out = append(out, b)
		}
	}
	return out
}

// simStream runs a machine against a simEngine and checks every action.
type simStream struct {
	t       *rapid.T
	e       *simEngine
	m       *machine
	process int    // of the batches applied in this incarnation, -1 before the first
	applied []bool // by seq, of this incarnation
	clear   int    // the last of these that dropped everything
	replay  bool   // a replay is wanted
	from    uint64
	saved   *simSnapshot
	since   int // batches that were published before the connection
	owed    int // ... of which the engine's replays tell
}

// simSnapshot is what a snapshot keeps of a stream.
type simSnapshot struct {
	process                        int
	applied                        []bool
	clear                          int
	seq, historyFrom, lost, poison uint64
	crc                            uint32
}

// save takes a snapshot, if the stream has something to go on from.
func (s *simStream) save() {
	m := s.m
	if !m.started || m.next == 0 || s.process < 0 {
		return
	}
	if crc, ok := m.recent.get(m.next - 1); ok {
		s.saved = &simSnapshot{s.process, slices.Clone(s.applied), s.clear, m.next - 1, m.historyFrom, m.lost, m.poison, crc}
	}
}

// crash ends kvindex and starts it again from the last snapshot, if there is
// one.
func (s *simStream) crash() {
	s.m = &machine{canReplay: s.m.canReplay, maxPending: s.m.maxPending, recent: crcRing{size: s.m.recent.size}}
	s.process, s.applied, s.clear, s.replay = -1, nil, 0, false
	if v := s.saved; v != nil {
		s.m.resume(v.seq, v.crc)
		s.m.restored, s.m.historyFrom, s.m.lost, s.m.poison = true, v.historyFrom, v.lost, v.poison
		s.process, s.applied, s.clear = v.process, slices.Clone(v.applied), v.clear
	}
}

func (s *simStream) feed(in input) {
	if in.kind == inConnected {
		s.since, s.owed = len(s.e.batches), len(s.e.batches)
	}
	for _, a := range s.m.decide(in) {
		switch a.kind {
		case actRetire:
			if a.why == whyMasked && s.process == s.e.process {
				s.t.Fatalf("took process %d for a restarted one", s.process)
			}
			s.process, s.applied, s.clear = -1, nil, 0
		case actReplay:
			s.replay, s.from = true, a.seq
		case actStop:
			s.replay = false
		case actApply:
			p := int(a.msg.crc >> 20)
			if s.process == -1 {
				s.process = p
			}
			if p != s.process {
				s.t.Fatalf("batch %d of process %d applied to the incarnation of process %d", a.msg.seq, p, s.process)
			}
			if int(a.msg.seq) < len(s.applied) {
				s.t.Fatalf("batch %d applied after batch %d", a.msg.seq, len(s.applied)-1)
			}
			for len(s.applied) < int(a.msg.seq) {
				s.applied = append(s.applied, false)
			}
			s.applied = append(s.applied, true)
			if len(a.msg.payload) == 2 {
				s.clear = int(a.msg.seq)
				s.m.cleared()
			}
		case actLost:
			s.m.lose(a.n)
		}
	}
	s.checkWatermark()
	s.checkLive()
}

// checkLive: a stream that calls itself live has what was published before its
// connection. What gets lost after that shows with the next batch.
func (s *simStream) checkLive() {
	if st, _, _ := s.m.state(); st != Live || s.m.settling {
		return
	}
	for i := s.clear; i < s.owed; i++ {
		if !s.e.unsent[uint64(i)] && (i >= len(s.applied) || !s.applied[i]) {
			s.t.Fatalf("live without batch %d, published before the connection", i)
		}
	}
}

func (s *simStream) checkWatermark() {
	if s.m.started && len(s.applied) > 0 && s.m.next != uint64(len(s.applied)) {
		s.t.Fatalf("next is %d after %d batches", s.m.next, len(s.applied))
	}
	bytes := 0
	for i, p := range s.m.pending {
		bytes += len(p.payload)
		if i > 0 && s.m.pending[i-1].seq >= p.seq {
			s.t.Fatalf("pending is not in order")
		}
	}
	if bytes != s.m.pendingBytes || bytes > s.m.maxPending {
		s.t.Fatalf("pending holds %d bytes, counted %d, limit %d", bytes, s.m.pendingBytes, s.m.maxPending)
	}
}

// serve carries out the wanted replay; keep says which batches arrive and
// whether the end marker does. interrupt runs between batches.
func (s *simStream) serve(keep func(i, n int) bool, end bool, interrupt func()) {
	s.replay = false
	list := s.e.replay(s.from)
	for i, b := range list {
		if keep(i, len(list)) {
			s.feed(input{kind: inReplayed, msg: b})
			if s.replay { // superseded by a new one
				return
			}
		} else if end {
			s.owed = 0 // no machine can tell: the end marker says that this was all
		}
		interrupt()
		if s.replay {
			return
		}
	}
	s.feed(input{kind: inReplayEnd, complete: end})
}

// quiesce lets the stream settle without further faults: what was published is
// delivered, connections are up, replays are honest.
func (s *simStream) quiesce() {
	if !s.m.connected {
		s.feed(input{kind: inConnected})
	}
	s.drainReplays()
	for range 2 { // whatever was dropped at the tail shows with the next batches
		s.feed(input{kind: inLive, msg: s.e.publish()})
		s.drainReplays()
	}
	s.feed(input{kind: inSettle})
	s.drainReplays()
}

func (s *simStream) drainReplays() {
	for i := 0; s.replay; i++ {
		if i > 200 {
			s.t.Fatalf("200 honest replays did not end it: %+v", s.m)
		}
		s.serve(func(int, int) bool { return true }, true, func() {})
	}
}

// verify compares what was applied with the engine's truth. What the engine has
// dropped since does not count.
func (s *simStream) verify() {
	if s.process != s.e.process {
		s.t.Fatalf("holds process %d, the engine is process %d", s.process, s.e.process)
	}
	missing := ""
	for i := s.clear; i < len(s.e.batches); i++ {
		if i >= len(s.applied) || !s.applied[i] {
			missing += fmt.Sprint(" ", i)
		}
	}
	state, cause, _ := s.m.state()
	if missing != "" && state == Live {
		s.t.Fatalf("live without batches%s", missing)
	}
	if missing == "" && state != Live {
		s.t.Fatalf("has everything, but is %v (%s)", state, cause)
	}
}

func newSim(t *rapid.T, canReplay bool) *simStream {
	e := &simEngine{unsent: map[uint64]bool{}, bufferTo: rapid.SampledFrom([]int{5, 40, 10000}).Draw(t, "buffer")}
	return &simStream{t: t, e: e, process: -1, m: &machine{
		canReplay:  canReplay,
		maxPending: rapid.SampledFrom([]int{3, 10, 1000}).Draw(t, "maxPending"),
		recent:     crcRing{size: rapid.SampledFrom([]int{3, 10, ringSize}).Draw(t, "ring")},
	}}
}

func TestMachineAgainstEngine(t *testing.T) {
	t.Run("replay", func(t *testing.T) { rapid.Check(t, func(t *rapid.T) { runSchedule(t, true) }) })
	t.Run("no replay", func(t *testing.T) { rapid.Check(t, func(t *rapid.T) { runSchedule(t, false) }) })
}

func runSchedule(t *rapid.T, canReplay bool) {
	s := newSim(t, canReplay)
	for range rapid.IntRange(0, 6).Draw(t, "before") {
		s.e.publish()
	}
	deliver := func(msg message) {
		if s.m.connected {
			s.feed(input{kind: inLive, msg: msg})
		}
	}
	publish := func() {
		size := 1 + rapid.IntRange(0, 9).Draw(t, "clear")/9
		msg := s.e.publishBatch(size)
		switch rapid.SampledFrom([]string{"ok", "ok", "ok", "ok", "drop", "dup", "skip", "old"}).Draw(t, "publish") {
		case "drop":
		case "skip":
			s.e.unsent[msg.seq] = true
		case "dup":
			deliver(msg)
			deliver(msg)
		case "old":
			deliver(msg)
			// Nothing is delayed by more than the ring holds, nor from before the connection.
			last := len(s.e.batches) - 1
			deliver(s.e.batches[rapid.IntRange(max(last-int(s.m.recent.span()), min(s.since, last)), last).Draw(t, "old")])
		default:
			deliver(msg)
		}
	}
	disconnect := func() {
		if s.m.connected {
			s.feed(input{kind: inDisconnected})
		}
	}
	t.Repeat(map[string]func(*rapid.T){
		"publish": func(*rapid.T) { publish() },
		"connect": func(*rapid.T) {
			if !s.m.connected {
				s.feed(input{kind: inConnected})
			}
		},
		"disconnect": func(*rapid.T) { disconnect() },
		"restart": func(t *rapid.T) {
			disconnect()
			s.e.restart()
			for range rapid.IntRange(0, 12).Draw(t, "ahead") {
				s.e.publish()
			}
		},
		"save":  func(*rapid.T) { s.save() },
		"crash": func(*rapid.T) { s.crash() },
		"expire": func(*rapid.T) {
			if s.m.suspect() {
				s.feed(input{kind: inExpire})
			}
		},
		"settle": func(*rapid.T) { s.feed(input{kind: inSettle}) },
		"resync": func(*rapid.T) { s.feed(input{kind: inResync}) },
		"serve": func(t *rapid.T) {
			if !s.replay || !s.m.connected {
				return
			}
			cut := rapid.IntRange(0, 20).Draw(t, "cut")
			hole := rapid.IntRange(-1, 10).Draw(t, "hole")
			s.serve(func(i, n int) bool { return i != hole && i < n-cut/4 },
				rapid.Bool().Draw(t, "end"), func() {
					if rapid.IntRange(0, 9).Draw(t, "interrupt") == 0 {
						publish()
					}
				})
		},
		"": func(t *rapid.T) {},
	})
	s.quiesce()
	s.verify()
}

// TestGapsOutOfReachAreGivenUpAtOnce: a replay left a gap after every other
// batch, and when asked again the buffer no longer reaches back so far.
func TestGapsOutOfReachAreGivenUpAtOnce(t *testing.T) {
	f := func(name string, buffered int, lost uint64, want int) {
		t.Run(name, func(t *testing.T) {
			const batches = 1000
			m := &machine{canReplay: true, maxPending: 1 << 20}
			replays, applied := 0, 0
			feed := func(in input) {
				for _, a := range m.decide(in) {
					switch a.kind {
					case actReplay:
						replays++
					case actApply:
						applied++
					case actLost:
						m.lose(a.n)
					}
				}
			}
			replayed := func(seq int) {
				feed(input{kind: inReplayed, msg: message{seq: uint64(seq), crc: uint32(seq), payload: []byte{1}}})
			}
			feed(input{kind: inConnected})
			for seq := 0; seq < batches; seq += 2 {
				replayed(seq)
			}
			feed(input{kind: inReplayEnd})
			feed(input{kind: inLive, msg: message{seq: batches, crc: batches, payload: []byte{1}}})
			for m.syncing && replays < batches {
				for seq := batches - buffered; seq < batches; seq++ {
					replayed(seq)
				}
				feed(input{kind: inReplayEnd, complete: buffered > 0})
			}
			if m.syncing || replays > 3*maxStalls {
				t.Errorf("not over after %d replays", replays)
			}
			if m.lost != lost || applied != want {
				t.Errorf("%d batches lost and %d applied, want %d and %d", m.lost, applied, lost, want)
			}
		})
	}
	f("short buffer", 100, 450, 551)
	f("no answer", 0, 500, 501)
}

// TestLiveBatchesOnTheirWayAreNotGivenUp: kvindex is so far behind that a
// replay brings only what the engine published after what comes live.
func TestLiveBatchesOnTheirWayAreNotGivenUp(t *testing.T) {
	const n = 20_000
	m := &machine{canReplay: true, maxPending: 1 << 20}
	replays, applied, from := 0, 0, 0
	feed := func(kind inputKind, seq int, complete bool) {
		msg := message{seq: uint64(seq), crc: uint32(seq), payload: []byte{1}}
		for _, a := range m.decide(input{kind: kind, msg: msg, complete: complete}) {
			switch a.kind {
			case actReplay:
				replays++
				from = int(a.seq)
			case actApply:
				applied++
			case actRetire, actLost:
				t.Fatalf("at seq %d: %+v", seq, a)
			}
		}
	}
	feed(inConnected, 0, false)
	feed(inReplayEnd, 0, true)
	for seq := range 100 {
		feed(inLive, seq, false)
	}
	feed(inSettle, 0, false)
	for seq := 100; seq < n; seq++ {
		if m.syncing && (seq == 100 || seq%1500 == 0) { // many live batches come while a replay does, and it does not reach back
			for later := max(from, n-5500); later < n; later++ {
				feed(inReplayed, later, false)
			}
			feed(inReplayEnd, 0, true)
		}
		feed(inLive, seq, false)
	}
	if applied != n || m.syncing || replays > 20 {
		t.Errorf("%d batches applied of %d, syncing %v, after %d replays", applied, n, m.syncing, replays)
	}
}

// TestWhatIsLostAfterAClearStaysLost: one decision gives up a batch, applies
// one that clears the cache, and gives up another.
func TestWhatIsLostAfterAClearStaysLost(t *testing.T) {
	m := &machine{canReplay: true, maxPending: 1 << 20}
	feed := func(kind inputKind, seq uint64) {
		for _, a := range m.decide(input{kind: kind, msg: message{seq: seq, payload: []byte{1}}}) {
			switch {
			case a.kind == actLost:
				m.lose(a.n)
			case a.kind == actApply && a.msg.seq == 2:
				m.cleared()
			}
		}
	}
	feed(inConnected, 0)
	for _, seq := range []uint64{0, 2, 4} {
		feed(inLive, seq)
	}
	for range 20 {
		feed(inReplayEnd, 0)
	}
	if state, cause, n := m.state(); m.syncing || state != Degraded || cause != CauseGap || n != 1 {
		t.Errorf("state %v, cause %q, %d lost; want degraded by a gap of 1", state, cause, n)
	}
}
