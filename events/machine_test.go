package events

import (
	"fmt"
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

func (e *simEngine) publish() message {
	seq := uint64(len(e.batches))
	msg := message{seq: seq, crc: uint32(e.process)<<20 | uint32(seq), payload: []byte{byte(e.process)}}
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
	replay  bool   // a replay is wanted
	from    uint64
}

func (s *simStream) feed(in input) {
	for _, a := range s.m.decide(in) {
		switch a.kind {
		case actRetire:
			s.process, s.applied = -1, nil
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
		}
	}
	s.checkWatermark()
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

// verify compares what was applied with the engine's truth.
func (s *simStream) verify() {
	if s.process != s.e.process {
		s.t.Fatalf("holds process %d, the engine is process %d", s.process, s.e.process)
	}
	missing := ""
	for i := range s.e.batches {
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
		msg := s.e.publish()
		switch rapid.SampledFrom([]string{"ok", "ok", "ok", "ok", "drop", "dup", "skip", "old"}).Draw(t, "publish") {
		case "drop":
		case "skip":
			s.e.unsent[msg.seq] = true
		case "dup":
			deliver(msg)
			deliver(msg)
		case "old":
			deliver(msg)
			deliver(s.e.batches[rapid.IntRange(0, len(s.e.batches)-1).Draw(t, "old")])
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
	f("short buffer", 100, 450, 550)
	f("no answer", 0, 499, 500) // of the last batch nothing is known
}
