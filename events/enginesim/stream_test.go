package enginesim

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/pebbe/zmq4"
)

func TestStreamPublishes(t *testing.T) {
	s := startStream(t, StreamOptions{Topic: "kv@pod-0@tiny"})
	all, other := subscribe(t, s, ""), subscribe(t, s, "kv@pod-1")
	if s.Subscribers() != 2 {
		t.Errorf("%d subscribers, want 2", s.Subscribers())
	}
	seq, err := s.Publish([]byte("one"))
	if seq != 0 || err != nil {
		t.Errorf("got %d, %v", seq, err)
	}
	if m := all.next(); !reflect.DeepEqual(m, message{"kv@pod-0@tiny", 0, []byte("one")}) {
		t.Errorf("got %+v", m)
	}
	if err := s.PublishAs("kv@pod-1@tiny", 1<<40, nil); err != nil {
		t.Error(err)
	}
	for _, sub := range []*subscriber{all, other} {
		if m := sub.next(); !reflect.DeepEqual(m, message{"kv@pod-1@tiny", 1 << 40, []byte{}}) {
			t.Errorf("got %+v", m)
		}
	}
	if err := s.PublishAll([][]byte{{1}, {2}}); err != nil || s.Seq() != 1<<40+3 {
		t.Errorf("next is %d, %v", s.Seq(), err)
	}
	all.wantSeqs(1<<40+1, 1<<40+2)
	other.wantNothing()
	if c := s.Counts(); c.Published != 4 || c.Sent != 4 {
		t.Errorf("got %+v", c)
	}
	other.soc.Close()
	for deadline := time.Now().Add(5 * time.Second); s.Subscribers() != 1; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d subscribers, want 1", s.Subscribers())
		}
	}
}

func TestReplay(t *testing.T) {
	for _, layout := range []ReplayLayout{ReplayWithoutTopic, ReplayWithTopic} {
		s := startStream(t, StreamOptions{Topic: "kv", Layout: layout, BufferSteps: 100})
		c := dialReplay(t, s)
		c.wantReplay(0, true)
		publish(t, s, 3)
		c.wantReplay(0, true, 0, 1, 2)
		c.wantReplay(2, true, 2)
		c.wantReplay(3, true)
		c.wantReplay(endSeq, true)
		topic := map[ReplayLayout]string{ReplayWithTopic: "kv"}[layout]
		if got, _ := c.replay(1, 5*time.Second); !reflect.DeepEqual(got, []message{{topic, 1, []byte{1}}, {topic, 2, []byte{2}}}) {
			t.Errorf("got %+v", got)
		}
		// Any number of bytes is a number; anything but three frames is no request.
		c.send([]byte{}, []byte{2})
		if got, ended := c.answer(5 * time.Second); len(got) != 1 || !ended {
			t.Errorf("got %+v, %v", got, ended)
		}
		c.send([]byte{}, []byte{9, 0, 0, 0, 0, 0, 0, 0, 0})
		if got, ended := c.answer(5 * time.Second); len(got) != 0 || !ended {
			t.Errorf("got %+v, %v", got, ended)
		}
		c.send([]byte{2})
		c.send([]byte{}, []byte{2}, []byte{})
		if got, ended := c.answer(quiet); len(got) != 0 || ended {
			t.Errorf("got %+v, %v", got, ended)
		}
		// The buffer forgets, and does not say so.
		publish(t, s, 200)
		got, ended := c.replay(0, 5*time.Second)
		if len(got) != 100 || got[0].seq != 103 || got[99].seq != 202 || !ended {
			t.Errorf("got %d batches from %d, %v", len(got), got[0].seq, ended)
		}
		if c := s.Counts(); c.Ignored != 2 || c.Replays != 9 || c.Replayed != 107 {
			t.Errorf("got %+v", c)
		}
	}
}

// TestReplayOverflows has a client that does not read while a long replay is
// sent: ROUTER drops what the pipe cannot hold, often the end marker with it, as
// a real engine's does.
func TestReplayOverflows(t *testing.T) {
	s := startStream(t, StreamOptions{ReplayHWM: 10})
	payloads := make([][]byte, 3000)
	for i := range payloads {
		payloads[i] = make([]byte, 4096)
	}
	if err := s.PublishAll(payloads); err != nil {
		t.Fatal(err)
	}
	c := dialReplay(t, s)
	if err := c.soc.SetRcvhwm(10); err != nil { // applies to the next connection
		t.Fatal(err)
	}
	if err := errors.Join(c.soc.Disconnect(s.ReplayEndpoint()), c.soc.Connect(s.ReplayEndpoint())); err != nil {
		t.Fatal(err)
	}
	c.send([]byte{}, make([]byte, 8))
	for deadline := time.Now().Add(5 * time.Second); s.Counts().Replayed < 3000; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("got %+v", s.Counts())
		}
	}
	got, ended := c.answer(quiet)
	t.Logf("%d batches arrived, end %v", len(got), ended)
	if len(got) >= 3000 {
		t.Error("nothing was lost")
	}
}

func TestWithoutReplay(t *testing.T) {
	s := startStream(t, StreamOptions{NoReplay: true})
	if s.ReplayEndpoint() != "" {
		t.Errorf("got %q", s.ReplayEndpoint())
	}
	sub := subscribe(t, s, "")
	publish(t, s, 1)
	sub.wantSeqs(0)
}

func TestStreamRestarts(t *testing.T) {
	s := startStream(t, StreamOptions{})
	sub, c := subscribe(t, s, ""), dialReplay(t, s)
	publish(t, s, 2)
	sub.wantSeqs(0, 1)
	endpoint, replay := s.Endpoint(), s.ReplayEndpoint()
	for range 3 {
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		if s.Subscribers() != 0 || s.Seq() != 0 {
			t.Errorf("%d subscribers, next is %d", s.Subscribers(), s.Seq())
		}
		publish(t, s, 1) // nobody can have subscribed yet
		if err := s.Boot(5 * time.Second); err != nil {
			t.Fatal(err)
		}
		sub.wantBack(s)
		publish(t, s, 1)
		sub.wantSeqs(1)
		c.wantReplay(0, true, 0, 1)
	}
	if s.Endpoint() != endpoint || s.ReplayEndpoint() != replay {
		t.Errorf("bound %s and %s, before %s and %s", s.Endpoint(), s.ReplayEndpoint(), endpoint, replay)
	}
	if err := s.Boot(0); err != nil { // it is up
		t.Error(err)
	}
}

func TestStreamCloses(t *testing.T) {
	s := startStream(t, StreamOptions{})
	waited := make(chan error)
	go func() { waited <- s.WaitSubscribers(context.Background(), 1) }()
	time.Sleep(time.Millisecond)
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := <-waited; !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
	if _, err := s.Publish(nil); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := startStream(t, StreamOptions{}).WaitSubscribers(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	// The ports are free again.
	again, err := StartStream(StreamOptions{Endpoint: s.Endpoint(), NoReplay: true})
	for deadline := time.Now().Add(5 * time.Second); err != nil && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		again, err = StartStream(StreamOptions{Endpoint: s.Endpoint(), NoReplay: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

func TestStreamRefuses(t *testing.T) {
	taken := startStream(t, StreamOptions{})
	f := func(o StreamOptions) {
		t.Helper()
		if s, err := StartStream(o); err == nil {
			t.Errorf("%+v is accepted", o)
			s.Close()
		} else {
			t.Log(err)
		}
	}
	f(StreamOptions{Endpoint: taken.Endpoint()})
	f(StreamOptions{ReplayEndpoint: taken.Endpoint()})
	f(StreamOptions{Endpoint: "nonsense"})
	f(StreamOptions{BufferSteps: -1})
}

func TestOwnContext(t *testing.T) {
	ctx, err := NewContext(16)
	if err != nil {
		t.Fatal(err)
	}
	s, err := StartStream(StreamOptions{Context: ctx, Endpoint: "inproc://own-context"})
	if err != nil {
		t.Fatal(err)
	}
	sub, err := ctx.NewSocket(zmq4.SUB)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(sub.SetSubscribe(""), sub.Connect(s.Endpoint()), s.WaitSubscribers(withTimeout(t), 1)); err != nil {
		t.Fatal(err)
	}
	publish(t, s, 1)
	if f, err := sub.RecvMessageBytes(0); err != nil || len(f) != 3 {
		t.Errorf("got %q, %v", f, err)
	}
	if err := errors.Join(sub.Close(), s.Close(), ctx.Term()); err != nil {
		t.Error(err)
	}
}

func TestHistory(t *testing.T) {
	h := history{limit: 3}
	for i := range uint64(1000) {
		h.add(message{seq: i})
		got := fmt.Sprint(h.messages())
		var want []message
		for k := i - min(i, 2); k <= i; k++ {
			want = append(want, message{seq: k})
		}
		if got != fmt.Sprint(want) {
			t.Fatalf("after %d: %s, want %v", i, got, want)
		}
	}
	if cap(h.all) > 1000 {
		t.Errorf("it keeps %d for 3", cap(h.all))
	}
}
