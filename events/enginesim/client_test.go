package enginesim

import (
	"context"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/pebbe/zmq4"
)

// quiet is how long a test waits for messages that must not come.
const quiet = 60 * time.Millisecond

func withTimeout(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// subscriber is a real SUB socket. It belongs to the test's goroutine.
type subscriber struct {
	t   testing.TB
	soc *zmq4.Socket
}

// subscribe connects to endpoint and waits until s has the subscription.
func subscribe(t testing.TB, s *Stream, topic string) *subscriber {
	t.Helper()
	before := s.Subscribers()
	soc, err := zmq4.NewSocket(zmq4.SUB)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { soc.Close() })
	for _, err := range []error{soc.SetLinger(0), soc.SetRcvhwm(0), soc.SetReconnectIvl(10 * time.Millisecond),
		soc.SetSubscribe(topic), soc.Connect(s.Endpoint())} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.WaitSubscribers(withTimeout(t), before+1); err != nil {
		t.Fatal(err)
	}
	return &subscriber{t, soc}
}

// frames receives one message of any shape, nil if none comes in time.
func (s *subscriber) frames(wait time.Duration) [][]byte {
	s.t.Helper()
	if err := s.soc.SetRcvtimeo(wait); err != nil {
		s.t.Fatal(err)
	}
	m, err := s.soc.RecvMessageBytes(0)
	if err != nil {
		return nil
	}
	return m
}

// wantBack waits until the subscription is there again after a restart. libzmq
// sends it from within a call on the SUB, so the client has to be reading.
func (s *subscriber) wantBack(of *Stream) {
	s.t.Helper()
	for deadline := time.Now().Add(5 * time.Second); of.Subscribers() == 0; {
		if m := s.frames(5 * time.Millisecond); m != nil {
			s.t.Errorf("received %q", m)
		}
		if time.Now().After(deadline) {
			s.t.Fatal("the subscriber is not back")
		}
	}
}

// next receives one good message.
func (s *subscriber) next() message {
	s.t.Helper()
	f := s.frames(5 * time.Second)
	if len(f) != 3 || len(f[1]) != 8 {
		s.t.Fatalf("got frames %q", f)
	}
	return message{string(f[0]), binary.BigEndian.Uint64(f[1]), f[2]}
}

// seqs receives n good messages and returns their numbers.
func (s *subscriber) seqs(n int) (seqs []uint64) {
	s.t.Helper()
	for range n {
		seqs = append(seqs, s.next().seq)
	}
	return seqs
}

func (s *subscriber) wantSeqs(want ...uint64) {
	s.t.Helper()
	if got := s.seqs(len(want)); !slices.Equal(got, want) {
		s.t.Errorf("received %v, want %v", got, want)
	}
}

func (s *subscriber) wantNothing() {
	s.t.Helper()
	if m := s.frames(quiet); m != nil {
		s.t.Errorf("received %q", m)
	}
}

// replayClient is a real DEALER socket.
type replayClient struct {
	t   testing.TB
	soc *zmq4.Socket
}

func dialReplay(t testing.TB, s *Stream) *replayClient {
	t.Helper()
	soc, err := zmq4.NewSocket(zmq4.DEALER)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { soc.Close() })
	for _, err := range []error{soc.SetLinger(0), soc.SetRcvhwm(0), soc.SetRcvtimeo(quiet), soc.Connect(s.ReplayEndpoint())} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return &replayClient{t, soc}
}

func (c *replayClient) send(frames ...any) {
	c.t.Helper()
	if _, err := c.soc.SendMessage(frames...); err != nil {
		c.t.Fatal(err)
	}
}

// replay asks for everything from start on and returns what came, parsed from
// the end of each message, and whether the end marker did. Without one, it
// gives up after wait.
func (c *replayClient) replay(start uint64, wait time.Duration) (batches []message, ended bool) {
	c.t.Helper()
	c.send([]byte{}, binary.BigEndian.AppendUint64(nil, start))
	return c.answer(wait)
}

func (c *replayClient) answer(wait time.Duration) (batches []message, ended bool) {
	c.t.Helper()
	if err := c.soc.SetRcvtimeo(wait); err != nil {
		c.t.Fatal(err)
	}
	for {
		f, err := c.soc.RecvMessageBytes(0)
		if err != nil {
			return batches, false
		}
		n := len(f)
		if n != 3 && n != 4 || len(f[0]) != 0 || len(f[n-2]) != 8 {
			c.t.Fatalf("got frames %q", f)
		}
		m := message{"", binary.BigEndian.Uint64(f[n-2]), f[n-1]}
		if n == 4 {
			m.topic = string(f[1])
		}
		if m.seq == endSeq {
			if m.topic != "" || len(m.payload) != 0 {
				c.t.Fatalf("got the end marker %q", f)
			}
			return batches, true
		}
		batches = append(batches, m)
	}
}

// wantReplay asks from start on and compares the numbers.
func (c *replayClient) wantReplay(start uint64, ended bool, want ...uint64) {
	c.t.Helper()
	wait := 5 * time.Second
	if !ended {
		wait = quiet
	}
	batches, end := c.replay(start, wait)
	var got []uint64
	for _, m := range batches {
		got = append(got, m.seq)
	}
	if !slices.Equal(got, want) || end != ended {
		c.t.Errorf("a replay from %d brought %v, end %v; want %v, %v", start, got, end, want, ended)
	}
}

func startStream(t testing.TB, o StreamOptions) *Stream {
	t.Helper()
	s, err := StartStream(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// publish publishes n batches that say their own number.
func publish(t testing.TB, s *Stream, n int) {
	t.Helper()
	for range n {
		if _, err := s.Publish([]byte{byte(s.Seq())}); err != nil {
			t.Fatal(err)
		}
	}
}
