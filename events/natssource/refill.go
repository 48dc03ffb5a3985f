package natssource

import (
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
)

// PageBatches and PageBytes bound the answer to one request; with more to come
// it ends with EndMore.
const (
	PageBatches = 512
	PageBytes   = 4 << 20
)

// retryPause is how long a replay that failed is waited for before the next;
// it doubles while they keep failing.
const retryPause = 50 * time.Millisecond

// refill is a running replay: requests to the relay, one page after the other.
// Each request has an inbox of its own, so that no late answer can be taken for
// one to another.
type refill struct {
	id  uint64
	req Request
	sub *nats.Subscription
	ch  chan *nats.Msg
	due time.Time
}

// slot is where to wait for leave to replay, if that is wanted now.
func (st *stream) slot() chan<- struct{} {
	_, _, want := st.session.Replay()
	if !want {
		st.judged = Status{}
		return nil
	}
	if st.refill != nil || !st.canAsk() || time.Now().Before(st.retryAt) {
		return nil
	}
	return st.source.slots
}

// canAsk reports whether the relay can be expected to answer, or has been
// silent for so long that asking it is the way to find that it does not.
func (st *stream) canAsk() bool {
	if !st.source.up.Load() {
		return false
	}
	st.mu.Lock()
	heard := !st.heardAt.IsZero()
	st.mu.Unlock()
	return heard || st.silent() >= st.source.opts.Silence
}

// beginRefill starts the wanted replay; the caller has taken a slot.
func (st *stream) beginRefill() {
	id, from, want := st.session.Replay()
	if !want {
		<-st.source.slots
		return
	}
	boot, _, to := st.session.Position()
	if to == 0 {
		// What comes after the relay's position, the log will bring.
		var known bool
		if to, known = st.until(boot); known && to <= from {
			<-st.source.slots
			st.session.RefillEnd(id) // the relay has said that it has no more
			return
		}
	}
	st.refill = &refill{id: id, req: Request{Boot: boot, From: from, To: to}}
	st.ask()
}

// until is where the relay was when it was compared with the session, or else
// where it said last that it was, if that is known of boot.
func (st *stream) until(boot string) (next uint64, known bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	judged := st.judged
	if judged.Boot != boot {
		judged = st.status
	}
	if judged.Boot != boot {
		return 0, false
	}
	return judged.Next, true
}

// ask sends the request for the next page.
func (st *stream) ask() {
	r := st.refill
	st.unsubscribe()
	inbox := st.source.nc.NewInbox()
	r.ch = make(chan *nats.Msg, PageBatches+2) // a page fits: nothing is dropped
	r.due = time.Now().Add(st.source.opts.ReplayIdle)
	var err error
	if r.sub, err = st.source.nc.ChanSubscribe(inbox, r.ch); err == nil {
		err = st.source.nc.PublishMsg(r.req.Msg(st.name.Replay(), inbox))
	}
	if err != nil {
		st.failedRefill()
	}
}

// answers is where answers of the relay come from, if any are awaited.
func (st *stream) answers() <-chan *nats.Msg {
	if st.refill == nil {
		return nil
	}
	return st.refill.ch
}

// answered takes one message of an answer.
func (st *stream) answered(m *nats.Msg) {
	r := st.refill
	if status, _ := get(m.Header, "Status"); status == "503" && len(m.Data) == 0 { // nobody listens
		st.failedRefill()
		return
	}
	end, last, err := ParseEnd(m.Header)
	if err != nil {
		st.source.bad(m.Subject, err)
		st.failedRefill()
		return
	}
	if !last {
		b, err := ParseBatch(m.Header, m.Data)
		if err == nil && b.Began {
			err = errSeq
		}
		if err != nil {
			st.source.bad(m.Subject, err)
			return
		}
		r.due = time.Now().Add(st.source.opts.ReplayIdle)
		if st.session.Refilled(r.id, b.Boot, b.Seq, b.Payload) {
			st.endRefill()
		}
		return
	}
	switch {
	case end.How == EndGone:
		// The log will tell of another process, or has not yet told us.
		st.failedRefill()
	case end.How == EndMore && end.Next > r.req.From:
		st.fails = 0
		r.req.From = end.Next
		st.ask()
	default:
		st.fails = 0
		st.endRefill()
		st.session.RefillEnd(r.id)
	}
}

// drive gives a replay up that brings nothing or is no longer wanted.
func (st *stream) drive() {
	r := st.refill
	if r == nil {
		return
	}
	if id, _, want := st.session.Replay(); !want || id != r.id {
		st.endRefill()
		return
	}
	if !time.Now().Before(r.due) && len(r.ch) == 0 {
		st.failedRefill()
	}
}

func (st *stream) failedRefill() {
	id := st.refill.id
	st.endRefill()
	st.fails++
	pause := retryPause << min(st.fails, 6)
	st.retryAt = time.Now().Add(pause/2 + rand.N(pause/2))
	if st.canAsk() { // else it is no fault of the relay's, and it is asked again
		st.session.ReplayTimeout(id)
	}
}

// endRefill ends the running replay, if any, and gives its slot back.
func (st *stream) endRefill() {
	if st.refill == nil {
		return
	}
	st.unsubscribe()
	st.refill = nil
	<-st.source.slots
}

func (st *stream) unsubscribe() {
	if st.refill.sub != nil {
		_ = st.refill.sub.Unsubscribe() // fails only if the connection is closed
		st.refill.sub = nil
	}
}
