package enginesim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pebbe/zmq4"
)

// ErrClosed means that a Stream, an Engine or a Player has been closed.
var ErrClosed = errors.New("the simulated engine is closed")

// endSeq stands where a replay has its end marker instead of a batch.
const endSeq = 1<<64 - 1

// ReplayLayout is the layout of what a replay request is answered with.
type ReplayLayout uint8

const (
	// ReplayDefault is the layout of the releases that the encoding belongs to.
	ReplayDefault ReplayLayout = iota
	// ReplayWithoutTopic is the older one: a DEALER sees ["", seq, payload], the end is
	// ["", ff*8, ""]. vLLM up to about v0.25, SGLang up to 0.5.21.
	ReplayWithoutTopic
	// ReplayWithTopic is the newer one: ["", topic, seq, payload], the end is ["", "", ff*8, ""].
	ReplayWithTopic
)

// StreamOptions describe the sockets of one stream. The zero value binds two
// free ports of the loopback interface.
type StreamOptions struct {
	// Context is the ZMQ context of the sockets; nil is zmq4's default one,
	// whose two threads serve all of its up to 1,023 sockets, two a stream. It
	// has to outlive them.
	Context *zmq4.Context

	Endpoint       string // of the PUB; FreeAddr's by default
	ReplayEndpoint string // of the ROUTER; likewise
	NoReplay       bool   // no ROUTER at all, vLLM's default
	Topic          string // may be empty, vLLM's default
	Layout         ReplayLayout

	BufferSteps int // batches kept for replays, 10,000 by default
	HWM         int // SNDHWM of the PUB, 100,000 by default; beyond it a subscriber loses batches
	// ReplayHWM is SNDHWM of the ROUTER, libzmq's 1,000 by default: a long
	// replay to a slow client loses batches and the end marker. Negative is no
	// bound.
	ReplayHWM int

	Seed uint64 // of everything that faults leave to chance
}

// Validate fills in defaults and reports what makes no sense.
func (o *StreamOptions) Validate() error {
	for _, e := range []*string{&o.Endpoint, &o.ReplayEndpoint} {
		if *e == "" {
			addr, err := FreeAddr()
			if err != nil {
				return err
			}
			*e = "tcp://" + addr
		}
	}
	if o.Layout == ReplayDefault {
		o.Layout = DefaultEncoding.replayLayout()
	}
	setDefault(&o.BufferSteps, 10_000)
	setDefault(&o.HWM, 100_000)
	setDefault(&o.ReplayHWM, 1_000)
	if o.BufferSteps < 0 || o.HWM < 0 {
		return errors.New("a negative size in the stream's options")
	}
	return nil
}

// message is one batch as it is sent and kept for replays.
type message struct {
	topic   string
	seq     uint64
	payload []byte
}

// Stream is the publisher of one (instance, dp_rank): a PUB socket, a replay
// ROUTER, the numbering and the buffer that replays are served from. Payloads
// are the caller's: Rank makes them from a Pool, Player from a recording.
//
// The PUB is an XPUB, which is the same on the wire and says who subscribes.
// Both sockets belong to one goroutine, which executes all calls in turn and
// serves one replay between two of them; a long replay therefore delays
// publishing, as it does in the engine, and here also the publisher's caller.
// All methods are safe for concurrent use.
type Stream struct {
	o    StreamOptions
	cmds chan func()
	stop chan struct{} // closed by Close
	done chan struct{} // closed when the loop has ended

	closeOnce sync.Once

	// Owned by the loop.
	sockets *sockets // nil while the process is down
	seq     uint64
	buffer  history
	rand    *rand.Rand
	live    liveFaults
	replay  ReplayFault
	asked   bool // replay requests may be waiting: look without being told

	mu      sync.Mutex
	pub     string // endpoints as bound, for good: a restart binds them again
	router  string
	subs    int
	changed chan struct{} // closed when subs changes
	counts  Counts
}

// Counts are what a Stream has done since it was started, over all restarts.
type Counts struct {
	Published uint64 // batches that took a sequence number
	Sent      uint64 // live messages handed to ZMQ, duplicates included
	Skipped   uint64 // batches of permanent gaps
	Dropped   uint64 // batches that were buffered but not sent
	Replays   uint64 // requests answered, also in part
	Replayed  uint64 // batches sent in replays
	Ignored   uint64 // requests not answered, malformed ones included
}

// StartStream binds the sockets and starts to serve them.
func StartStream(o StreamOptions) (*Stream, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("cannot start a stream: %w", err)
	}
	s := &Stream{
		o:       o,
		cmds:    make(chan func()),
		stop:    make(chan struct{}),
		done:    make(chan struct{}),
		rand:    rand.New(rand.NewPCG(o.Seed, 0x73747265616d)),
		pub:     o.Endpoint,
		router:  o.ReplayEndpoint,
		changed: make(chan struct{}),
	}
	s.buffer.limit = o.BufferSteps
	if err := s.open(0); err != nil {
		return nil, err
	}
	go s.loop()
	return s, nil
}

// Endpoint is what a subscriber dials.
func (s *Stream) Endpoint() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pub
}

// ReplayEndpoint is what a replay client dials, "" if there is none.
func (s *Stream) ReplayEndpoint() string {
	if s.o.NoReplay {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.router
}

// Publish gives payload the next sequence number, buffers and sends it, each
// unless a fault says otherwise. It returns when ZMQ has the message. A
// stream that is down buffers only, like a process whose sockets nobody has
// found yet. The payload is kept.
func (s *Stream) Publish(payload []byte) (seq uint64, err error) {
	err = s.do(func() error {
		seq = s.take()
		s.publish(message{s.o.Topic, seq, payload})
		return nil
	})
	return seq, err
}

// PublishAll is Publish for many payloads at once, as fast as the socket takes
// them. No replay is served in between.
func (s *Stream) PublishAll(payloads [][]byte) error {
	return s.do(func() error {
		for _, p := range payloads {
			s.publish(message{s.o.Topic, s.take(), p})
		}
		return nil
	})
}

// PublishAs is Publish under a topic and number of the caller's; the numbering
// goes on behind it.
func (s *Stream) PublishAs(topic string, seq uint64, payload []byte) error {
	return s.do(func() error {
		s.seq = seq + 1
		s.count(func(c *Counts) { c.Published++ })
		s.publish(message{topic, seq, payload})
		return nil
	})
}

// Seq is the number that the next batch gets.
func (s *Stream) Seq() (seq uint64) {
	_ = s.do(func() error { seq = s.seq; return nil }) // of a closed stream: 0
	return seq
}

// Counts returns what the stream has done so far.
func (s *Stream) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// Subscribers is the number of subscriptions of connected clients: one for
// each client that subscribes to one prefix.
func (s *Stream) Subscribers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.subs
}

// WaitSubscribers waits until there are at least n subscriptions. What is
// published before a subscription has arrived is lost to it. After a restart a
// client subscribes again by itself, but only while it is reading.
func (s *Stream) WaitSubscribers(ctx context.Context, n int) error {
	for {
		s.mu.Lock()
		have, changed := s.subs, s.changed
		s.mu.Unlock()
		if have >= n {
			return nil
		}
		select {
		case <-changed:
		case <-s.stop:
			return ErrClosed
		case <-ctx.Done():
			return fmt.Errorf("cannot wait for %d subscriptions of %s, have %d: %w", n, s.Endpoint(), have, context.Cause(ctx))
		}
	}
}

// Kill ends the process: both sockets close, the buffer is gone, the next
// batch is number 0. Faults stay as they are; batches that they held back are
// lost.
func (s *Stream) Kill() error {
	return s.do(func() error {
		s.close()
		s.seq = 0
		s.buffer.clear()
		s.live.held = nil
		return nil
	})
}

// Boot binds the sockets of a killed stream again, on the same ports. It
// tries for wait, since the old sockets close in the background.
func (s *Stream) Boot(wait time.Duration) error {
	return s.do(func() error {
		if s.sockets != nil {
			return nil
		}
		return s.open(wait)
	})
}

// Close ends the stream and waits for its goroutine.
func (s *Stream) Close() error {
	s.closeOnce.Do(func() { close(s.stop) })
	<-s.done
	return nil
}

// do runs fn on the loop's goroutine.
func (s *Stream) do(fn func() error) error {
	ret := make(chan error, 1)
	select {
	case s.cmds <- func() { ret <- fn() }:
		return <-ret
	case <-s.stop:
		return ErrClosed
	}
}

func (s *Stream) loop() {
	defer close(s.done)
	defer s.close()
	for {
		var subs, requests <-chan struct{}
		if s.sockets != nil {
			subs, requests = s.sockets.pubReady(), s.sockets.routerReady()
		}
		// Between two replays one call gets its turn.
		var again chan struct{}
		if s.asked && !s.live.silent {
			again = make(chan struct{})
			close(again)
		}
		select {
		case fn := <-s.cmds:
			fn()
			// Sending reads the socket's mailbox too, so that its descriptor
			// may not tell of a subscription that came at the same time.
			s.readSubscriptions()
		case <-subs:
			s.readSubscriptions()
		case <-requests:
			s.asked = true
		case <-again:
			s.serve()
		case <-s.stop:
			return
		}
	}
}

func (s *Stream) readSubscriptions() {
	if s.sockets == nil {
		return
	}
	if d := s.sockets.readSubscriptions(); d != 0 {
		s.addSubscribers(d)
	}
}

func (s *Stream) addSubscribers(d int) {
	s.mu.Lock()
	s.subs += d
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()
}

// take hands out the next sequence number.
func (s *Stream) take() uint64 {
	seq := s.seq
	s.seq++
	s.count(func(c *Counts) { c.Published++ })
	return seq
}

func (s *Stream) count(f func(*Counts)) {
	s.mu.Lock()
	f(&s.counts)
	s.mu.Unlock()
}

// send hands one live message to ZMQ.
func (s *Stream) send(m message) {
	s.sendFrames([]byte(m.topic), binary.BigEndian.AppendUint64(nil, m.seq), m.payload)
}

func (s *Stream) sendFrames(frames ...[]byte) {
	if s.sockets == nil {
		return
	}
	// A PUB never blocks and never fails while it is open: a subscriber that
	// is too slow loses the message.
	if err := sendAll(s.sockets.pub, frames...); err == nil {
		s.count(func(c *Counts) { c.Sent++ })
	}
}

// sleep waits for d and reports whether the stream is still open.
func (s *Stream) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.stop:
		return false
	}
}
