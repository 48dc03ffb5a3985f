package events

import (
	"time"

	"github.com/kvindex/kvindex/indexer"
)

// StreamStatus is a snapshot of one stream for people and metrics.
type StreamStatus struct {
	StreamSpec
	Health
	Since     time.Time     // when it got its state
	Note      string        // a hint for the operator; "" if there is none
	HasBatch  bool          // LastSeq is valid
	LastSeq   uint64        // of the last applied batch
	LastSeen  time.Time     // of the last message; zero if there was none
	Lag       time.Duration // from the engine's clock to ours, of the last batch applied as it came; -1 if none
	Waiting   int           // batches that wait for a replay
	BlockSize int           // 0 while unknown
	Bigram    bool          // blocks are made of token pairs (EAGLE)
	Blocks    [indexer.NumTiers]int
	Suspect   int // of these, in all tiers: what may be no longer held by the engine
	Orphans   int // blocks parked because their parent is unknown
	Counters  Counters
}

// Status returns a snapshot of the stream.
func (s *Session) Status() StreamStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := StreamStatus{
		StreamSpec: s.opts.Stream,
		Health:     *s.health.Load(),
		Since:      s.since,
		Note:       s.note,
		HasBatch:   s.m.started && s.m.next > 0,
		Waiting:    len(s.m.pending),
		Lag:        s.lag,
		BlockSize:  s.apply.blockSize,
		Bigram:     s.apply.bigram,
		Counters:   s.count.clone(),
	}
	if st.HasBatch {
		st.LastSeq = s.m.next - 1
	}
	if ns := s.lastSeen.Load(); ns != 0 {
		st.LastSeen = time.Unix(0, ns)
	}
	for _, rh := range s.apply.holders {
		c := rh.holder.Counts()
		for t := range st.Blocks {
			st.Blocks[t] += c.Blocks[t]
		}
		st.Orphans += c.Orphans
		st.Suspect += c.Suspect
	}
	return st
}

// Health returns the state of the stream. It takes no lock: queries call it.
func (s *Session) Health() Health { return *s.health.Load() }

// LastSeen returns when the last message came; the zero time if none did.
func (s *Session) LastSeen() time.Time {
	if ns := s.lastSeen.Load(); ns != 0 {
		return time.Unix(0, ns)
	}
	return time.Time{}
}

// BlockSize returns the tokens a block of the stream, 0 while unknown. It
// takes no lock.
func (s *Session) BlockSize() int { return int(s.size.Load()) }
