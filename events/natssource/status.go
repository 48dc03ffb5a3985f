package natssource

import (
	"cmp"
	"slices"
	"time"
)

// Counters count what a Source has seen. They never fall.
type Counters struct {
	Messages  uint64 // read from the log
	Bad       uint64 // left out: their subject or headers make no sense
	Recreated uint64 // times the stream was found to be another one
	Shortened uint64 // times the stream had lost what it had
	Purged    uint64 // times the stream no longer had what came next
}

// Report is a snapshot of a Source for people and metrics.
type Report struct {
	Counters
	Up       bool     // connected to NATS
	Trouble  string   // why nothing is consumed, "" if it is
	Position Position // see Source.Position
	Behind   int64    // messages that are still to come; -1: unknown
	CaughtUp bool     // the end of the log was reached once, what came before it is applied, and relays have said who there is
	Streams  int      // followed
	Refused  []Refusal
}

// Refusal is a stream that is not followed, because the fleet has it from
// elsewhere or under other facts.
type Refusal struct {
	Name
	Err error
}

// helloFor is how long relays are given to say that they are there, when they
// are asked at the beginning: the log may have nothing of an engine, or no longer.
const helloFor = 300 * time.Millisecond

// Report returns a snapshot. It is safe for concurrent use.
func (s *Source) Report() Report {
	r := Report{Up: s.up.Load(), Behind: s.behind.Load()}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Counters, r.Trouble, r.Position, r.Streams = s.counters, s.trouble, s.applied(), len(s.streams)
	s.caughtUp = s.caughtUp || s.ended && r.Position.Seq >= s.end && time.Since(s.greeted) > helloFor
	r.CaughtUp = s.caughtUp
	for name, err := range s.refused {
		r.Refused = append(r.Refused, Refusal{name, err})
	}
	slices.SortFunc(r.Refused, func(a, b Refusal) int {
		return cmp.Or(cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Model, b.Model))
	})
	return r
}
