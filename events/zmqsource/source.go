// Package zmqsource follows engines over ZeroMQ, as vLLM and SGLang publish:
// a SUB socket for live batches and, where the engine has a replay endpoint, a
// DEALER socket for batches that were missed.
//
// # Threads
//
// Following 200 streams takes 200 goroutines (and two small ones each that
// wait for readiness) but no thread of its own for any of them: sockets are
// only ever called without waiting, and readiness comes from the file
// descriptor that libzmq signals (ZMQ_FD), watched by the Go runtime's poller.
// The threads are libzmq's two (one for I/O, one that closes sockets) and
// those that Go starts for calls into C that happen to overlap: some 40 in all
// were seen with 200 streams on 2 cores, most of them from the moment when all
// streams connect at once (TestManyStreamsAreCheap).
//
// # Order
//
// A stream's goroutine owns all its sockets, hands everything to the session
// in order and waits while the session applies it; nothing is queued in
// between, so that a slow index fills the socket's buffer, then the engine's.
// News of a connection is handed over before the first message that came over
// it, and news of its end after the last.
package zmqsource

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvindex/kvindex/events"
	zmq "github.com/pebbe/zmq4"
)

// Options configure a Source. The zero value is right for production.
type Options struct {
	// MaxReplays is how many replays may run at once over all streams: they
	// run on the engines' publisher threads. Default 8.
	MaxReplays int
	// MaxFrame is the largest frame accepted, in bytes; an engine that sends a
	// larger one is disconnected. Default 16 MiB.
	MaxFrame int64
	// ReceiveQueue is how many live messages may wait in a socket. Default 100,000.
	ReceiveQueue int
	// ReplayFirst is how long the first batch of a replay may take: engines
	// serve replays between two of their own batches. Default 3 s.
	ReplayFirst time.Duration
	// ReplayIdle is how long a replay may pause before it counts as ended
	// without its end marker. Default 500 ms.
	ReplayIdle time.Duration
	// ReplayAgain is how long after replays that did not come to an end another
	// is tried, if the engine says nothing meanwhile. Default 10 s.
	ReplayAgain time.Duration
	// ReplayConnect is how long the replay endpoint may take to accept a
	// connection. Default 600 ms.
	ReplayConnect time.Duration
	// SilenceHint is how long a connected engine may send nothing before the
	// operator is told what may be wrong. Default 30 s.
	SilenceHint time.Duration
}

func (o *Options) setDefaults() {
	setDefault(&o.MaxReplays, 8)
	setDefault(&o.MaxFrame, 16<<20)
	setDefault(&o.ReceiveQueue, 100_000)
	setDefault(&o.ReplayFirst, 3*time.Second)
	setDefault(&o.ReplayIdle, 500*time.Millisecond)
	setDefault(&o.ReplayAgain, 10*time.Second)
	setDefault(&o.ReplayConnect, 600*time.Millisecond)
	setDefault(&o.SilenceHint, 30*time.Second)
}

func setDefault[T int | int64 | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// Source makes the sockets of all followed streams. Its Follow is an
// events.Source.
type Source struct {
	opts  Options
	zctx  *zmq.Context
	slots chan struct{} // one element a running replay
	names atomic.Uint64 // of monitor endpoints
	open  sync.WaitGroup
}

// New returns a Source. Close it when every Follow has returned.
func New(o Options) (*Source, error) {
	o.setDefaults()
	zctx, err := zmq.NewContext()
	if err != nil {
		return nil, fmt.Errorf("cannot create a ZMQ context: %w", err)
	}
	// SUB and the two ends of its monitor for each stream, and the same for each
	// DEALER of the few replays that run at once.
	if err := zctx.SetMaxSockets(16384); err != nil {
		return nil, fmt.Errorf("cannot raise the number of ZMQ sockets: %w", err)
	}
	return &Source{opts: o, zctx: zctx, slots: make(chan struct{}, o.MaxReplays)}, nil
}

// Close waits for every Follow to return and frees the sockets' threads.
func (s *Source) Close() error {
	s.open.Wait()
	return s.zctx.Term()
}

// Follow delivers the stream's messages to the session until ctx is
// cancelled. It returns an error only if the sockets cannot be made at all:
// an engine that cannot be reached is tried again, for ever.
func (s *Source) Follow(ctx context.Context, session *events.Session) error {
	s.open.Add(1)
	defer s.open.Done()
	st := &stream{source: s, session: session, spec: session.Stream(), wake: make(chan struct{}, 1)}
	defer st.close()
	if err := st.connect(); err != nil {
		return err
	}
	return st.run(ctx)
}
