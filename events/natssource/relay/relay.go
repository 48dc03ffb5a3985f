package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kvindex/kvindex/events/natssource"
)

// drainFor is how long a relay that stops tries to publish what it still has.
const drainFor = 2 * time.Second

// watchEvery is how often the stream is looked at while nothing is published.
const watchEvery = 10 * time.Second

// Relay follows an engine and publishes what it says.
type Relay struct {
	opts    Options
	nc      *nats.Conn
	js      jetstream.JetStream
	lanes   []*lane
	up      atomic.Bool // connected to NATS
	ready   atomic.Bool // the stream is there, and the engine is followed
	changed chan struct{}

	restore sync.Mutex // one goroutine at a time looks after the stream
	trouble string     // what it found last; "" nothing
}

// New connects to NATS, without waiting for it. Close the Relay when Run has
// returned.
func New(o Options) (*Relay, error) {
	o.setDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	r := &Relay{opts: o, changed: make(chan struct{}, 1)}
	var err error
	if r.nc, err = natssource.Connect(o.Connect, r.connection); err != nil {
		return nil, err
	}
	r.js, err = jetstream.New(r.nc, jetstream.WithPublishAsyncTimeout(ackTimeout), jetstream.WithPublishAsyncMaxPending(len(o.Streams)*(window+1)))
	if err != nil {
		r.nc.Close()
		return nil, fmt.Errorf("cannot use JetStream: %w", err)
	}
	for _, spec := range o.Streams {
		r.lanes = append(r.lanes, newLane(r, spec))
	}
	return r, nil
}

// Close ends the connection.
func (r *Relay) Close() { r.nc.Close() }

func (r *Relay) connection(up bool) {
	r.up.Store(up)
	if up {
		r.opts.Logger.Info("connected to NATS")
	} else {
		r.opts.Logger.Warn("the connection to NATS is lost: batches wait in the buffer")
	}
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// Run relays until ctx is cancelled, and then publishes what it still has, for
// a short time. It returns an error if it could not begin: a *LimitsError
// where the stream has other limits.
//
// The engine is not followed before NATS has been reached: until then the
// engine's own replay buffer holds what it publishes. An engine without one is
// followed at once.
func (r *Relay) Run(ctx context.Context) error {
	var late []*lane
	for _, l := range r.lanes {
		if l.spec.ReplayEndpoint == "" {
			l.open(lastLogged{})
		} else {
			late = append(late, l)
		}
	}
	follow, stopFollowing := context.WithCancel(ctx)
	publishing, stopPublishing := context.WithCancel(context.WithoutCancel(ctx))
	var following, rest sync.WaitGroup
	defer func() {
		stopFollowing()
		following.Wait()
		r.drain(ctx)
		stopPublishing()
		rest.Wait()
	}()
	run := func(l *lane) {
		following.Go(func() {
			if err := r.opts.Follow(follow, l.session); err != nil && follow.Err() == nil {
				l.log.Error("cannot follow the engine", "error", err)
			}
		})
	}
	for _, l := range r.lanes {
		if l.session != nil {
			run(l)
		}
	}
	last, err := r.begin(ctx, late)
	if ctx.Err() != nil {
		return nil // asked to stop before it began
	}
	if err != nil {
		return err
	}
	for i, l := range late {
		l.open(last[i])
		run(l)
	}
	subs, err := r.listen(publishing)
	if err != nil {
		return err
	}
	defer func() {
		for _, s := range subs {
			_ = s.Unsubscribe() // the connection is closed next
		}
	}()
	for _, l := range r.lanes {
		rest.Go(func() { l.publish(publishing) })
		rest.Go(func() { l.report(follow) })
	}
	rest.Go(func() { r.watchStream(follow) })
	r.ready.Store(true)
	<-ctx.Done()
	return nil
}

// begin waits until the stream is there, and returns what it has of lanes.
func (r *Relay) begin(ctx context.Context, lanes []*lane) ([]lastLogged, error) {
	for said := false; ; {
		last, err := r.tryBegin(ctx, lanes)
		if le := (*LimitsError)(nil); err == nil || errors.As(err, &le) {
			return last, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if !said {
			said = true
			r.opts.Logger.Warn("NATS is not ready yet; it is tried again until it is", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-r.changed:
		case <-time.After(time.Second):
		}
	}
}

func (r *Relay) tryBegin(ctx context.Context, lanes []*lane) ([]lastLogged, error) {
	if !r.up.Load() {
		return nil, errors.New("not connected")
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := ensureStream(ctx, r.js, r.opts.Stream); err != nil {
		return nil, err
	}
	last := make([]lastLogged, len(lanes))
	for i, l := range lanes {
		var err error
		if last[i], err = l.findLast(ctx); err != nil {
			return nil, err
		}
	}
	return last, nil
}

// restoreStream creates the stream again if somebody has deleted it.
func (r *Relay) restoreStream(ctx context.Context) {
	r.restore.Lock()
	defer r.restore.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err := ensureStream(ctx, r.js, r.opts.Stream)
	why := ""
	if err != nil {
		why = err.Error()
	}
	if why != "" && why != r.trouble {
		r.opts.Logger.Warn("the stream is not as it should be", "error", err)
	}
	r.trouble = why
}

// watchStream creates the stream again also while there is nothing to publish:
// readers need one to begin.
func (r *Relay) watchStream(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if r.up.Load() {
				r.restoreStream(ctx)
			}
		}
	}
}

// listen answers requests for batches and for news.
func (r *Relay) listen(ctx context.Context) ([]*nats.Subscription, error) {
	var subs []*nats.Subscription
	for _, l := range r.lanes {
		sub, err := r.nc.Subscribe(l.name.Replay(), func(m *nats.Msg) { l.answer(ctx, m) })
		if err != nil {
			return subs, fmt.Errorf("cannot listen to requests: %w", err)
		}
		subs = append(subs, sub)
	}
	sub, err := r.nc.Subscribe(natssource.HelloSubject, func(*nats.Msg) {
		for _, l := range r.lanes {
			l.speak()
		}
	})
	if err != nil {
		return subs, fmt.Errorf("cannot listen to requests: %w", err)
	}
	return append(subs, sub), nil
}

// drain waits until everything is published, for a short time.
func (r *Relay) drain(ctx context.Context) {
	if ctx.Err() == nil || !r.ready.Load() {
		return
	}
	for end := time.Now().Add(drainFor); time.Now().Before(end) && r.up.Load(); time.Sleep(5 * time.Millisecond) {
		left := 0
		for _, l := range r.lanes {
			if !l.drained() {
				left++
			}
		}
		if left == 0 {
			return
		}
	}
}
