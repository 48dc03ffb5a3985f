package relay

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kvindex/kvindex/events/natssource"
)

// window and windowBytes bound what is on its way to NATS unacknowledged.
const (
	window      = 256
	windowBytes = 8 << 20
)

// ackTimeout is how long an acknowledgement may take.
const ackTimeout = 5 * time.Second

// publishPause is how long to wait after publishing has failed.
const publishPause = 100 * time.Millisecond

// parcel is what is published at once.
type parcel struct {
	boot    string
	began   int              // announcements up to here are covered; 0: none is due
	last    *natssource.Mark // the batch before the entries
	entries []entry
}

// nextParcel returns what is to be published, if anything.
func (l *lane) nextParcel() (p parcel, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p = parcel{boot: l.boot, entries: l.buf.waiting(window, windowBytes)}
	if l.announce > l.told {
		p.began, p.last = l.announce, l.anchor
		if l.buf.sent > 0 {
			p.last = l.buf.entries[l.buf.sent-1].mark()
		}
	}
	return p, p.began > 0 || len(p.entries) > 0
}

// publish publishes until ctx is cancelled.
func (l *lane) publish(ctx context.Context) {
	for {
		p, ok := l.nextParcel()
		if !ok {
			select {
			case <-ctx.Done():
				return
			case <-l.work:
			}
			continue
		}
		if err := l.send(ctx, p); err != nil && !l.failed(ctx, p, err) {
			return
		}
	}
}

// drained reports whether everything has been published.
func (l *lane) drained() bool {
	_, waiting := l.nextParcel()
	return !waiting
}

// send publishes a parcel in order and returns the first error; what came
// before it has been noted as published.
func (l *lane) send(ctx context.Context, p parcel) error {
	futures := make([]jetstream.PubAckFuture, 0, len(p.entries)+1)
	var failure error
	push := func(b natssource.Batch, id string) bool {
		m := b.Msg(l.name.Events())
		m.Header[nats.MsgIdHdr] = []string{id}
		var f jetstream.PubAckFuture
		if f, failure = l.relay.js.PublishMsgAsync(m); failure != nil {
			return false
		}
		futures = append(futures, f)
		return true
	}
	prefix := p.boot + "-" + strconv.Itoa(l.name.Rank) + "-"
	ok := p.began == 0 || push(natssource.Batch{Boot: p.boot, Began: true, Last: p.last}, prefix+"began-"+strconv.Itoa(p.began))
	for i := 0; ok && i < len(p.entries); i++ {
		e := p.entries[i]
		ok = push(natssource.Batch{Boot: p.boot, Seq: e.seq, Payload: e.payload}, prefix+strconv.FormatUint(e.seq, 10))
	}
	for i, f := range futures {
		select {
		case ack := <-f.Ok():
			l.acked(p, i, ack.Duplicate)
		case err := <-f.Err():
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return failure
}

// acked notes that the i-th message of a parcel is in the log.
func (l *lane) acked(p parcel, i int, duplicate bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if duplicate {
		l.count.Duplicates++
	}
	if p.boot != l.boot {
		return // the engine has restarted meanwhile: the buffer is another
	}
	if p.began > 0 {
		if i--; i < 0 {
			l.told = p.began
			return
		}
	}
	l.buf.published(p.entries[i].seq)
	l.full = false
	if !duplicate {
		l.count.Published++
	}
}

// failed deals with a parcel that did not get through, and reports whether to
// go on.
func (l *lane) failed(ctx context.Context, p parcel, err error) bool {
	l.mu.Lock()
	l.count.Failures++
	first := l.count.Failures == 1
	if errors.Is(err, nats.ErrMaxPayload) && p.boot == l.boot {
		l.dropTooLarge()
	}
	l.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	if first {
		l.log.Warn("cannot publish to NATS; it is tried again (said once; see the counters)", "error", err)
	}
	if errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrNoResponders) {
		l.relay.restoreStream(ctx)
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(publishPause):
		return true
	}
}

// dropTooLarge lets the batches go that the server will never take.
func (l *lane) dropTooLarge() {
	limit := int(l.relay.nc.MaxPayload()) - 512 // headers count too
	for _, e := range l.buf.waiting(window, windowBytes) {
		if len(e.payload) <= limit {
			break
		}
		l.buf.published(e.seq)
		if l.count.TooLarge++; l.count.TooLarge == 1 {
			l.log.Error("a batch is larger than the NATS server takes: it is left out, and readers will see a gap; raise max_payload there",
				"seq", e.seq, "bytes", len(e.payload), "max_payload", l.relay.nc.MaxPayload())
		}
	}
}

// lastLogged is what the last message of a stream in the log tells.
type lastLogged struct {
	boot  string           // "": there is none
	batch *natssource.Mark // the last batch of that process; nil: none
}

// findLast looks up where the log ends for this stream.
func (l *lane) findLast(ctx context.Context) (lastLogged, error) {
	st, err := l.relay.js.Stream(ctx, l.relay.opts.Stream.Name)
	if err != nil {
		return lastLogged{}, fmt.Errorf("cannot look at the stream: %w", err)
	}
	m, err := st.GetLastMsgForSubject(ctx, l.name.Events())
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return lastLogged{}, nil
	}
	if err != nil {
		return lastLogged{}, fmt.Errorf("cannot look for the last batch: %w", err)
	}
	return parseLast(m.Header, m.Data), nil
}
