package events

import "time"

// What a transport calls for a stream that comes out of a log, instead of Live
// and Replayed: the messages name the process that published them.

// Logged takes a batch that came out of the log, in the log's order: of the
// process boot. The payload may be kept: the caller must not write to it
// afterwards.
func (s *Session) Logged(boot string, seq uint64, payload []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastSeen.Store(time.Now().UnixNano())
	msg := newMessage(nil, seq, payload)
	msg.boot = boot
	s.step(input{kind: inLive, msg: msg})
}

// Began says that the log tells of a new process, boot, which may not have
// published anything yet.
func (s *Session) Began(boot string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.step(input{kind: inBoot, msg: message{boot: boot}})
}

// Refilled takes a batch that came in answer to the replay id, from outside
// the log, and reports whether that replay is over. A batch of another process
// than the present one is dropped.
func (s *Session) Refilled(id uint64, boot string, seq uint64, payload []byte) (over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id != s.replayID {
		return true
	}
	msg := newMessage(nil, seq, payload)
	msg.boot = boot
	s.step(input{kind: inReplayed, msg: msg})
	return id != s.replayID
}

// RefillEnd says that replay id brought all that there is.
func (s *Session) RefillEnd(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id == s.replayID {
		s.step(input{kind: inReplayEnd, complete: true})
	}
}

// Told says where the relay is with the present process: what it publishes next
// is next. Until the session is there too, it is not live. Transports say so
// where they have compared the two, before Connected and Settle.
func (s *Session) Told(next uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.m.told = next
	s.publish()
}

// Position returns the present process of the stream ("" before the first
// message), the seq that comes next, and, if batches wait for earlier ones,
// the first of these; else waiting is 0.
func (s *Session) Position() (boot string, next, waiting uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.m.pending) > 0 {
		waiting = s.m.pending[0].seq
	}
	return s.m.boot, s.m.next, waiting
}
