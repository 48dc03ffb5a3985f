package events

import "time"

// Batches of a stream were lost, or events that may have been removals could not
// be read: what was held until then is suspect, and is set apart in the index
// (indexer.Holder.Doubt). What is stored from then on is certain, and what the
// engine uses again becomes so. What is left is dropped when it has been suspect
// for SuspectTTL. Then nothing is suspect any more, but what was stored in the
// lost batches is still not known: CauseHistory takes the place of the loss.
//
// A stream that loses something every second would need ever more places for
// what it held each time. So for a while after each time, what comes is only
// noted, and all that the stream holds counts as suspect until it is set apart.
type doubts struct {
	apart time.Time // when something was last set apart; zero: never
	noted time.Time // the last loss since then; zero: none
}

// doubtPauses is how many times within SuspectTTL something is set apart at most.
const doubtPauses = 8

func (d doubts) active() bool { return !d.apart.IsZero() }

// doubt handles a loss.
func (s *Session) doubt(now time.Time) {
	if now.Sub(s.doubts.apart) < s.opts.SuspectTTL/doubtPauses && s.apply.suspects() > 0 {
		s.doubts.noted = now
		s.showDoubt()
		return
	}
	s.setApart(now, now)
}

// setApart sets apart what is held, which is suspect since some time.
func (s *Session) setApart(now, since time.Time) {
	s.doubts = doubts{apart: now}
	for _, rh := range s.apply.holders {
		rh.holder.Doubt(since)
	}
	s.showDoubt()
}

// showDoubt tells the index whether all that is held is suspect.
func (s *Session) showDoubt() {
	unsure := s.isSuspect || !s.doubts.noted.IsZero()
	for _, rh := range s.apply.holders {
		rh.holder.SetUnsure(unsure)
	}
}

// ageDoubts lets time pass for what is suspect because of a loss.
func (s *Session) ageDoubts(now time.Time) {
	if !s.doubts.active() {
		return
	}
	dropped := 0
	for _, rh := range s.apply.holders {
		dropped += rh.holder.DropSuspects(now.Add(-s.opts.SuspectTTL))
	}
	if dropped > 0 {
		s.changed()
		s.log.Warn("blocks were suspect for too long and are dropped", "blocks", dropped, "ttl", s.opts.SuspectTTL)
	}
	if !s.doubts.noted.IsZero() && now.Sub(s.doubts.apart) >= s.opts.SuspectTTL/doubtPauses {
		s.setApart(now, s.doubts.noted)
	}
	s.settleDoubts()
}

// settleDoubts ends a loss of which nothing is suspect any more.
func (s *Session) settleDoubts() {
	if !s.doubts.active() || !s.doubts.noted.IsZero() || s.apply.suspects() > 0 {
		return
	}
	s.m.settled()
	s.doubts, s.apply.badEvents = doubts{}, 0
	s.changed()
	s.publish()
}

// changed notes that a snapshot would hold something else.
func (s *Session) changed() {
	if s.opts.changes != nil {
		s.opts.changes.Add(1)
	}
}

// suspects counts the blocks that are suspect.
func (a *applier) suspects() int {
	n := 0
	for _, rh := range a.holders {
		n += rh.holder.Counts().Suspect
	}
	return n
}
