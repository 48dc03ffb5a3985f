package remote

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
)

// flightKey tells calls apart. The hash of the body is a cryptographic one:
// with two bodies of one hash, one would get the other's tokens.
type flightKey struct {
	model string
	kind  Kind
	body  [sha256.Size]byte
}

// flight is a call that several wait for. The client's flightMu guards waiters
// and joined; ids and err are set before done is closed.
type flight struct {
	cancel  context.CancelCauseFunc
	done    chan struct{}
	waiters int
	joined  bool // more than one waited
	ids     []uint32
	err     error
}

// share calls f, or waits for the call with the same key that is under way. f's
// context is ended when nobody waits any more, and by Close.
func (c *Client) share(ctx context.Context, key flightKey, f func(context.Context) ([]uint32, error)) ([]uint32, error) {
	if err := ctx.Err(); err != nil {
		return nil, waitError(err)
	}
	call, err := c.board(ctx, key, f)
	if err != nil {
		return nil, err
	}
	select {
	case <-call.done:
	case <-ctx.Done():
		c.leave(key, call)
		return nil, waitError(ctx.Err())
	}
	if call.joined { // nobody joins any more
		return slices.Clone(call.ids), call.err
	}
	return call.ids, call.err
}

func waitError(err error) error { return fmt.Errorf("cannot wait for an engine: %w", err) }

// board finds or begins the call of a key.
func (c *Client) board(ctx context.Context, key flightKey, f func(context.Context) ([]uint32, error)) (*flight, error) {
	c.flightMu.Lock()
	defer c.flightMu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	if call := c.flights[key]; call != nil {
		call.waiters++
		call.joined = true
		c.counters.shared.Add(1)
		return call, nil
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	call := &flight{cancel: cancel, done: make(chan struct{}), waiters: 1}
	c.flights[key] = call
	c.wg.Go(func() {
		defer cancel(nil)
		call.ids, call.err = f(ctx)
		c.flightMu.Lock()
		c.land(key, call)
		c.flightMu.Unlock()
		close(call.done)
	})
	return call, nil
}

func (c *Client) isClosed() bool {
	c.flightMu.Lock()
	defer c.flightMu.Unlock()
	return c.closed
}

// land keeps others from joining a call.
func (c *Client) land(key flightKey, call *flight) {
	if c.flights[key] == call {
		delete(c.flights, key)
	}
}

// leave ends a call that nobody waits for any more.
func (c *Client) leave(key flightKey, call *flight) {
	c.flightMu.Lock()
	defer c.flightMu.Unlock()
	call.waiters--
	if call.waiters == 0 {
		c.land(key, call)
		call.cancel(context.Canceled)
	}
}
