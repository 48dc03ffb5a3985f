package enginesim

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"
)

func faulty(t *testing.T, o StreamOptions) (*Stream, *subscriber, *replayClient) {
	t.Helper()
	s := startStream(t, o)
	return s, subscribe(t, s, ""), dialReplay(t, s)
}

func ok(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestSkipIsAPermanentGap(t *testing.T) {
	s, sub, c := faulty(t, StreamOptions{})
	publish(t, s, 1)
	ok(t, s.Skip(2))
	publish(t, s, 3)
	sub.wantSeqs(0, 3)
	c.wantReplay(0, true, 0, 3)
}

func TestDropLiveIsRepairable(t *testing.T) {
	s, sub, c := faulty(t, StreamOptions{})
	ok(t, s.DropLive(2))
	publish(t, s, 3)
	sub.wantSeqs(2)
	c.wantReplay(0, true, 0, 1, 2)
}

func TestDuplicateAndResend(t *testing.T) {
	s, sub, c := faulty(t, StreamOptions{})
	ok(t, s.Duplicate(2))
	publish(t, s, 3)
	ok(t, s.Resend(1))
	sub.wantSeqs(0, 0, 1, 1, 2, 1)
	c.wantReplay(0, true, 0, 1, 2)
	if err := s.Resend(9); err == nil {
		t.Error("a batch that was never there is sent")
	}
}

func TestReorder(t *testing.T) {
	order := func(seed uint64) []uint64 {
		s, sub, c := faulty(t, StreamOptions{Seed: seed})
		ok(t, s.Reorder(8))
		publish(t, s, 7)
		sub.wantNothing()
		publish(t, s, 2)
		got := sub.seqs(9)
		c.wantReplay(0, true, 0, 1, 2, 3, 4, 5, 6, 7, 8)
		return got
	}
	a, b := order(1), order(1)
	if !slices.Equal(a, b) || slices.IsSorted(a) || a[8] != 8 {
		t.Errorf("got %v and %v", a, b)
	}
	s, sub, _ := faulty(t, StreamOptions{})
	ok(t, s.Reorder(8))
	publish(t, s, 2)
	ok(t, s.Reorder(0))
	sub.wantSeqs(0, 1)
}

func TestSilence(t *testing.T) {
	s, sub, c := faulty(t, StreamOptions{})
	ok(t, s.Silence(true))
	publish(t, s, 2)
	sub.wantNothing()
	c.wantReplay(0, false)
	ok(t, s.Silence(false))
	sub.wantSeqs(0, 1)
	if got, ended := c.answer(5 * time.Second); len(got) != 2 || !ended {
		t.Errorf("the request that waited got %d batches, end %v", len(got), ended)
	}
}

func TestJump(t *testing.T) {
	s, sub, c := faulty(t, StreamOptions{})
	publish(t, s, 1)
	ok(t, s.Jump(10))
	publish(t, s, 1)
	ok(t, s.Jump(-12))
	publish(t, s, 1)
	sub.wantSeqs(0, 11, 0)
	c.wantReplay(1, true, 11)
	if err := s.Jump(-12); err == nil {
		t.Error("the numbering is below 0")
	}
}

func TestPoison(t *testing.T) {
	s, sub, c := faulty(t, StreamOptions{Topic: "kv"})
	hostile := []byte{0xdd, 0xff, 0xff, 0xff, 0xff}
	f := func(g Garble, payload []byte, frames int) [][]byte {
		t.Helper()
		before := s.Seq()
		if seq, err := s.Poison(g, payload); err != nil || seq != before {
			t.Errorf("got %d, %v, want %d", seq, err, before)
		}
		got := sub.frames(5 * time.Second)
		if len(got) != frames || !bytes.HasPrefix(got[0], []byte("kv")) {
			t.Errorf("garble %d: got %q, want %d frames", g, got, frames)
		}
		return got
	}
	if got := f(BadPayload, hostile, 3); !bytes.Equal(got[2], hostile) {
		t.Errorf("got %q", got)
	}
	if got := f(BadPayload, nil, 3); len(got[2]) == 0 || len(got[2]) > 64 {
		t.Errorf("got %q", got)
	}
	f(OneFrame, hostile, 1)
	f(TwoFrames, hostile, 2)
	f(FourFrames, hostile, 4)
	if got := f(ShortSeq, hostile, 3); len(got[1]) != 4 {
		t.Errorf("got %q", got)
	}
	if got := f(EndSeq, hostile, 3); !bytes.Equal(got[1], bytes.Repeat([]byte{0xff}, 8)) {
		t.Errorf("got %q", got)
	}
	publish(t, s, 1)
	sub.wantSeqs(7)
	c.wantReplay(0, true, 0, 1, 2, 3, 4, 5, 6, 7)
	if _, err := s.Poison(99, nil); err == nil {
		t.Error("an unknown way is accepted")
	}
}

func TestReplayFaults(t *testing.T) {
	s, _, c := faulty(t, StreamOptions{Seed: 7})
	publish(t, s, 5)

	ok(t, s.FaultReplay(ReplayFault{Times: 1, Truncate: 2}))
	c.wantReplay(1, true, 1, 2)
	c.wantReplay(1, true, 1, 2, 3, 4)

	ok(t, s.FaultReplay(ReplayFault{Times: -1, LoseEnd: true}))
	c.wantReplay(3, false, 3, 4)
	c.wantReplay(3, false, 3, 4)

	ok(t, s.FaultReplay(ReplayFault{Times: 2, Ignore: true}))
	c.wantReplay(0, false)
	c.wantReplay(0, false)
	c.wantReplay(4, true, 4)

	ok(t, s.FaultReplay(ReplayFault{Times: 1, Truncate: -1}))
	c.wantReplay(0, true)

	publish(t, s, 95)
	ok(t, s.FaultReplay(ReplayFault{Times: 1, Holes: 0.5}))
	got, ended := c.replay(0, 5*time.Second)
	if len(got) < 25 || len(got) > 75 || !ended {
		t.Errorf("%d of 100 batches came, end %v", len(got), ended)
	}

	ok(t, s.FaultReplay(ReplayFault{Times: 1, Pace: 5 * time.Millisecond}))
	begin := time.Now()
	if got, ended := c.replay(90, 5*time.Second); len(got) != 10 || !ended || time.Since(begin) < 50*time.Millisecond {
		t.Errorf("%d batches came after %v, end %v", len(got), time.Since(begin), ended)
	}

	// A slow replay delays publishing, and closing does not wait for it.
	ok(t, s.FaultReplay(ReplayFault{Times: 1, Pace: time.Minute}))
	c.send([]byte{}, make([]byte, 8))
	for s.Counts().Replays < 9 {
		time.Sleep(time.Millisecond)
	}
	published := make(chan error)
	go func() { _, err := s.Publish(nil); published <- err }()
	select {
	case err := <-published:
		t.Errorf("published during a replay: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	ok(t, s.Close())
	if err := <-published; !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func TestHeal(t *testing.T) {
	s, sub, c := faulty(t, StreamOptions{})
	ok(t, s.Reorder(10), s.Silence(true), s.FaultReplay(ReplayFault{Times: -1, Ignore: true}))
	publish(t, s, 2)
	ok(t, s.Skip(5), s.Heal())
	publish(t, s, 1)
	sub.wantSeqs(0, 1, 2)
	c.wantReplay(0, true, 0, 1, 2)
}
