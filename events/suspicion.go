package events

import "time"

// What a stream holds is suspect while something may have been removed by the
// engine without our knowing: batches or events were lost, the transport is
// down, or nothing has proved yet that the engine is the one that a snapshot
// tells of. It goes on to answer, marked by the stream's state, but not for
// ever: if nothing settles the matter (a clear, a restart, a reconnection that
// proves continuity), it is dropped, and what the engine can still replay is
// taken anew. What is missing because it was never heard (CauseHistory) is not
// suspect: what is known is true.

// Defaults of SessionOptions.
const (
	DefaultSuspectTTL = 10 * time.Minute
	DefaultGrace      = 30 * time.Second
)

// suspect reports whether what is held may be no longer held by the engine.
func (m *machine) suspect() bool {
	return m.started && (m.lost > 0 || m.restored || m.fresh || !m.connected)
}

// expire drops what is suspect and goes on from here. Of what the engine can
// replay, only what follows the last loss is taken: before it is what has just
// been dropped.
func (m *machine) expire() {
	next, goesOn := m.next, m.started && m.connected && !m.canReplay && !m.fresh
	trusted := m.trusted
	m.newIncarnation(whyExpired)
	switch {
	case goesOn: // the batches from here on are known, those before are history
		m.started, m.next, m.historyFrom = true, next, next
	case m.canReplay && m.connected:
		m.next, m.historyFrom = trusted, trusted
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
	case !s.m.suspect() && s.apply.badEvents == 0:
		s.suspectSince = time.Time{}
	case s.suspectSince.IsZero():
		s.suspectSince = now
		if s.m.lost == 0 && !s.m.restored && s.apply.badEvents == 0 {
			s.suspectSince = now.Add(s.opts.Grace) // connections come and go
		}
	case now.Sub(s.suspectSince) >= s.opts.SuspectTTL:
		s.suspectSince = time.Time{}
		s.log.Warn("what the stream held was suspect for too long and is dropped", "ttl", s.opts.SuspectTTL, "reason", s.health.Load().Reason)
		s.step(input{kind: inExpire})
		s.signal()
	}
	s.isSuspect = !s.suspectSince.IsZero() && !now.Before(s.suspectSince)
}
