package enginesim

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/pebbe/zmq4"
)

// ReplayFault is what goes wrong with the replays of a stream.
type ReplayFault struct {
	// Times is for how many requests; the fault is over then. Negative is for
	// all of them, until the next call of FaultReplay.
	Times int

	Ignore   bool          // do not answer
	Truncate int           // answer with this many batches at most; 0 is all, negative none
	Holes    float64       // leave out each batch with this probability
	LoseEnd  bool          // no end marker
	Pace     time.Duration // wait as long before each batch; nothing is published meanwhile
}

// FaultReplay sets what goes wrong with the next replays, in place of what was
// set before. The zero ReplayFault is a healthy stream.
func (s *Stream) FaultReplay(f ReplayFault) error {
	return s.do(func() error { s.replay = f; return nil })
}

// serve answers one replay request, if one is waiting. As the engine does, it
// answers only messages of three frames and reads the start number from any
// number of bytes, big-endian; a start before the buffer gets everything that
// is there, without a word about the rest.
func (s *Stream) serve() {
	if s.sockets == nil || s.sockets.router == nil {
		s.asked = false
		return
	}
	frames, err := s.sockets.router.RecvMessageBytes(zmq4.DONTWAIT)
	if err != nil {
		s.asked = false // the descriptor will tell of the next
		return
	}
	if len(frames) != 3 {
		s.count(func(c *Counts) { c.Ignored++ })
		return
	}
	f := s.takeReplayFault()
	if f.Ignore {
		s.count(func(c *Counts) { c.Ignored++ })
		return
	}
	s.count(func(c *Counts) { c.Replays++ })
	if s.answer(frames[0], startSeq(frames[2]), f) && !f.LoseEnd {
		s.reply(frames[0], message{seq: endSeq})
	}
}

// answer sends the batches from start on; false means that the stream was
// closed meanwhile.
func (s *Stream) answer(client []byte, start uint64, f ReplayFault) bool {
	left := len(s.buffer.messages())
	if f.Truncate != 0 {
		left = max(f.Truncate, 0)
	}
	for _, m := range s.buffer.messages() {
		if m.seq < start {
			continue
		}
		if left == 0 {
			return true
		}
		if f.Pace > 0 && !s.sleep(f.Pace) {
			return false
		}
		left--
		if f.Holes > 0 && s.rand.Float64() < f.Holes {
			continue
		}
		s.reply(client, m)
		s.count(func(c *Counts) { c.Replayed++ })
	}
	return true
}

// reply sends one batch, or the end, to a client. ROUTER drops it without a
// word if the client's pipe is full or the client gone.
func (s *Stream) reply(client []byte, m message) {
	seq := binary.BigEndian.AppendUint64(nil, m.seq)
	if s.o.Layout == ReplayWithoutTopic {
		_ = sendAll(s.sockets.router, client, nil, seq, m.payload)
		return
	}
	_ = sendAll(s.sockets.router, client, nil, []byte(m.topic), seq, m.payload)
}

func (s *Stream) takeReplayFault() ReplayFault {
	f := s.replay
	switch {
	case f.Times == 0:
		return ReplayFault{}
	case f.Times > 0:
		if s.replay.Times--; s.replay.Times == 0 {
			s.replay = ReplayFault{}
		}
	}
	return f
}

// startSeq reads a big-endian number of any length; one that does not fit is
// beyond every batch.
func startSeq(b []byte) uint64 {
	var v uint64
	for _, c := range b {
		if v>>56 != 0 {
			return endSeq
		}
		v = v<<8 | uint64(c)
	}
	return v
}

// history is the replay buffer: the last limit batches in the order in which
// they were published.
type history struct {
	limit int
	all   []message
	head  int // all[head:] are in the buffer
}

func (h *history) add(m message) {
	h.all = append(h.all, m)
	if len(h.all)-h.head > h.limit {
		h.all[h.head] = message{}
		h.head++
	}
	if h.head > len(h.all)/2 && h.head > 64 {
		h.all = slices.Clone(h.all[h.head:])
		h.head = 0
	}
}

func (h *history) messages() []message { return h.all[h.head:] }

func (h *history) clear() { h.all, h.head = nil, 0 }
