package natssource

import "time"

// Position is how far a JetStream stream has been read. It can be remembered
// and given to another Source. The zero value is before everything.
type Position struct {
	Stream  string    `json:"stream"`  // its name
	Created time.Time `json:"created"` // tells it from another stream that had the name before
	Seq     uint64    `json:"seq"`     // the stream's number of the last message that was applied
}

// StartAt is Options.Start for those who learn it after New: from a snapshot. It
// must not be called after Run.
func (s *Source) StartAt(p Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pos = p
}

// Surprises when a position is compared with the stream.
const (
	surpriseRecreated = "recreated" // the stream is another one, of the same name
	surpriseShortened = "shortened" // the stream ends before the position: it has lost what it had
	surprisePurged    = "purged"    // what came next is no longer there
)

// extent is what a JetStream stream says of itself.
type extent struct {
	created     time.Time
	first, last uint64 // last is first-1 where it is empty
}

// nextAfter returns where to go on after p in a stream, and what is wrong
// with p, "" if nothing is. What is read again does no harm.
func nextAfter(p Position, e extent) (seq uint64, surprise string) {
	switch {
	case p.Created.IsZero():
		return e.first, ""
	case !p.Created.Equal(e.created):
		return e.first, surpriseRecreated
	case e.last < p.Seq:
		return e.first, surpriseShortened
	case e.first > p.Seq+1:
		return e.first, surprisePurged
	}
	return p.Seq + 1, ""
}

// Position returns a position up to which everything has been applied to the
// index, but for what waits for a replay. Read it before the index is copied:
// then what follows it covers at least what the copy lacks.
func (s *Source) Position() Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.applied()
}

// applied is Position. The caller has s.mu.
func (s *Source) applied() Position {
	p := s.pos
	for _, st := range s.streams {
		if taken := st.taken.Load(); taken < st.queued.Load() {
			p.Seq = min(p.Seq, taken)
		}
	}
	return p
}
