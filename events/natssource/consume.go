package natssource

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// retryAfter is how long to wait after consuming has failed.
const retryAfter = 250 * time.Millisecond

// pullSize is how many messages are asked for at once. It bounds what waits in
// this process, so that a slow index slows the server's delivery down and
// nothing is thrown away.
const pullSize = 1024

// errAgain ends one round of consuming, for the next to begin.
var errAgain = errors.New("the connection or the stream has changed")

// consume reads the log until ctx is cancelled.
func (s *Source) consume(ctx context.Context, fleet Fleet) error {
	for {
		err := s.consumeOnce(ctx, fleet)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.behind.Store(-1)
		wait := time.Duration(0)
		if !errors.Is(err, errAgain) {
			s.troubled(s.explain(err))
			wait = retryAfter
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

func (s *Source) explain(err error) string {
	switch {
	case !s.up.Load():
		return "cannot connect to NATS at " + redact(s.opts.Connect.URL)
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Sprintf("there is no stream %q: is a relay running?", s.opts.Stream)
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrJetStreamNotEnabled):
		return "JetStream is not enabled, or has no leader"
	}
	return err.Error()
}

// troubled notes why nothing is consumed; a change is logged.
func (s *Source) troubled(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if why != "" && why != s.trouble {
		s.log.Warn("cannot consume from NATS", "error", why)
	}
	s.trouble = why
}

// consumeOnce compares the position with the stream and reads on from there
// until something changes.
func (s *Source) consumeOnce(ctx context.Context, fleet Fleet) error {
	select { // whatever changed until now is seen below
	case <-s.again:
	default:
	}
	asked, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	info, err := s.streamInfo(asked)
	if err != nil {
		return err
	}
	seq := s.begin(info)
	cons, err := s.js.OrderedConsumer(asked, s.opts.Stream, s.consumerConfig(seq))
	if err != nil {
		return err
	}
	it, err := cons.Messages(jetstream.PullMaxMessages(pullSize))
	if err != nil {
		return err
	}
	defer it.Stop()
	s.troubled("")
	// Relays say at once how far they are: the end of the log is no proof that
	// nothing is missing.
	_ = s.nc.Publish(HelloSubject, nil) // fails only if the connection is gone again
	s.mu.Lock()
	s.greeted = time.Now()
	s.mu.Unlock()
	s.setBehind(int64(cons.CachedInfo().NumPending))
	return s.read(ctx, it, fleet)
}

// consumerConfig asks for everything from seq on, of the chosen models.
func (s *Source) consumerConfig(seq uint64) jetstream.OrderedConsumerConfig {
	c := jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: max(seq, 1),
		FilterSubjects:    []string{ofModel(eventsKind, "")},
		InactiveThreshold: 30 * time.Second,
		MaxResetAttempts:  1, // we look at the stream before we try again
	}
	if len(s.opts.Models) > 0 {
		c.FilterSubjects = nil
		for _, m := range s.opts.Models {
			c.FilterSubjects = append(c.FilterSubjects, ofModel(eventsKind, m))
		}
	}
	return c
}

// read hands messages on until something changes.
func (s *Source) read(ctx context.Context, it jetstream.MessagesContext, fleet Fleet) error {
	inner, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-s.again:
			stop(errAgain)
		case <-inner.Done():
		}
	}()
	defer func() { stop(nil); <-watched }()
	for {
		s.idleSince.Store(time.Now().UnixNano())
		msg, err := it.Next(jetstream.NextContext(inner))
		s.idleSince.Store(0)
		if err != nil {
			if cause := context.Cause(inner); cause != nil {
				return cause
			}
			return err
		}
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		if err := s.hand(ctx, fleet, msg, meta.Sequence.Stream); err != nil {
			return err
		}
		s.setBehind(int64(meta.NumPending))
	}
}

// hand gives a message to its stream.
func (s *Source) hand(ctx context.Context, fleet Fleet, msg jetstream.Msg, seq uint64) error {
	_, name, err := ParseSubject(msg.Subject())
	var b Batch
	if err == nil {
		b, err = ParseBatch(msg.Headers(), msg.Data())
	}
	if err != nil {
		s.bad(msg.Subject(), err)
	} else if st := s.find(fleet, name, false); st != nil {
		if err := st.put(ctx, item{b, seq}); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pos.Seq = seq
	s.counters.Messages++
	return nil
}

// idleFor is how long the log must have brought nothing to have been read to
// its end: that there was no other message when one was sent says little when
// it has waited here for long.
const idleFor = 20 * time.Millisecond

// atEnd reports whether the log has been read to its end, as far as can be
// seen.
func (s *Source) atEnd() bool {
	since := s.idleSince.Load()
	return s.behind.Load() == 0 && since != 0 && time.Since(time.Unix(0, since)) > idleFor
}

// setBehind notes how many messages are still to come. Those that came have
// been handed on before.
func (s *Source) setBehind(n int64) {
	if old := s.behind.Swap(n); n == 0 && old != 0 {
		s.mu.Lock()
		if !s.ended {
			s.ended, s.end = true, s.pos.Seq
		}
		s.mu.Unlock()
		s.pokeAll()
	}
}

func (s *Source) streamInfo(ctx context.Context) (*jetstream.StreamInfo, error) {
	st, err := s.js.Stream(ctx, s.opts.Stream)
	if err != nil {
		return nil, err
	}
	return st.CachedInfo(), nil
}

func extentOf(info *jetstream.StreamInfo) extent {
	return extent{info.Created, info.State.FirstSeq, info.State.LastSeq}
}

// begin sets the position to where to read on.
func (s *Source) begin(info *jetstream.StreamInfo) uint64 {
	s.mu.Lock()
	at := s.pos
	if at.Stream != "" && at.Stream != s.opts.Stream {
		at = Position{} // remembered of another stream
	}
	seq, surprise := nextAfter(at, extentOf(info))
	s.pos = Position{Stream: s.opts.Stream, Created: info.Created, Seq: max(seq, 1) - 1}
	s.ended = s.caughtUp // else its end is another one now
	s.mu.Unlock()
	s.surprised(surprise, at, info)
	return seq
}

// surprised says what happened to the stream. What is missing shows in the
// seqs of each engine, as soon as there is a next one; until then the relays
// are asked whether there is.
func (s *Source) surprised(surprise string, at Position, info *jetstream.StreamInfo) {
	if surprise == "" {
		return
	}
	s.mu.Lock()
	switch surprise {
	case surpriseRecreated:
		s.counters.Recreated++
	case surpriseShortened:
		s.counters.Shortened++
	case surprisePurged:
		s.counters.Purged++
	}
	s.mu.Unlock()
	s.log.Warn("the stream on NATS is not what it was: what is missing is asked for at the relays",
		"what", surprise, "position", at.Seq, "first", info.State.FirstSeq, "last", info.State.LastSeq, "created", info.Created)
	for _, st := range s.all() {
		st.doubt()
	}
}

// checkPosition compares the position with the stream while messages are being
// read: JetStream does not tell of a purge, and a stream that was created anew
// would deliver nothing to us.
func (s *Source) checkPosition(ctx context.Context) {
	s.mu.Lock()
	at, busy := s.pos, s.trouble != ""
	s.mu.Unlock()
	if busy || at.Created.IsZero() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	info, err := s.streamInfo(ctx)
	if err == nil {
		if _, surprise := nextAfter(at, extentOf(info)); surprise == "" {
			return
		}
	} else if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return // no answer is no news
	}
	select {
	case s.again <- struct{}{}:
	default:
	}
}
