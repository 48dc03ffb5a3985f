package load

import (
	"net"
	"sync"
	"time"
)

// closer holds a connection that another goroutine may close, so that a run
// that is cancelled does not wait for answers.
type closer struct {
	fresh bool // dialled since the owner last looked; the owner's

	mu   sync.Mutex
	nc   net.Conn
	over bool // no new one any more
}

// get returns the connection, a new one if there is none.
func (c *closer) get(addr string, timeout time.Duration) (net.Conn, error) {
	c.mu.Lock()
	nc, over := c.nc, c.over
	c.mu.Unlock()
	if nc != nil {
		return nc, nil
	}
	if over {
		return nil, net.ErrClosed
	}
	nc, err := net.DialTimeout("tcp", addr, timeout)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		_ = nc.Close()
		return nil, net.ErrClosed
	}
	c.nc, c.fresh = nc, true
	return nc, nil
}

// close closes the connection, for good if over.
func (c *closer) close(over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = c.over || over
	if c.nc != nil {
		_ = c.nc.Close()
		c.nc = nil
	}
}
