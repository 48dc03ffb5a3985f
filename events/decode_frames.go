package events

import (
	"encoding/binary"
	"fmt"
	"math"
)

// EndSeq is the sequence number that ends a replay. No batch carries it.
const EndSeq uint64 = math.MaxUint64

// FrameReason names why a message was dropped before its payload was looked
// at; the values are metric labels.
type FrameReason string

// Reasons to drop a message.
const (
	FrameCount       FrameReason = "frame_count"   // not as many frames as the protocol has
	FrameSeqLength   FrameReason = "seq_length"    // the sequence number has not 8 bytes
	FrameSeqReserved FrameReason = "seq_reserved"  // EndSeq on a message that carries a batch
	FrameDelimiter   FrameReason = "bad_delimiter" // a replay reply of 4 frames does not begin with an empty one
)

// FrameError says why a message was dropped.
type FrameError struct {
	Reason FrameReason
	Frames int // how many frames the message has
	Length int // bytes of the frame that should be the sequence number, or of the delimiter
}

func (e *FrameError) Error() string {
	switch e.Reason {
	case FrameCount:
		return fmt.Sprintf("cannot read message: it has %d frames", e.Frames)
	case FrameSeqLength:
		return fmt.Sprintf("cannot read message of %d frames: the sequence number has %d bytes, want 8", e.Frames, e.Length)
	case FrameSeqReserved:
		return fmt.Sprintf("cannot read message of %d frames: its sequence number marks the end of a replay", e.Frames)
	}
	return fmt.Sprintf("cannot read message of %d frames: the first has %d bytes, want an empty one", e.Frames, e.Length)
}

// ParseLive takes apart a message of the live socket of vLLM or SGLang: topic
// (may be empty), sequence number (8 bytes, big-endian), payload. The results
// are the frames themselves. The topic is text that anyone may have
// configured: it says nothing certain about who sent the message.
//
// Engines that publish one or two frames exist; their messages give
// FrameCount. An error is a *FrameError.
func ParseLive(frames [][]byte) (topic []byte, seq uint64, payload []byte, err error) {
	if len(frames) != 3 {
		return nil, 0, nil, &FrameError{Reason: FrameCount, Frames: len(frames)}
	}
	if seq, err = parseSeq(frames, 1); err != nil {
		return nil, 0, nil, err
	}
	if seq == EndSeq {
		return nil, 0, nil, &FrameError{Reason: FrameSeqReserved, Frames: len(frames)}
	}
	return frames[0], seq, frames[2], nil
}

// Reply is one message of a replay.
type Reply struct {
	Seq     uint64
	Payload []byte // a batch as on the live socket; nil at the end
	End     bool   // the replay is complete; Seq is EndSeq
}

// ParseReplay takes apart a message that a DEALER received from a replay
// socket. Layouts differ by version, so it is read from its end:
//
//	["", seq, payload]         vLLM up to v0.25, SGLang up to 0.5.21
//	["", topic, seq, payload]  vLLM from v0.26, SGLang from 0.5.22
//	[seq, payload]             either old one without the delimiter, as a REQ socket has it
//
// The end is EndSeq with an empty payload, or a message of empty frames only.
// An error is a *FrameError.
func ParseReplay(frames [][]byte) (Reply, error) {
	n := len(frames)
	if n >= 1 && n <= 4 && allEmpty(frames) {
		return Reply{Seq: EndSeq, End: true}, nil
	}
	if n < 2 || n > 4 {
		return Reply{}, &FrameError{Reason: FrameCount, Frames: n}
	}
	if n == 4 && len(frames[0]) != 0 {
		return Reply{}, &FrameError{Reason: FrameDelimiter, Frames: n, Length: len(frames[0])}
	}
	seq, err := parseSeq(frames, n-2)
	if err != nil {
		return Reply{}, err
	}
	payload := frames[n-1]
	switch {
	case seq != EndSeq:
		return Reply{Seq: seq, Payload: payload}, nil
	case len(payload) == 0:
		return Reply{Seq: EndSeq, End: true}, nil
	}
	return Reply{}, &FrameError{Reason: FrameSeqReserved, Frames: n}
}

// ReplayRequest is the message that a DEALER sends to a replay socket to get
// every batch from start on that the engine still has, then the end. Without
// the empty frame the engine does not answer at all.
func ReplayRequest(start uint64) [][]byte {
	return [][]byte{{}, binary.BigEndian.AppendUint64(nil, start)}
}

func parseSeq(frames [][]byte, i int) (uint64, error) {
	if len(frames[i]) != 8 {
		return 0, &FrameError{Reason: FrameSeqLength, Frames: len(frames), Length: len(frames[i])}
	}
	return binary.BigEndian.Uint64(frames[i]), nil
}

func allEmpty(frames [][]byte) bool {
	for _, f := range frames {
		if len(f) != 0 {
			return false
		}
	}
	return true
}
