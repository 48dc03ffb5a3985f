package relay

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kvindex/kvindex/events"
	"github.com/kvindex/kvindex/events/natssource"
)

// olderFor is how long batches that came from the engine's replay socket are
// kept for the next request.
const olderFor = time.Minute

// fetchTimeout bounds one replay of the engine.
const fetchTimeout = 15 * time.Second

func parseLast(h nats.Header, payload []byte) lastLogged {
	b, err := natssource.ParseBatch(h, payload)
	if err != nil {
		return lastLogged{} // of another version: nothing is known
	}
	if !b.Began {
		return lastLogged{boot: b.Boot, batch: &natssource.Mark{Seq: b.Seq, CRC: events.Checksum(payload)}}
	}
	return lastLogged{boot: b.Boot, batch: b.Last}
}

// answer answers a request for batches.
func (l *lane) answer(ctx context.Context, m *nats.Msg) {
	req, err := natssource.ParseRequest(m.Header)
	l.mu.Lock()
	l.count.Requests++
	if err != nil {
		l.count.BadRequests++
		l.mu.Unlock()
		return
	}
	if req.Boot != l.boot {
		err := l.tellOfBoot(req.Boot)
		l.mu.Unlock()
		if err != nil {
			l.log.Warn("a request cannot be answered", "error", err)
		}
		l.end(m, natssource.End{How: natssource.EndGone})
		return
	}
	l.mu.Unlock()
	page := l.page(ctx, req)
	for _, e := range page {
		err := l.relay.nc.PublishMsg(natssource.Batch{Boot: req.Boot, Seq: e.seq, Payload: e.payload}.Msg(m.Reply))
		if err != nil && !errors.Is(err, nats.ErrMaxPayload) {
			return // asked again
		}
	}
	end := natssource.End{How: natssource.EndDone, Next: req.From}
	l.mu.Lock()
	l.count.Answered += uint64(len(page))
	if n := len(page); n > 0 {
		end.Next = page[n-1].seq + 1
		if end.Next < l.next && (req.To == 0 || end.Next < req.To) {
			end.How = natssource.EndMore
		}
	}
	l.mu.Unlock()
	l.end(m, end)
}

func (l *lane) end(m *nats.Msg, e natssource.End) {
	if m.Reply != "" {
		_ = l.relay.nc.PublishMsg(e.Msg(m.Reply)) // asked again
	}
}

// tellOfBoot puts the news of the present process into the log, for a reader
// that knows only another one. Many may ask at once.
func (l *lane) tellOfBoot(readers string) error {
	if readers > l.boot {
		return l.rename(readers)
	}
	if l.announce == l.told {
		l.announce++
		l.wakeUp()
	}
	return nil
}

// page returns the batches that answer a request, as many as fit.
func (l *lane) page(ctx context.Context, req natssource.Request) []entry {
	l.mu.Lock()
	list := l.buf.from(req.From, natssource.PageBatches, natssource.PageBytes)
	first := l.first()
	reach := l.relay.opts.Fetch != nil && l.spec.ReplayEndpoint != ""
	l.mu.Unlock()
	if req.From < first && (req.To == 0 || req.To > req.From) && reach {
		list = append(l.before(ctx, req, first), list...)
		list = firstOf(list, natssource.PageBatches, natssource.PageBytes)
	}
	if req.To > 0 {
		if i := slices.IndexFunc(list, func(e entry) bool { return e.seq >= req.To }); i >= 0 {
			list = list[:i]
		}
	}
	return list
}

// first is the seq of the oldest batch in the buffer, or of the one that will
// be.
func (l *lane) first() uint64 {
	if len(l.buf.entries) > 0 {
		return l.buf.entries[0].seq
	}
	return l.next
}

// before returns what the engine still has of the batches before first.
func (l *lane) before(ctx context.Context, req natssource.Request, first uint64) []entry {
	l.mu.Lock()
	older, fresh := l.older, time.Since(l.olderAt) < olderFor
	l.mu.Unlock()
	if _, have := older[req.From]; !have || !fresh {
		older = l.fetch(ctx, req.Boot, req.From, older)
	}
	var list []entry
	for seq, payload := range older {
		if seq >= req.From && seq < first {
			list = append(list, entry{seq, payload})
		}
	}
	slices.SortFunc(list, func(a, b entry) int {
		if a.seq < b.seq {
			return -1
		}
		return 1
	})
	return list
}

// errOther says that what an engine replays must not be used.
var errOther = errors.New("the engine's replay is of another process")

// fetch asks the engine for what precedes the buffer. It counts only if the
// batch that is known comes with it, unchanged: else it may be of a process
// that has just taken the engine's place. What an earlier replay brought is
// kept: engines leave batches out.
func (l *lane) fetch(ctx context.Context, boot string, from uint64, older map[uint64][]byte) map[uint64][]byte {
	l.mu.Lock()
	known := l.anchor
	if len(l.buf.entries) > 0 {
		e := l.buf.entries[0]
		known = e.mark()
	}
	limit := l.relay.opts.BufferBytes
	l.mu.Unlock()
	if known == nil || known.Seq < from {
		return nil
	}
	got := map[uint64][]byte{}
	for seq, payload := range older {
		got[seq] = payload
		limit -= len(payload)
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	err := errOther // unless the batch that is known comes
	ferr := l.relay.opts.Fetch(ctx, l.spec.ReplayEndpoint, from, func(seq uint64, payload []byte) bool {
		if seq == known.Seq && events.Checksum(payload) == known.CRC {
			err = nil
		}
		if _, have := got[seq]; !have && seq <= known.Seq && limit >= len(payload) {
			got[seq] = payload
			limit -= len(payload)
		}
		return seq < known.Seq
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count.Fetches++
	if err := errors.Join(err, ferr); err != nil || boot != l.boot {
		l.log.Info("the engine cannot replay what a reader asks for", "from", from, "known", strconv.FormatUint(known.Seq, 10), "error", err)
		return nil
	}
	l.older, l.olderAt = got, time.Now()
	return got
}
