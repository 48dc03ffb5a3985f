//go:build cgo && !nohf && (amd64 || arm64)

package hf

import (
	"slices"
	"sync"
)

// gate admits calls, first come first served, while a number of slots and a number of bytes last, and counts those
// that it has admitted until it is closed. It is safe for concurrent use.
type gate struct {
	mu      sync.Mutex
	slots   int // free
	bytes   int // free
	closed  bool
	waiting []*waiter // in order of arrival
	calls   sync.WaitGroup
}

// waiter is a call that waits. ready is closed when it is admitted, or when the gate is closed.
type waiter struct {
	size     int
	ready    chan struct{}
	admitted bool // valid once ready is closed
}

func newGate(slots, bytes int) *gate { return &gate{slots: slots, bytes: bytes} }

// enter waits for a slot and size bytes; size must not be more than the gate has. It returns ErrClosed if the gate is
// or gets closed meanwhile. Otherwise leave must follow.
func (g *gate) enter(size int) error {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return ErrClosed
	}
	if len(g.waiting) == 0 && g.fits(size) {
		g.take(size)
		g.mu.Unlock()
		return nil
	}
	w := &waiter{size: size, ready: make(chan struct{})}
	g.waiting = append(g.waiting, w)
	g.mu.Unlock()

	<-w.ready
	if !w.admitted {
		return ErrClosed
	}
	return nil
}

// leave gives back what enter took.
func (g *gate) leave(size int) {
	g.mu.Lock()
	g.slots++
	g.bytes += size
	for len(g.waiting) > 0 && g.fits(g.waiting[0].size) {
		w := g.waiting[0]
		g.waiting = slices.Delete(g.waiting, 0, 1)
		g.take(w.size)
		w.admitted = true
		close(w.ready)
	}
	g.mu.Unlock()
	g.calls.Done()
}

// close makes calls that wait and later ones fail, and waits for those that were admitted.
func (g *gate) close() {
	g.mu.Lock()
	g.closed = true
	for _, w := range g.waiting {
		close(w.ready)
	}
	g.waiting = nil
	g.mu.Unlock()
	g.calls.Wait()
}

// fits and take are called with mu held.
func (g *gate) fits(size int) bool { return g.slots > 0 && g.bytes >= size }

func (g *gate) take(size int) {
	g.slots--
	g.bytes -= size
	g.calls.Add(1)
}
