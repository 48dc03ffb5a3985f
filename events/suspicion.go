package events

import "time"

// What a stream holds is suspect while something may have been removed by the
// engine without our knowing. All of it is, while the transport is down, no
// replay tells what came last, or nothing has proved yet that the engine is the
// one that a snapshot tells of: that is this file's concern. What was held before a loss is another
// (doubt.go). It goes on to answer, marked, but not for ever: if nothing settles
// the matter (a clear, a restart, a reconnection that proves continuity), it is
// dropped, and what the engine can still replay is taken anew. What is missing
// because it was never heard (CauseHistory) is not suspect: what is known is
// true.

// Defaults of SessionOptions.
const (
	DefaultSuspectTTL = 10 * time.Minute
	DefaultGrace      = 30 * time.Second
)

// suspect reports whether all that is held may be no longer held by the engine.
func (m *machine) suspect() bool {
	return m.started && (m.restored || m.fresh || m.behind() || !m.connected)
}

// expire drops what is suspect, and begins anew where there is a connection.
func (m *machine) expire() {
	m.newIncarnation(whyExpired)
	if m.canReplay && m.connected {
		m.startReplay()
	}
}

// Tick lets time pass: what has been suspect for too long is dropped. The Fleet
// calls it every second.
func (s *Session) Tick(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	switch {
	case !s.m.suspect():
		s.suspectSince = time.Time{}
	case s.suspectSince.IsZero():
		s.suspectSince = now
		if !s.m.restored {
			s.suspectSince = now.Add(s.opts.Grace) // connections come and go
		}
	case now.Sub(s.suspectSince) >= s.opts.SuspectTTL:
		s.suspectSince = time.Time{}
		s.log.Warn("what the stream held was suspect for too long and is dropped", "ttl", s.opts.SuspectTTL, "reason", s.health.Load().Reason)
		s.step(input{kind: inExpire})
		s.signal()
	}
	if is := !s.suspectSince.IsZero() && !now.Before(s.suspectSince); is != s.isSuspect {
		s.isSuspect = is
		s.showDoubt()
	}
	s.ageDoubts(now)
}

// proved ends suspicion that has no longer a reason.
func (s *Session) proved() {
	if s.isSuspect && !s.m.suspect() {
		s.isSuspect, s.suspectSince = false, time.Time{}
		s.showDoubt()
	}
}
