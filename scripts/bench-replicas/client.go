package main

import (
	"context"
	"sync"
	"time"
)

// The client of a load balancer asks so often, and the balancer looks at /readyz
// so often.
const (
	askEvery   = 5 * time.Millisecond
	readyEvery = 20 * time.Millisecond
)

// client asks any replica that is ready for the system prompts, which every
// engine holds all the time, and the next replica where the first fails.
type client struct {
	fleet *fleet

	mu       sync.Mutex
	replicas []*replica
	ready    map[*replica]bool

	// Of the run.
	asked    int           // answered or not
	again    int           // a replica that was thought ready failed, the next one answered
	failed   int           // no replica answered
	less     int           // not all that the engines hold was in the answer
	unmarked int           // ... and nothing said that it might not be all
	marked   int           // answers that were not called exact
	blind    time.Duration // no replica was ready
}

// replace puts a replica in the place of another.
func (c *client) replace(i int, r *replica) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.ready, c.replicas[i])
	c.replicas[i] = r
}

// start asks until stop is called.
func (c *client) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	c.ready = map[*replica]bool{}
	var wg sync.WaitGroup
	c.look()
	wg.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(readyEvery) {
			if !c.look() {
				c.blind += readyEvery
			}
		}
	})
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			c.query(i)
			time.Sleep(askEvery)
		}
	})
	return func() { cancel(); wg.Wait() }
}

// look asks every replica whether it is ready, and reports whether any is.
func (c *client) look() (found bool) {
	c.mu.Lock()
	list := append([]*replica(nil), c.replicas...)
	c.mu.Unlock()
	for _, r := range list {
		ready := r.ready()
		found = found || ready
		c.mu.Lock()
		c.ready[r] = ready
		c.mu.Unlock()
	}
	return found
}

func (c *client) query(i int) {
	c.mu.Lock()
	var list []*replica
	for _, r := range c.replicas {
		if c.ready[r] {
			list = append(list, r)
		}
	}
	c.mu.Unlock()
	c.asked++
	body := queryBody(c.fleet.system[i%systemPrompts], "")
	for k := range list {
		a, err := list[(i/systemPrompts+k)%len(list)].query(body)
		if err != nil {
			continue
		}
		if k > 0 {
			c.again++
		}
		c.judge(a)
		return
	}
	c.failed++
}

func (c *client) judge(a answer) {
	whole := true
	for _, e := range c.fleet.engines {
		whole = whole && a.Instances[e.id].Matched == systemBlocks
	}
	if a.State != "exact" {
		c.marked++
	}
	if !whole {
		c.less++
		if a.State == "exact" {
			c.unmarked++
		}
	}
}
