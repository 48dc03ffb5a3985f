package natssource

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kvindex/kvindex/events"
)

// DefaultStream is the JetStream stream that relays write and Sources read,
// unless they are told otherwise.
const DefaultStream = "KV_EVENTS"

// Fleet is the set of followed instances, as a Source uses it; *events.Fleet
// is one.
type Fleet interface {
	// Add follows an instance, or more ranks of one.
	Add(spec events.InstanceSpec) (created bool, err error)
	// Remove stops following a rank and waits for its Follow to return.
	Remove(id string, rank *int) bool
}

// Options configure a Source. Zero values mean the defaults.
type Options struct {
	Connect ConnectOptions
	Stream  string   // DefaultStream
	Models  []string // only the instances of these; empty: all
	// BlockSizes is what is known of the block sizes of models; those of others
	// are learnt from their events.
	BlockSizes map[string]int
	// Start is where to begin, from a snapshot; the zero value is the
	// beginning of what JetStream still has.
	Start Position
	// Silence is how long a relay may say nothing before its stream counts as
	// disconnected: five of its status messages. Default 10 s.
	Silence time.Duration
	// Forget is how long a relay may say nothing before its stream leaves the
	// fleet and its blocks are dropped. Default 10 min.
	Forget time.Duration
	// MaxReplays is how many requests to relays may run at once. Default 8.
	MaxReplays int
	// ReplayIdle is how long an answer of a relay may pause. Default 3 s.
	ReplayIdle time.Duration
	// MaxStreams is how many streams are followed at most: whoever may publish
	// names them. As many that are refused are remembered. Default
	// DefaultMaxStreams.
	MaxStreams int
	// Check is how often the position is compared with the stream. Default 2 s.
	Check  time.Duration
	Logger *slog.Logger // nil: discard
}

// DefaultMaxStreams is far above what a fleet has.
const DefaultMaxStreams = 4096

func (o *Options) setDefaults() {
	if o.Stream == "" {
		o.Stream = DefaultStream
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.MaxReplays <= 0 {
		o.MaxReplays = 8
	}
	if o.MaxStreams <= 0 {
		o.MaxStreams = DefaultMaxStreams
	}
	for _, d := range []struct {
		v *time.Duration
		d time.Duration
	}{{&o.Silence, 10 * time.Second}, {&o.Forget, 10 * time.Minute}, {&o.ReplayIdle, 3 * time.Second}, {&o.Check, 2 * time.Second}} {
		if *d.v <= 0 {
			*d.v = d.d
		}
	}
}

// Source reads a JetStream stream into the sessions of a fleet. Its Follow is
// the events.Source of their streams, and Run brings them into the fleet.
type Source struct {
	opts  Options
	log   *slog.Logger
	nc    *nats.Conn
	js    jetstream.JetStream
	slots chan struct{} // one element a running replay
	again chan struct{} // the connection is back, or the position is wrong: begin consuming anew

	up        atomic.Bool
	upSince   atomic.Int64 // Unix nanoseconds
	idleSince atomic.Int64 // Unix nanoseconds: since when a message is waited for; 0: it is not
	behind    atomic.Int64 // messages that are still to come; -1: unknown

	mu       sync.Mutex
	streams  map[Name]*stream
	refused  map[Name]error // streams that the fleet would not take
	pos      Position       // of the last message that was handed on
	counters Counters
	trouble  string    // why nothing is consumed, "" if it is
	greeted  time.Time // relays were asked who there is
	ended    bool      // the log was read to its end, until
	end      uint64    // here
	caughtUp bool      // all of that has been applied, and relays have had time to answer
}

// New connects, without waiting for it. Close the Source when Run and every
// Follow have returned.
func New(o Options) (*Source, error) {
	o.setDefaults()
	s := &Source{
		opts: o, log: o.Logger.With("nats_stream", o.Stream),
		slots: make(chan struct{}, o.MaxReplays), again: make(chan struct{}, 1),
		streams: map[Name]*stream{}, refused: map[Name]error{},
		pos: o.Start, trouble: "not connected yet",
	}
	s.behind.Store(-1)
	nc, err := Connect(o.Connect, s.changed)
	if err != nil {
		return nil, err
	}
	s.nc = nc
	if s.js, err = jetstream.New(nc); err != nil {
		nc.Close()
		return nil, fmt.Errorf("cannot use JetStream: %w", err)
	}
	return s, nil
}

// Close ends the connection.
func (s *Source) Close() { s.nc.Close() }

// changed is called by the connection.
func (s *Source) changed(up bool) {
	if up {
		s.upSince.Store(time.Now().UnixNano())
		s.log.Info("connected to NATS")
	} else {
		s.log.Warn("the connection to NATS is lost: everything that comes over it counts as disconnected")
	}
	s.behind.Store(-1)
	s.up.Store(up)
	select {
	case s.again <- struct{}{}:
	default:
	}
	s.pokeAll()
}

// Run consumes until ctx is cancelled, which is the error it then returns. It
// adds to fleet what it sees.
func (s *Source) Run(ctx context.Context, fleet Fleet) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	subjects := []string{ofModel(statusKind, "")}
	if len(s.opts.Models) > 0 {
		subjects = subjects[:0]
		for _, m := range s.opts.Models {
			subjects = append(subjects, ofModel(statusKind, m))
		}
	}
	for _, subject := range subjects {
		sub, err := s.nc.Subscribe(subject, func(m *nats.Msg) { s.heard(fleet, m) })
		if err != nil {
			return fmt.Errorf("cannot listen to relays: %w", err)
		}
		defer func() { _ = sub.Unsubscribe() }() //nolint:gocritic // a few, for the life of Run
	}
	wg.Go(func() { s.tend(ctx, fleet) })
	return s.consume(ctx, fleet)
}

// Follow implements events.Source for a stream whose endpoint is one of
// Name.Events, behind nats://.
func (s *Source) Follow(ctx context.Context, session *events.Session) error {
	_, name, err := ParseSubject(strings.TrimPrefix(session.Stream().Endpoint, "nats://"))
	if err != nil {
		return err
	}
	for {
		st := s.stream(name)
		if st.bound.CompareAndSwap(false, true) {
			defer s.drop(st) //nolint:gocritic // the loop ends here
			return st.run(ctx, session)
		}
		select { // one that was removed from the fleet just now
		case <-st.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// stream returns the stream of a name, which is made if there is none.
func (s *Source) stream(name Name) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, ok := s.streams[name]
	if !ok {
		st = newStream(s, name)
		s.streams[name] = st
	}
	return st
}

func (s *Source) drop(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams[st.name] == st {
		delete(s.streams, st.name)
	}
	close(st.done)
}

// find returns the stream of a name. A new one is added to the fleet; nil is
// one that the fleet refuses. One that was refused is tried again if retry says
// so: not for every batch of it.
func (s *Source) find(fleet Fleet, name Name, retry bool) *stream {
	s.mu.Lock()
	st, ok := s.streams[name]
	_, refused := s.refused[name]
	full := len(s.streams) >= s.opts.MaxStreams
	s.mu.Unlock()
	if ok {
		return st
	}
	if refused && !retry {
		return nil
	}
	if full {
		s.refuse(name, fmt.Errorf("%d streams are followed already, which is the most: see nats.max_streams", s.opts.MaxStreams))
		return nil
	}
	st = s.stream(name)
	_, err := fleet.Add(events.InstanceSpec{
		ID: name.Instance, Model: name.Model, BlockSize: s.opts.BlockSizes[name.Model], Source: events.TransportNATS,
		Streams: []events.StreamSpec{{Rank: name.Rank, Endpoint: "nats://" + name.Events(), ReplayEndpoint: "nats://" + name.Replay()}},
	})
	s.mu.Lock()
	if err == nil {
		delete(s.refused, name)
		s.mu.Unlock()
		return st
	}
	delete(s.streams, name)
	close(st.done) // others may wait for its goroutine, which there will not be
	s.mu.Unlock()
	s.refuse(name, err)
	return nil
}

// refuse remembers why a stream is not followed, and says it once.
func (s *Source) refuse(name Name, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.refused[name]
	switch {
	case !known && len(s.refused) >= s.opts.MaxStreams:
		return // said often enough
	case !known && !errors.Is(err, events.ErrClosed):
		s.log.Warn("a stream that comes over NATS is not followed", "subject", name.Events(), "error", err)
	}
	s.refused[name] = err
}

// Expect brings streams into the fleet that a snapshot told of, before Run: the
// log may have nothing to say of them after the position, and their relays speak
// only when they have been asked. One whose relay stays silent leaves the fleet
// as any other does.
func (s *Source) Expect(fleet Fleet, endpoints ...string) {
	for _, e := range endpoints {
		subject, ours := strings.CutPrefix(e, "nats://")
		_, name, err := ParseSubject(subject)
		if ours && err == nil && (len(s.opts.Models) == 0 || slices.Contains(s.opts.Models, name.Model)) {
			s.find(fleet, name, true)
		}
	}
}

// heard takes what a relay says of itself.
func (s *Source) heard(fleet Fleet, m *nats.Msg) {
	_, name, err := ParseSubject(m.Subject)
	if err != nil {
		s.bad(m.Subject, err)
		return
	}
	status, err := ParseStatus(m.Header)
	if err != nil {
		s.bad(m.Subject, err)
		return
	}
	if st := s.find(fleet, name, true); st != nil {
		st.hear(status)
	}
}

// bad counts a message that makes no sense; the first is logged.
func (s *Source) bad(subject string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counters.Bad++; s.counters.Bad == 1 {
		s.log.Warn("a message on NATS is left out (said once; see the counters)", "subject", subject, "error", err)
	}
}

// tend looks after what happens by the clock.
func (s *Source) tend(ctx context.Context, fleet Fleet) {
	tick := time.NewTicker(s.opts.Check)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !s.up.Load() {
			continue
		}
		s.checkPosition(ctx)
		s.pokeAll()
		for _, st := range s.all() {
			if st.silent() > s.opts.Forget {
				s.log.Info("a stream leaves the fleet: its relay has been silent for long", "subject", st.name.Events())
				fleet.Remove(st.name.Instance, &st.name.Rank)
			}
		}
	}
}

func (s *Source) all() []*stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*stream, 0, len(s.streams))
	for _, st := range s.streams {
		list = append(list, st)
	}
	return list
}

func (s *Source) pokeAll() {
	for _, st := range s.all() {
		st.wake()
	}
}
