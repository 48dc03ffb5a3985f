package snapshot

import (
	"io"
	"time"
)

// Pace is how a body is written while others are busy on the same machine,
// queries above all: in small pieces with rests between them, on a thread that
// gives way to all others. A snapshot then takes a second or more in place of a
// fraction of one, and a query waits for a piece at most.
type Pace struct {
	Rate  int             // bytes a second; 0: 16 MiB
	Most  time.Duration   // for a body: one that is too large for Rate is written faster; 0: 15 s
	Hurry <-chan struct{} // closed: from now on without rests; may be nil
}

// piece is what is written at once.
const piece = 256 << 10

// Write writes body to w.
func (p Pace) Write(w io.Writer, body []byte) error {
	select {
	case <-p.Hurry:
		_, err := w.Write(body)
		return err
	default:
	}
	if p.Rate == 0 {
		p.Rate = 16 << 20
	}
	if p.Most == 0 {
		p.Most = 15 * time.Second
	}
	each := time.Duration(float64(piece) / float64(p.Rate) * float64(time.Second))
	each = min(each, p.Most/time.Duration(len(body)/piece+1))
	return onLowlyThread(func() error { return p.write(w, body, each) })
}

func (p Pace) write(w io.Writer, body []byte, each time.Duration) error {
	rest := time.NewTimer(0)
	defer rest.Stop()
	for next := time.Now(); len(body) > 0; {
		n := min(len(body), piece)
		if _, err := w.Write(body[:n]); err != nil {
			return err
		}
		if body = body[n:]; len(body) == 0 {
			break
		}
		// A store that was slower than that is not made up for by haste.
		next = next.Add(each)
		if now := time.Now(); next.Before(now) {
			next = now
			continue
		}
		rest.Reset(time.Until(next))
		select {
		case <-rest.C:
		case <-p.Hurry:
			_, err := w.Write(body)
			return err
		}
	}
	return nil
}
