package zmqsource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	zmq "github.com/pebbe/zmq4"

	"github.com/kvindex/kvindex/events"
)

// ErrNoAnswer is returned by Fetch if the replay endpoint does not answer.
var ErrNoAnswer = errors.New("the replay endpoint does not answer")

// Fetch asks a replay endpoint once for everything from seq from on, and hands
// it to take, in the order in which it comes, until take returns false or the
// answer ends. Engines leave batches out of their answers: what is missing may
// come when asked again. The payloads are the caller's.
func (s *Source) Fetch(ctx context.Context, endpoint string, from uint64, take func(seq uint64, payload []byte) bool) error {
	s.open.Add(1)
	defer s.open.Done()
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	wake := make(chan struct{}, 1)
	sock, mon, err := s.newDealer(endpoint, wake)
	if err != nil {
		return err
	}
	defer func() {
		sock.stopMonitor()
		mon.close()
		sock.close()
	}()
	f := fetch{source: s, sock: sock, mon: mon, from: from, take: take, due: time.Now().Add(s.opts.ReplayConnect)}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if over, err := f.drive(); over || err != nil {
			return err
		}
		timer.Reset(max(time.Until(f.due), 0))
		sock.rearm()
		mon.rearm()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wake:
		case <-timer.C:
		}
	}
}

// fetch is a running Fetch.
type fetch struct {
	source    *Source
	sock, mon *socket
	from      uint64
	take      func(seq uint64, payload []byte) bool
	due       time.Time
	sent, got bool
}

// drive does what can be done now and reports whether that was all.
func (f *fetch) drive() (over bool, err error) {
	if slices.Contains(f.mon.events(), zmq.EVENT_HANDSHAKE_SUCCEEDED) && !f.sent {
		f.sent = f.sock.send(events.ReplayRequest(f.from)...)
		f.due = time.Now().Add(f.source.opts.ReplayFirst)
	}
	for {
		msg, ok := f.sock.recv()
		if !ok {
			break
		}
		f.got, f.due = true, time.Now().Add(f.source.opts.ReplayIdle)
		r, err := events.ParseReplay(msg)
		if err != nil {
			return true, fmt.Errorf("cannot fetch batches: %w", err)
		}
		if r.End || !f.take(r.Seq, r.Payload) {
			return true, nil
		}
	}
	switch {
	case time.Now().Before(f.due):
		return false, nil
	case f.got: // the end marker was lost
		return true, nil
	}
	return true, ErrNoAnswer
}
