package enginesim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/pebbe/zmq4"

	"github.com/kvindex/kvindex/indexer"
)

// EngineOptions describe an engine. The zero value is one rank of a current
// vLLM on free ports of the loopback interface.
type EngineOptions struct {
	Pool   PoolOptions   // of every rank; its Seed comes from the engine's
	Stream StreamOptions // of every rank, with endpoints as Start says; its Seed comes from the engine's

	Ranks     int // data-parallel ranks, 1 by default
	FirstRank int // number of the first, where a group spans several engines

	Encoding Encoding // DefaultEncoding by default
	// PrivateHashes gives every rank of every process a hash space of its own,
	// as vLLM did without PYTHONHASHSEED up to mid-2026. Without it all of them
	// share Pool.HashSeed. Engines with different Seeds differ.
	PrivateHashes bool

	// Clock is the engine's clock in seconds; time.Now by default. With a
	// clock of the caller's the payloads of a seeded run are the same each time.
	Clock func() float64
	// Seed is the root of all random choices.
	Seed uint64
}

// Engine is a fake engine: ranks with a pool and a stream each. All methods
// are safe for concurrent use.
type Engine struct {
	o     EngineOptions
	ranks []*Rank
}

// Start binds the sockets of all ranks. A tcp endpoint with a fixed port is
// that of rank 0: rank n has the port n above it, for events and replays
// alike. Port 0 is a free one for each.
func Start(o EngineOptions) (*Engine, error) {
	setDefault(&o.Ranks, 1)
	if o.Encoding == 0 {
		o.Encoding = DefaultEncoding
	}
	if o.Encoding > lastEncoding || o.Ranks < 0 || o.FirstRank < 0 {
		return nil, fmt.Errorf("cannot start an engine of encoding %d with %d ranks from %d", o.Encoding, o.Ranks, o.FirstRank)
	}
	if o.Stream.Layout == ReplayDefault {
		o.Stream.Layout = o.Encoding.replayLayout()
	}
	if o.Clock == nil {
		o.Clock = func() float64 { return float64(time.Now().UnixNano()) / 1e9 }
	}
	o.Stream.Seed = o.Seed
	e := &Engine{o: o}
	for i := range o.Ranks {
		r, err := startRank(&e.o, o.FirstRank+i)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("cannot start rank %d of the engine: %w", o.FirstRank+i, err), e.Close())
		}
		e.ranks = append(e.ranks, r)
	}
	return e, nil
}

// Ranks is the number of ranks.
func (e *Engine) Ranks() int { return len(e.ranks) }

// Rank returns the i-th rank of this engine, from 0.
func (e *Engine) Rank(i int) *Rank { return e.ranks[i] }

// Endpoint is what a subscriber of the i-th rank dials.
func (e *Engine) Endpoint(i int) string { return e.ranks[i].stream.Endpoint() }

// ReplayEndpoint is what a replay client of the i-th rank dials, "" if there
// is none.
func (e *Engine) ReplayEndpoint(i int) string { return e.ranks[i].stream.ReplayEndpoint() }

// Truth is what all ranks hold now, keyed with the sequence hashes of h. It
// equals what has been published once each rank has stepped after its last
// change.
func (e *Engine) Truth(h indexer.Hasher) Truth {
	t := Truth{}
	for _, r := range e.ranks {
		r.addTruth(t, h)
	}
	return t
}

// WaitSubscribers waits until every rank has a subscription.
func (e *Engine) WaitSubscribers(ctx context.Context) error {
	for _, r := range e.ranks {
		if err := r.stream.WaitSubscribers(ctx, 1); err != nil {
			return err
		}
	}
	return nil
}

// RestartOptions say how an engine comes back.
type RestartOptions struct {
	// Down is how long its ports are closed.
	Down time.Duration
	// Masked makes the new process pass the sequence numbers of the old one
	// before anybody can subscribe, by running random requests, so that the
	// numbers alone do not show the restart.
	Masked bool
	// Ahead is how many batches a masked restart gets beyond the old process, 1
	// by default.
	Ahead int
	// Wait is how long to try to bind the ports again, 5 s by default.
	Wait time.Duration
}

// Restart ends the process and starts a new one on the same ports: empty
// pools, sequence numbers from 0, empty replay buffers. Jobs of the old process
// are done.
func (e *Engine) Restart(o RestartOptions) error {
	if o.Wait == 0 {
		o.Wait = bootWait
	}
	setDefault(&o.Ahead, 1)
	old := make([]uint64, len(e.ranks))
	for i, r := range e.ranks {
		old[i] = r.stream.Seq()
	}
	if err := e.Kill(); err != nil {
		return err
	}
	time.Sleep(o.Down)
	for i, r := range e.ranks {
		if !o.Masked {
			break
		}
		if err := r.fill(old[i] + uint64(o.Ahead)); err != nil {
			return err
		}
	}
	return e.Boot(o.Wait)
}

// Kill ends the process: its sockets close and what it cached is gone. What
// is run from now on is run by the next process, whose batches go to the
// replay buffer until Boot.
func (e *Engine) Kill() error {
	for _, r := range e.ranks {
		if err := r.kill(); err != nil {
			return fmt.Errorf("cannot kill rank %d: %w", r.id, err)
		}
	}
	return nil
}

// Boot binds the sockets of a killed engine again, trying for wait.
func (e *Engine) Boot(wait time.Duration) error {
	for _, r := range e.ranks {
		if err := r.stream.Boot(wait); err != nil {
			return fmt.Errorf("cannot boot rank %d: %w", r.id, err)
		}
	}
	return nil
}

// Close ends the engine and waits for its goroutines.
func (e *Engine) Close() error {
	var err error
	for _, r := range e.ranks {
		err = errors.Join(err, r.stream.Close())
	}
	return err
}

// NewContext returns a ZMQ context for engines that are not to use zmq4's
// default one, with room for the given number of sockets (two a rank). The
// caller terminates it after the last engine has been closed.
func NewContext(sockets int) (*zmq4.Context, error) {
	ctx, err := zmq4.NewContext()
	if err != nil {
		return nil, fmt.Errorf("cannot make a ZMQ context: %w", err)
	}
	if err := ctx.SetMaxSockets(sockets); err != nil {
		ctx.Term()
		return nil, fmt.Errorf("cannot make a ZMQ context for %d sockets: %w", sockets, err)
	}
	return ctx, nil
}

// offsetEndpoint is the endpoint of a rank, by vLLM's rule: the port is that
// of rank 0 plus the rank, an inproc name gets a suffix, ipc has one rank.
func offsetEndpoint(endpoint string, rank int) (string, error) {
	scheme, rest, ok := strings.Cut(endpoint, "://")
	switch {
	case !ok:
		return "", fmt.Errorf("endpoint %q has no scheme", endpoint)
	case rank == 0:
		return endpoint, nil
	case scheme == "inproc":
		return endpoint + "_dp" + strconv.Itoa(rank), nil
	case scheme != "tcp":
		return "", fmt.Errorf("endpoint %q has no place for rank %d", endpoint, rank)
	}
	host, port, err := net.SplitHostPort(rest)
	if err != nil {
		return "", fmt.Errorf("endpoint %q: %w", endpoint, err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return "", fmt.Errorf("endpoint %q: %w", endpoint, err)
	}
	if n != 0 {
		n += rank
	}
	return "tcp://" + net.JoinHostPort(host, strconv.Itoa(n)), nil
}
