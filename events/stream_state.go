package events

import (
	"time"

	"github.com/kvindex/kvindex/indexer"
)

// StreamState is what a stream knows beside the blocks that the index holds for
// it, as a snapshot keeps it: enough to go on from there.
type StreamState struct {
	Rank     int    `json:"rank"`
	Endpoint string `json:"endpoint"`

	// The last batch that was applied. Contact with the engine must bring it
	// again, unchanged, before what is restored is believed.
	Seq  uint64 `json:"seq"`
	CRC  uint32 `json:"crc"`            // Checksum of its payload
	Boot string `json:"boot,omitempty"` // of a stream out of a log: the process

	HistoryFrom uint64 `json:"history_from,omitempty"`
	Lost        uint64 `json:"lost,omitempty"`
	Poison      uint64 `json:"poison,omitempty"`
	Trusted     uint64 `json:"trusted,omitempty"` // nothing is missing from here on

	BlockSize int           `json:"block_size"`
	Bigram    bool          `json:"bigram,omitempty"`
	Groups    map[int]bool  `json:"groups,omitempty"` // attention groups: whether they decide a prefix
	Ranks     []int         `json:"ranks"`            // that its batches name, which have a holder each
	Refused   int           `json:"refused,omitempty"`
	Unchained bool          `json:"unchained,omitempty"`
	BadEvents uint64        `json:"bad_events,omitempty"`
	Unmapped  uint64        `json:"unmapped,omitempty"`
	Missing   uint64        `json:"missing,omitempty"`
	Plain     bool          `json:"plain,omitempty"` // a plain hash of SGLang has been seen
	Misses    int           `json:"misses,omitempty"`
	Suspect   time.Duration `json:"suspect,omitempty"` // how long all has been
	Unsure    bool          `json:"unsure,omitempty"`  // a loss is noted, and what it makes suspect is not set apart yet
}

// streamState returns the state, and false if nothing could go on from it: no
// batch has been applied, or the last one is not known. The caller has s.mu.
func (s *Session) streamState(now time.Time) (StreamState, bool) {
	if s.closed || !s.m.started || s.m.next == 0 || len(s.apply.holders) == 0 {
		return StreamState{}, false
	}
	crc, ok := s.m.recent.get(s.m.next - 1)
	if !ok {
		return StreamState{}, false
	}
	a := &s.apply
	st := StreamState{
		Rank: s.opts.Stream.Rank, Endpoint: s.opts.Stream.Endpoint,
		Seq: s.m.next - 1, CRC: crc, Boot: s.m.boot,
		HistoryFrom: s.m.historyFrom, Lost: s.m.lost, Poison: s.m.poison, Trusted: s.m.trusted,
		BlockSize: a.blockSize, Bigram: a.bigram, Refused: a.refused, Unchained: a.unchained,
		BadEvents: a.badEvents, Unmapped: a.unmapped, Unsure: !s.doubts.noted.IsZero(), Missing: a.missing, Plain: a.hidden.plain, Misses: a.hidden.misses,
	}
	for _, g := range a.groups {
		if st.Groups == nil {
			st.Groups = map[int]bool{}
		}
		st.Groups[g.group] = g.main
	}
	for _, rh := range a.holders {
		st.Ranks = append(st.Ranks, rh.rank)
	}
	if s.isSuspect {
		st.Suspect = now.Sub(s.suspectSince)
	}
	return st, true
}

// restoreDoubts goes on with what is suspect because of a loss.
func (s *Session) restoreDoubts(st StreamState, now time.Time) {
	for _, rh := range s.apply.holders {
		rh.holder.SetUnsure(false) // so that only what is set apart is counted
	}
	lossy := st.Lost > 0 || st.BadEvents > 0
	switch apart := s.apply.suspects() > 0; {
	case apart || st.Unsure:
		s.doubts.apart = now.Add(-s.opts.SuspectTTL) // long enough ago
		if st.Unsure {
			s.doubts.noted = now
		}
	case lossy: // by a version that set nothing apart
		s.m.doubt(st.Seq) // where between it was is not known
		s.setApart(now, now.Add(-st.Suspect))
	}
	s.showDoubt()
}

// Restore is what a session goes on from.
type Restore struct {
	State   StreamState
	Holders map[int]*indexer.Holder // by rank
}

// restore makes the session what r tells. It must be the first call.
func (s *Session) restore(r *Restore, now time.Time) {
	st, a := r.State, &s.apply
	s.m.resume(st.Seq, st.CRC)
	s.m.restored, s.m.boot = true, st.Boot
	s.m.historyFrom, s.m.lost, s.m.poison, s.m.trusted = st.HistoryFrom, st.Lost, st.Poison, st.Trusted
	a.blockSize, a.bigram, a.refused, a.unchained = st.BlockSize, st.Bigram, st.Refused, st.Unchained
	a.badEvents, a.unmapped, a.missing = st.BadEvents, st.Unmapped, st.Missing
	a.hidden = namespaces{plain: st.Plain, misses: st.Misses}
	for group, main := range st.Groups {
		a.groups = append(a.groups, groupKind{group, main})
	}
	for _, rank := range st.Ranks {
		a.holders = append(a.holders, rankHolder{rank, r.Holders[rank]})
	}
	a.partial = st.HistoryFrom > 0 || st.Lost > 0
	s.suspectSince = now.Add(-st.Suspect)
	s.isSuspect = true
	s.restoreDoubts(st, now)
	s.publish()
}
