package snapshot

import (
	"bytes"
	"errors"
	"testing"
	"time"
)

// slow is a writer that counts what it gets.
type slow struct {
	bytes.Buffer
	writes int
	err    error
}

func (s *slow) Write(p []byte) (int, error) {
	s.writes++
	if s.err != nil {
		return 0, s.err
	}
	return s.Buffer.Write(p)
}

func TestPace(t *testing.T) {
	body := bytes.Repeat([]byte("0123456789"), 100_000)
	pieces := (len(body) + piece - 1) / piece
	hurry := make(chan struct{})
	for _, c := range []struct {
		pace   Pace
		pieces int
		least  time.Duration
	}{
		{Pace{Rate: 10 << 20}, pieces, 70 * time.Millisecond},
		{Pace{Rate: 1, Most: 40 * time.Millisecond}, pieces, 25 * time.Millisecond},
	} {
		var w slow
		begin := time.Now()
		if err := c.pace.Write(&w, body); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took < c.least {
			t.Errorf("%+v: it took %v", c.pace, took)
		}
		want(t, "pieces", w.writes, c.pieces)
		want(t, "body", bytes.Equal(w.Bytes(), body), true)
	}
	// At the end of the program nothing rests: what is under way, and what begins.
	time.AfterFunc(10*time.Millisecond, func() { close(hurry) })
	for range 2 {
		var w slow
		if err := (Pace{Rate: 1, Most: time.Hour, Hurry: hurry}).Write(&w, body); err != nil {
			t.Fatal(err)
		}
		want(t, "body", bytes.Equal(w.Bytes(), body), true)
	}
	broken := errors.New("broken")
	w := slow{err: broken}
	want(t, "error", errors.Is(Pace{}.Write(&w, body), broken), true)
	want(t, "pieces", w.writes, 1)
}

// TestRoom: it is there, it ends where it should, and what is too large for it
// goes elsewhere.
func TestRoom(t *testing.T) {
	for _, n := range []int{0, 1, 4096, 5 << 20} {
		b, release := Room(n)
		want(t, "empty", len(b), 0)
		if cap(b) < n {
			t.Errorf("room for %d of %d bytes", cap(b), n)
		}
		b = append(b, bytes.Repeat([]byte{7}, cap(b))...)
		grown := append(b, 8)
		release()
		want(t, "moved", grown[len(grown)-1], 8)
		want(t, "moved", grown[0], 7)
	}
}
