package events

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Session follows one stream: it takes what a transport delivers, decides
// what it means, and applies it to the index. Transports call Connected,
// Disconnected, Live, Replayed and ReplayEnd as things happen, in the order
// in which they happen, and look at Replay after each call.
//
// All methods are safe for concurrent use; batches are applied in the caller's
// goroutine, so that a slow index slows the socket and nothing else.
type Session struct {
	opts SessionOptions
	log  *slog.Logger
	wake chan struct{}

	mu       sync.Mutex
	m        machine
	dec      *Decoder
	apply    applier
	count    Counters
	replayID uint64 // of the wanted replay, 0: none
	lastID   uint64
	replayAt uint64
	closed   bool
	since    time.Time // when the stream got its state
	note     string    // a hint for the operator, from the transport
	said     map[string]bool

	suspectSince time.Time // when all began to be suspect, or will; zero: it is not
	isSuspect    bool      // it has begun
	doubts       doubts

	lag time.Duration // of the last batch that was applied as it came; -1: none

	// Read without the lock, on the query path.
	health   atomic.Pointer[Health]
	lastSeen atomic.Int64 // Unix nanoseconds of the last message, 0: none
	size     atomic.Int64 // block size, 0: unknown
}

// Health is what an answer has to say about a stream.
type Health struct {
	State  State
	Reason string // "" where the state is the whole story
}

// castagnoli is CRC-32C, which processors compute in hardware.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum is what tells two payloads apart: CRC-32C.
func Checksum(payload []byte) uint32 { return crc32.Checksum(payload, castagnoli) }

// NewSession returns a session in state Connecting.
func NewSession(o SessionOptions) *Session {
	if o.MaxPending <= 0 {
		o.MaxPending = 64 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.SuspectTTL <= 0 {
		o.SuspectTTL = DefaultSuspectTTL
	}
	if o.Grace <= 0 {
		o.Grace = DefaultGrace
	}
	s := &Session{
		opts:  o,
		log:   o.Logger.With("instance", o.Instance, "dp_rank", o.Stream.Rank),
		wake:  make(chan struct{}, 1),
		m:     machine{canReplay: o.Stream.ReplayEndpoint != "", maxPending: o.MaxPending},
		dec:   NewDecoder(o.Limits),
		count: newCounters(),
		since: time.Now(),
		said:  map[string]bool{},
		lag:   -1,
	}
	s.apply = newApplier(&s.opts, &s.count)
	if s.m.log = o.Stream.Transport() == TransportNATS; o.Resume != nil && s.m.canReplay {
		s.m.resume(o.Resume.Seq, o.Resume.CRC)
	}
	s.health.Store(&Health{State: Connecting})
	if o.Restore != nil {
		s.restore(o.Restore, s.since)
	}
	return s
}

// Stream returns what the session follows.
func (s *Session) Stream() StreamSpec { return s.opts.Stream }

// Wake signals (without counting) that Replay may have changed by another
// goroutine's doing.
func (s *Session) Wake() <-chan struct{} { return s.wake }

// Replay returns the replay that the session waits for: everything from seq
// on. id changes with every request; what belongs to an older id must be
// thrown away. ok is false where none is wanted.
func (s *Session) Replay() (id, seq uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replayID, s.replayAt, s.replayID != 0
}

// Connected says that the transport reached the engine; where the stream comes out
// of a log, that the relay is there, and that its process is that of Position.
func (s *Session) Connected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count.Connects++
	s.step(input{kind: inConnected})
}

// Disconnected says that the transport lost the engine. Messages that it had
// delivered before must have been handed over.
func (s *Session) Disconnected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.step(input{kind: inDisconnected})
}

// Live takes the frames of a published message. The payload may be kept: the
// caller must not write to it afterwards.
func (s *Session) Live(frames [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastSeen.Store(time.Now().UnixNano())
	topic, seq, payload, err := ParseLive(frames)
	if err != nil {
		s.badFrames(err)
		return
	}
	s.step(input{kind: inLive, msg: newMessage(topic, seq, payload)})
}

// Replayed takes the frames of one reply to the replay id and reports whether
// it was the end marker, which the session has then handled.
func (s *Session) Replayed(id uint64, frames [][]byte) (end bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id != s.replayID {
		return true
	}
	r, err := ParseReplay(frames)
	switch {
	case err != nil:
		s.badFrames(err)
	case r.End:
		s.step(input{kind: inReplayEnd, complete: true})
		return true
	default:
		s.step(input{kind: inReplayed, msg: newMessage(nil, r.Seq, r.Payload)})
	}
	return id != s.replayID
}

// ReplayTimeout says that replay id brought nothing for too long.
func (s *Session) ReplayTimeout(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id == s.replayID {
		s.step(input{kind: inReplayEnd})
	}
}

// Open reports whether batches may be missing after the last one that the session
// has, because the replays that were to tell ended too soon. The next batch will
// show it, or another replay, which a transport asks for with Settle.
func (s *Session) Open() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m.open && !s.m.syncing
}

// Settle checks that nothing fell between the subscription and the first
// replay. Transports call it once, about a second after Connected, and now and
// then while the session is Open.
func (s *Session) Settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.step(input{kind: inSettle})
}

// Resync forgets what the stream holds and fetches what the engine still has.
func (s *Session) Resync() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.step(input{kind: inResync})
	s.signal()
}

// Clear forgets what the stream holds, as if the engine had said so.
func (s *Session) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.apply.retire()
	s.doubts = doubts{}
	s.m.cleared()
	s.publish()
}

// Note leaves a hint for the operator, shown with the stream until the next
// one; "" takes it back. It is logged once.
func (s *Session) Note(note string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if note == s.note {
		return
	}
	s.note = note
	if note != "" {
		s.sayOnce(slog.LevelWarn, note)
	}
}

// Close retires what the stream holds: it is no longer followed.
func (s *Session) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.apply.retire()
	s.replayID = 0
	s.health.Store(&Health{State: Gone})
}

// newMessage wraps a payload without copying it.
func newMessage(topic []byte, seq uint64, payload []byte) message {
	return message{seq: seq, crc: Checksum(payload), topic: topic, payload: payload}
}

// step runs the machine and carries out what it decides.
func (s *Session) step(in input) {
	if s.closed {
		return
	}
	actions := s.m.decide(in)
	if len(actions) > 0 {
		s.changed()
	}
	for _, a := range actions {
		switch a.kind {
		case actApply:
			s.applyBatch(a.msg)
		case actDrop:
			s.count.Batches[a.why]++
		case actRetire:
			s.apply.retire()
			s.doubts = doubts{}
			s.count.Restarts[a.why]++
			if s.opts.Restarted != nil {
				s.opts.Restarted(a.why)
			}
			s.log.Info("new incarnation: the blocks of the old one are dropped", "why", a.why)
		case actReplay:
			s.lastID++
			s.replayID, s.replayAt = s.lastID, a.seq
			s.count.Replays++
		case actStop:
			s.replayID = 0
		case actLost:
			s.count.Lost += a.n
			s.m.lose(a.n)
			s.doubt(time.Now())
			s.log.Warn("batches are lost for good: what the stream held until then is suspect, until the engine uses it again or the time for that is over",
				"lost", a.n, "before_seq", s.m.next)
		}
	}
	s.apply.setPartial(s.m.historyFrom > 0 || s.m.lost > 0)
	s.proved()
	s.settleDoubts()
	s.publish()
}

// applyBatch decodes and applies one batch. A batch that cannot be decoded
// costs itself and is a gap of one; so is, as a last resort, one that finds a
// bug in the decoder.
func (s *Session) applyBatch(msg message) {
	defer func() {
		if r := recover(); r != nil {
			s.poisoned(fmt.Sprintf("panic: %v", r), msg)
			s.log.Error("a batch caused a panic; this is a bug in kvindex", "seq", msg.seq, "panic", r, "stack", string(debug.Stack()))
		}
	}()
	if s.opts.Tap != nil {
		s.opts.Tap(string(msg.topic), msg.seq, msg.payload)
	}
	if s.opts.Index == nil {
		s.count.Batches[resultApplied]++
		return
	}
	batch, err := s.dec.Decode(msg.payload)
	if err != nil {
		s.poisoned(err.Error(), msg)
		return
	}
	s.count.Batches[resultApplied]++
	bad := s.apply.badEvents
	if s.apply.batch(batch) {
		s.m.cleared()
		s.doubts = doubts{}
	}
	if s.apply.badEvents > bad {
		s.m.doubt(msg.seq)
		s.doubt(time.Now()) // where in the batch it was does not matter: it may have removed what the batch stored
	}
	if lag := float64(time.Now().UnixNano())/1e9 - batch.Timestamp; !s.m.syncing && lag >= 0 && lag < 1e9 {
		s.lag = time.Duration(lag * float64(time.Second))
	}
}

func (s *Session) poisoned(why string, msg message) {
	s.count.Batches[resultPoison]++
	s.count.Lost++
	s.m.poisoned(msg.seq)
	s.doubt(time.Now())
	// The first bytes show the shape (array, map, JSON ...) and no token.
	s.sayOnce(slog.LevelWarn, "a batch cannot be decoded: it counts as lost",
		"seq", msg.seq, "bytes", len(msg.payload), "starts_with", fmt.Sprintf("%x", msg.payload[:min(8, len(msg.payload))]), "error", why)
}

func (s *Session) badFrames(err error) {
	if fe := (*FrameError)(nil); errors.As(err, &fe) {
		s.count.Frames[fe.Reason]++
	}
	s.sayOnce(slog.LevelWarn, "a message is no batch of KV events: is this the right port?", "error", err.Error())
	s.publish()
}

// sayOnce logs the first of its kind; the counters tell how many follow.
func (s *Session) sayOnce(level slog.Level, msg string, args ...any) {
	if s.said[msg] {
		return
	}
	s.said[msg] = true
	s.log.Log(context.Background(), level, msg+" (said once; see the counters)", args...)
}

func (s *Session) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// publish makes the state visible to Health.
func (s *Session) publish() {
	if s.closed {
		return
	}
	s.size.Store(int64(s.apply.blockSize))
	h := s.currentHealth()
	old := s.health.Load()
	if *old == h {
		return
	}
	s.health.Store(&h)
	if old.State != h.State {
		s.since = time.Now()
		s.log.Info("stream is "+h.State.String(), "was", old.State.String(), "reason", h.Reason)
	}
}

func (s *Session) currentHealth() Health {
	state, cause, n := s.m.state()
	// What the content of the batches says weighs more than their order.
	if state == Live || state == Degraded {
		if why := s.apply.trouble(); why != "" {
			return Health{Degraded, why}
		}
	}
	return Health{state, reason(state, cause, n, s.m.canReplay)}
}

// reason words a cause for people.
func reason(state State, cause string, n uint64, canReplay bool) string {
	if state != Degraded {
		return ""
	}
	switch cause {
	case CauseHistory:
		switch {
		case n == 0 && canReplay:
			return CauseHistory + ": what the engine cached before its next batch is unknown, as no replay of it comes to an end"
		case n == 0:
			return CauseHistory + ": what the engine cached before the connection is unknown until its next batch, and there is no replay"
		}
		return fmt.Sprintf("%s: known from seq %d on, what came before is out of reach", cause, n)
	case CauseGap:
		if !canReplay {
			return fmt.Sprintf("%s: %d batches lost; without a replay endpoint they cannot be fetched", cause, n)
		}
		return fmt.Sprintf("%s: %d batches lost, and no replay brought them", cause, n)
	case CausePoison:
		return fmt.Sprintf("%s: %d batches could not be decoded; kvindex record and kvindex decode show what they are", cause, n)
	case CauseRestored:
		return cause + ": from a snapshot; contact with the engine will prove it or drop it"
	case CauseUnverified:
		if canReplay {
			return cause + ": no replay comes to an end, so the last batches may be missing; the next batch decides"
		}
		return cause + ": reconnected without a replay endpoint, so the engine may have restarted; the next batch decides"
	}
	return cause
}
