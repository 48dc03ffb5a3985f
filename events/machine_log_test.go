package events

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// logEntry is a message of a log: a batch of a process, or, with seq -1, the
// news that it has begun.
type logEntry struct{ process, seq int }

// simLog is the truth that a machine which reads a log is held against: the
// engine's processes, the relay with what it can still replay of the present
// one, and the log, of which anything may be missing.
type simLog struct {
	t        *rapid.T
	m        *machine
	process  int
	batches  int   // of the present process
	clears   []int // those of them that dropped everything
	ring     int   // how many of the last batches the relay still has
	log      []logEntry
	first    int // of log: what came before is purged
	cursor   int // the next to deliver
	applied  []bool
	current  int // process of the applied batches, -1: none
	latest   int // the newest process that anything was applied of
	replay   bool
	from     uint64
	clearsOf map[logEntry]bool
	owed     int // batches that the relay last said that it had
}

func bootOf(process int) string { return fmt.Sprintf("%04d", process) }

func (s *simLog) message(e logEntry) message {
	return message{boot: bootOf(e.process), seq: uint64(e.seq), crc: uint32(e.process)<<20 | uint32(e.seq), payload: []byte{1}}
}

func (s *simLog) feed(in input) {
	if (in.kind == inConnected || in.kind == inSettle) && s.m.boot == bootOf(s.process) {
		s.owed = s.batches
		s.m.told = uint64(s.batches)
	}
	for _, a := range s.m.decide(in) {
		switch a.kind {
		case actRetire:
			s.applied, s.current = nil, -1
		case actReplay:
			s.replay, s.from = true, a.seq
		case actStop:
			s.replay = false
		case actLost:
			s.m.lose(a.n)
		case actApply:
			p, seq := int(a.msg.crc>>20), int(a.msg.seq)
			if s.current == -1 {
				s.current = p
			}
			if p != s.current || p < s.latest {
				s.t.Fatalf("batch %d of process %d applied to that of %d, after one of %d", seq, p, s.current, s.latest)
			}
			if seq < len(s.applied) {
				s.t.Fatalf("batch %d applied after %d", seq, len(s.applied)-1)
			}
			s.latest = p
			for len(s.applied) < seq {
				s.applied = append(s.applied, false)
			}
			s.applied = append(s.applied, true)
			if s.clearsOf[logEntry{p, seq}] {
				s.m.cleared()
			}
		}
	}
	if st, _, _ := s.m.state(); st == Live && s.m.boot == bootOf(s.process) {
		if missing := s.missing(s.owed); missing > 0 {
			s.t.Fatalf("live without %d batches that the relay had", missing)
		}
	}
}

// missing is how many of the first n batches of the present process are missing
// since the last of all that dropped everything.
func (s *simLog) missing(n int) (missing int) {
	from := 0
	if n := len(s.clears); n > 0 {
		from = s.clears[n-1]
	}
	for i := from; i < n; i++ {
		if i >= len(s.applied) || !s.applied[i] {
			missing++
		}
	}
	return missing
}

// deliver hands over the next n messages of the log.
func (s *simLog) deliver(n int) {
	s.cursor = max(s.cursor, s.first)
	for ; n > 0 && s.cursor < len(s.log); n-- {
		e := s.log[s.cursor]
		s.cursor++
		if e.seq < 0 {
			s.feed(input{kind: inBoot, msg: message{boot: bootOf(e.process)}})
			continue
		}
		s.feed(input{kind: inLive, msg: s.message(e)})
	}
}

func (s *simLog) publish(clears, lost bool) {
	e := logEntry{s.process, s.batches}
	s.batches++
	if clears {
		s.clearsOf[e] = true
		s.clears = append(s.clears, e.seq)
	}
	if !lost {
		s.log = append(s.log, e)
	}
}

// serve answers the wanted replay as the relay does: with what it has of the
// present process, if that is the one asked for. keep is how many batches come
// through.
func (s *simLog) serve(keep int, end bool) {
	s.replay = false
	boot := s.m.boot
	if boot != bootOf(s.process) {
		s.feed(input{kind: inReplayEnd})
		return
	}
	for seq := max(int(s.from), s.batches-s.ring); seq < s.batches; seq++ {
		if keep--; keep < 0 {
			break
		}
		s.feed(input{kind: inReplayed, msg: s.message(logEntry{s.process, seq})})
		if s.replay || !s.m.syncing {
			return
		}
	}
	s.feed(input{kind: inReplayEnd, complete: end})
}

// quiesce lets the log be read to its end and compares with what the relay
// says, as the transport does.
func (s *simLog) quiesce() {
	for round := 0; ; round++ {
		if round > 50 {
			s.t.Fatalf("no end: %+v", s.m)
		}
		s.deliver(len(s.log))
		if !s.m.connected {
			s.feed(input{kind: inConnected})
		}
		for i := 0; s.replay; i++ {
			if i > 200 {
				s.t.Fatalf("200 honest replays did not end it: %+v", s.m)
			}
			s.serve(1<<30, true)
		}
		switch {
		case s.m.boot != bootOf(s.process):
			s.log = append(s.log, logEntry{s.process, -1}) // asked for another process, the relay tells of its own
		case s.m.next < uint64(s.batches):
			s.feed(input{kind: inSettle})
		default:
			return
		}
		if !s.replay && s.m.boot == bootOf(s.process) && s.batches > s.ring && s.m.next == uint64(s.batches-s.ring) {
			return
		}
	}
}

func (s *simLog) verify() {
	if s.current != s.process && (s.current != -1 || s.batches > 0) {
		s.t.Fatalf("holds process %d, the engine is process %d", s.current, s.process)
	}
	missing := s.missing(s.batches)
	state, cause, _ := s.m.state()
	if missing > 0 && state == Live {
		s.t.Fatalf("live without %d batches", missing)
	}
	if missing == 0 && state != Live {
		s.t.Fatalf("has everything, but is %v (%s)", state, cause)
	}
}

// TestMachineAgainstLog: whatever is lost, purged or read again, nothing of a
// dead process is applied, nothing twice, and what is missing is said.
func TestMachineAgainstLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &simLog{
			t: t, current: -1, clearsOf: map[logEntry]bool{},
			ring: rapid.SampledFrom([]int{4, 30, 10_000}).Draw(t, "ring"),
			m: &machine{
				canReplay: true, logState: logState{log: true},
				maxPending: rapid.SampledFrom([]int{3, 10, 1000}).Draw(t, "maxPending"),
				recent:     crcRing{size: rapid.SampledFrom([]int{3, ringSize}).Draw(t, "remembered")},
			},
		}
		s.log = append(s.log, logEntry{0, -1})
		t.Repeat(map[string]func(*rapid.T){
			"publish": func(t *rapid.T) {
				for range rapid.IntRange(1, 5).Draw(t, "n") {
					s.publish(rapid.IntRange(0, 9).Draw(t, "clear") == 0, rapid.IntRange(0, 5).Draw(t, "lost") == 0)
				}
			},
			"again": func(t *rapid.T) { // published again, after what followed
				if n := len(s.log); n > s.first {
					s.log = append(s.log, s.log[rapid.IntRange(max(s.first, n-8), n-1).Draw(t, "which")])
				}
			},
			"restart": func(t *rapid.T) {
				s.process++
				s.batches, s.clears, s.owed = 0, nil, 0
				if rapid.Bool().Draw(t, "announced") {
					s.log = append(s.log, logEntry{s.process, -1})
				}
			},
			"deliver":    func(t *rapid.T) { s.deliver(rapid.IntRange(1, 8).Draw(t, "n")) },
			"read again": func(t *rapid.T) { s.cursor = rapid.IntRange(s.first, len(s.log)).Draw(t, "from") },
			"purge":      func(t *rapid.T) { s.first = rapid.IntRange(s.first, len(s.log)).Draw(t, "first") },
			"connect": func(*rapid.T) {
				if !s.m.connected && s.m.boot != "" {
					s.feed(input{kind: inConnected})
				}
			},
			"disconnect": func(*rapid.T) { s.feed(input{kind: inDisconnected}) },
			"settle":     func(*rapid.T) { s.feed(input{kind: inSettle}) },
			"resync":     func(*rapid.T) { s.feed(input{kind: inResync}) },
			"serve": func(t *rapid.T) {
				if s.replay {
					s.serve(rapid.IntRange(0, 20).Draw(t, "keep"), rapid.Bool().Draw(t, "end"))
				}
			},
			"": func(*rapid.T) {},
		})
		s.quiesce()
		s.verify()
	})
}

// TestResumeProvesOrStartsAnew: a position from before holds if its batch comes
// again unchanged, and nothing else does.
func TestResumeProvesOrStartsAnew(t *testing.T) {
	f := func(name string, crc uint32, batches int, want []string) {
		t.Run(name, func(t *testing.T) {
			m := &machine{canReplay: true, maxPending: 1 << 20}
			m.resume(4, 104)
			var did []string
			replay := uint64(0)
			feed := func(in input) (again bool) {
				for _, a := range m.decide(in) {
					switch a.kind {
					case actApply:
						did = append(did, string(rune('0'+a.msg.seq)))
					case actRetire:
						did = append(did, a.why)
					case actReplay:
						replay, again = a.seq, true
					}
				}
				return again
			}
			feed(input{kind: inConnected})
			for m.syncing {
				again := false
				for seq := replay; seq < uint64(batches) && !again; seq++ {
					msg := message{seq: seq, crc: 100 + uint32(seq), payload: []byte{1}}
					if seq == 4 {
						msg.crc = crc
					}
					again = feed(input{kind: inReplayed, msg: msg})
				}
				if !again {
					feed(input{kind: inReplayEnd, complete: true})
				}
			}
			if len(did) != len(want) {
				t.Fatalf("did %q, want %q", did, want)
			}
			for i := range did {
				if did[i] != want[i] {
					t.Fatalf("did %q, want %q", did, want)
				}
			}
		})
	}
	f("the same process", 104, 6, []string{"5"})
	f("nothing since", 104, 5, nil)
	f("another process", 7, 6, []string{whyMasked, "0", "1", "2", "3", "4", "5"})
	f("another process that is not as far", 104, 2, []string{whyVanished, "0", "1"})
}

// TestLogIsEmptyAfterRestore: the log has been purged and the engine is silent,
// so that only the relay can say that the process of the snapshot goes on.
func TestLogIsEmptyAfterRestore(t *testing.T) {
	m := machine{canReplay: true, logState: logState{log: true}}
	m.resume(9, 1)
	m.restored, m.boot = true, bootOf(1)
	m.decide(input{kind: inConnected})
	m.decide(input{kind: inReplayEnd, complete: true})
	if state, cause, _ := m.state(); state != Live {
		t.Errorf("the stream is %v (%s)", state, cause)
	}
}
