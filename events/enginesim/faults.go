package enginesim

import (
	"encoding/binary"
	"fmt"
)

// liveFaults is what goes wrong with the next live messages of a stream.
type liveFaults struct {
	skip, drop, duplicate, reorder int // batches left

	silent bool
	held   []message // not sent yet because of silent or reorder
}

// Skip makes the next n batches take a sequence number and go nowhere: an
// exception between the numbering and the buffer. No replay fills the gap.
func (s *Stream) Skip(n int) error { return s.do(func() error { s.live.skip = n; return nil }) }

// DropLive makes the next n batches go to the buffer only: a gap that a replay
// fills.
func (s *Stream) DropLive(n int) error { return s.do(func() error { s.live.drop = n; return nil }) }

// Duplicate makes each of the next n batches go out twice.
func (s *Stream) Duplicate(n int) error {
	return s.do(func() error { s.live.duplicate = n; return nil })
}

// Reorder holds back the next n batches and sends them in a random order once
// all of them are there. The buffer has them in theirs. Reorder(0) sends what
// is held back by an earlier call.
func (s *Stream) Reorder(n int) error {
	return s.do(func() error {
		s.live.reorder = n
		if n == 0 && !s.live.silent {
			s.release()
		}
		return nil
	})
}

// Silence makes an engine that hangs, its connections open: batches are
// numbered and buffered but not sent, and replays are not answered, until it is
// taken back; then everything goes out in order.
func (s *Stream) Silence(on bool) error {
	return s.do(func() error {
		s.live.silent = on
		if !on && s.live.reorder == 0 {
			s.release()
		}
		return nil
	})
}

// Jump moves the numbering by n without publishing: forward it is a gap that no
// replay fills, backward it looks like a restart that happened in place.
func (s *Stream) Jump(n int64) error {
	return s.do(func() error {
		if n < 0 && uint64(-n) > s.seq {
			return fmt.Errorf("cannot jump back by %d from %d", -n, s.seq)
		}
		s.seq += uint64(n)
		return nil
	})
}

// Heal takes back all faults, also those of replays, and sends what they held
// back.
func (s *Stream) Heal() error {
	return s.do(func() error {
		held := s.live.held
		s.live = liveFaults{held: held}
		s.replay = ReplayFault{}
		s.release()
		return nil
	})
}

// Resend sends a batch that is in the buffer once more, long after its
// successors.
func (s *Stream) Resend(seq uint64) error {
	return s.do(func() error {
		for _, m := range s.buffer.messages() {
			if m.seq == seq {
				s.send(m)
				return nil
			}
		}
		return fmt.Errorf("cannot resend batch %d: not in the buffer", seq)
	})
}

// Garble says what is wrong with a message that Poison sends.
type Garble uint8

const (
	// BadPayload is three good frames, a payload that is no batch. Replays have it
	// too.
	BadPayload Garble = iota
	// OneFrame has one frame where three belong. As with all below, only the
	// live message is bad: a replay brings the payload in a good one.
	OneFrame
	// TwoFrames has two frames.
	TwoFrames
	// FourFrames has four.
	FourFrames
	// ShortSeq has a sequence number of 4 bytes.
	ShortSeq
	// EndSeq has the number of the end marker.
	EndSeq
)

// Poison publishes a bad message in place of the next batch and returns its
// number. A nil payload is up to 64 random bytes. Switches that apply to
// batches leave it alone.
func (s *Stream) Poison(g Garble, payload []byte) (seq uint64, err error) {
	err = s.do(func() error {
		if g > EndSeq {
			return fmt.Errorf("cannot garble a message in the unknown way %d", g)
		}
		if payload == nil {
			payload = make([]byte, 1+s.rand.IntN(64))
			for i := range payload {
				payload[i] = byte(s.rand.Uint32())
			}
		}
		seq = s.take()
		m := message{s.o.Topic, seq, payload}
		s.buffer.add(m)
		topic, number := []byte(m.topic), binary.BigEndian.AppendUint64(nil, seq)
		switch g {
		case BadPayload:
			s.send(m)
		case OneFrame:
			s.sendFrames(append(topic, payload...)) // it still has to begin with the topic to reach anybody
		case TwoFrames:
			s.sendFrames(topic, payload)
		case FourFrames:
			s.sendFrames(topic, number, payload, payload)
		case ShortSeq:
			s.sendFrames(topic, number[4:], payload)
		case EndSeq:
			s.sendFrames(topic, binary.BigEndian.AppendUint64(nil, endSeq), payload)
		}
		return nil
	})
	return seq, err
}

// publish buffers and sends m, as far as the faults let it.
func (s *Stream) publish(m message) {
	if s.live.skip > 0 {
		s.live.skip--
		s.count(func(c *Counts) { c.Skipped++ })
		return
	}
	s.buffer.add(m)
	switch {
	case s.live.drop > 0:
		s.live.drop--
		s.count(func(c *Counts) { c.Dropped++ })
	case s.live.reorder > 0:
		s.live.held = append(s.live.held, m)
		if s.live.reorder--; s.live.reorder > 0 {
			return
		}
		s.rand.Shuffle(len(s.live.held), func(i, k int) {
			s.live.held[i], s.live.held[k] = s.live.held[k], s.live.held[i]
		})
		if !s.live.silent {
			s.release()
		}
	case s.live.silent:
		s.live.held = append(s.live.held, m)
	default:
		s.send(m)
		if s.live.duplicate > 0 {
			s.live.duplicate--
			s.send(m)
		}
	}
}

func (s *Stream) release() {
	for _, m := range s.live.held {
		s.send(m)
	}
	s.live.held = nil
}
