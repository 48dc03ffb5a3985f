package remote

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// scrapedFor is how long a target's load is looked at after the target was
	// last up for choice.
	scrapedFor = time.Minute
	// scrapers is how many targets are looked at at once.
	scrapers = 16
)

// want notes that a target is up for choice, and wakes the scraper if it did not
// look at it lately.
func (c *Client) want(s *target, now time.Time) {
	idle := s.wanted.IsZero() || now.Sub(s.wanted) > scrapedFor
	s.wanted = now
	if !idle {
		return
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// scrapeLoop looks at the load of all targets that are of interest, until the
// context ends. While there is none, it sleeps.
func (c *Client) scrapeLoop(ctx context.Context) {
	tick := time.NewTicker(c.o.ScrapeEvery)
	defer tick.Stop()
	for {
		due, active := c.due()
		c.scrapeAll(ctx, due)
		ticks := tick.C
		if !active {
			ticks = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		case <-ticks:
		}
	}
}

// due returns the targets to look at now, and whether any is of interest at all.
// Targets of the past are forgotten.
func (c *Client) due() (due []targetKey, active bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	for key, s := range c.targets {
		if s.inFlight == 0 && now.Sub(s.used) > keptFor {
			delete(c.targets, key)
			continue
		}
		if s.wanted.IsZero() || now.Sub(s.wanted) > scrapedFor {
			continue
		}
		active = true
		// The ticker may be a little early.
		if s.scraped.IsZero() || now.Sub(s.scraped) >= c.o.ScrapeEvery*9/10 {
			s.scraped = now
			due = append(due, key)
		}
	}
	return due, active
}

// scrapeAll looks at targets, some at a time.
func (c *Client) scrapeAll(ctx context.Context, due []targetKey) {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, scrapers)
	for _, key := range due {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		wg.Go(func() {
			defer func() { <-slots }()
			load, err := c.scrape(ctx, key)
			if err != nil {
				return // the load becomes unknown when the last one is too old
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			if s := c.targets[key]; s != nil {
				s.load, s.loadAt = load, c.now()
			}
		})
	}
}

// scrape reads the load of one target.
func (c *Client) scrape(ctx context.Context, key targetKey) (Load, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.ScrapeTimeout)
	defer cancel()
	req, err := c.newRequest(ctx, http.MethodGet, Target{ID: key.id, URL: key.url}, pathMetrics, nil)
	if err != nil {
		return Load{}, err
	}
	req.Header.Set("Accept", "text/plain;version=0.0.4")
	resp, err := c.http.Do(req)
	if err != nil {
		return Load{}, fmt.Errorf("cannot read the load of %q: %w", key.id, err)
	}
	defer func() {
		_, _ = io.CopyN(io.Discard, resp.Body, maxRefusal) // so that the connection is kept
		_ = resp.Body.Close()
	}()
	if resp.StatusCode != http.StatusOK {
		return Load{}, fmt.Errorf("cannot read the load of %q: status %d", key.id, resp.StatusCode)
	}
	return parseMetrics(resp.Body)
}
