package remote

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// keptFor is how long a target that is not asked any more is remembered.
const keptFor = 15 * time.Minute

// targetKey tells targets apart: an instance with another URL is another one.
type targetKey struct{ id, url string }

// target is what is known of an engine. The client's mu guards it.
type target struct {
	key      targetKey
	breaker  breaker
	inFlight int
	requests uint64
	failures uint64

	used   time.Time // when it was last asked, or up for choice
	wanted time.Time // when it was last up for choice: then its load is of interest

	load    Load
	loadAt  time.Time // when load was true; zero if it never was known
	scraped time.Time // when the last look at it began

	noRender [numKinds]time.Time // until when /render is not asked for
	endpoint [numKinds]string    // which endpoint told tokens last
}

// use is a request at a target, from choose or use to done.
type use struct {
	Target
	target *target
	probe  bool // it is the one that tries whether the target works again
}

// state finds or makes what is known of a target.
func (c *Client) state(t *Target) *target {
	key := targetKey{t.ID, t.URL}
	s := c.targets[key]
	if s == nil {
		s = &target{key: key}
		c.targets[key] = s
	}
	s.used = c.now()
	return s
}

// use begins a request at a certain target.
func (c *Client) use(t Target) (use, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.state(&t)
	if c.inFlight >= c.o.MaxInFlight || s.inFlight >= c.o.MaxPerTarget {
		return use{}, c.tooMany()
	}
	return c.begin(t, s), nil
}

func (c *Client) tooMany() error {
	return fmt.Errorf("%w: too many requests are in flight", ErrSaturated)
}

func (c *Client) begin(t Target, s *target) use {
	c.inFlight++
	s.inFlight++
	s.requests++
	probe := s.breaker.ready(c.now()) && s.breaker.claim()
	return use{Target: t, target: s, probe: probe}
}

// candidate is a target that may be asked.
type candidate struct {
	Target
	state      *target
	lastResort bool // it can tell the request's tokens only if it has been changed
	unknown    bool // its load is not known
}

// choose begins a request at the target that has least to do, except at one.
func (c *Client) choose(targets []Target, r *request, except *target) (use, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inFlight >= c.o.MaxInFlight {
		return use{}, c.tooMany()
	}
	var (
		now              = c.now()
		found            = make([]candidate, 0, len(targets))
		saturated, total int
	)
	for _, t := range targets {
		if t.URL == "" {
			continue
		}
		s := c.state(&t)
		c.want(s, now)
		if s == except {
			continue
		}
		total++
		known := c.knows(s, now)
		switch {
		case !s.breaker.ready(now):
		case s.inFlight >= c.o.MaxPerTarget, known && s.load.Waiting > float64(c.o.MaxWaiting):
			saturated++
		default:
			lastResort := now.Before(s.noRender[r.kind]) && (t.RenderOnly || r.onlyRender != "")
			found = append(found, candidate{t, s, lastResort, !known})
		}
	}
	switch {
	case len(found) > 0:
		best := leastLoaded(found)
		return c.begin(best.Target, best.state), nil
	case total == 0:
		return use{}, ErrNoTarget
	case saturated > 0:
		return use{}, fmt.Errorf("%w: %d of %d", ErrSaturated, saturated, total)
	}
	return use{}, fmt.Errorf("%w: all %d failed a moment ago", ErrUnavailable, total)
}

// leastLoaded is a random one of the best.
func leastLoaded(found []candidate) candidate {
	rand.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
	return slices.MinFunc(found, func(a, b candidate) int {
		if a.lastResort != b.lastResort || a.unknown != b.unknown {
			return cmp.Or(compareBool(a.lastResort, b.lastResort), compareBool(a.unknown, b.unknown))
		}
		if a.unknown {
			return 0
		}
		return cmp.Or(cmp.Compare(a.state.load.Waiting, b.state.load.Waiting), cmp.Compare(a.state.load.Running, b.state.load.Running))
	})
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// knows says whether a target's load is one of late.
func (c *Client) knows(s *target, now time.Time) bool {
	return !s.loadAt.IsZero() && now.Sub(s.loadAt) <= 3*c.o.ScrapeEvery+c.o.ScrapeTimeout
}

// done ends a request at a target.
func (c *Client) done(u use, err error) {
	c.mu.Lock()
	c.inFlight--
	s := u.target
	s.inFlight--
	before := s.breaker.open()
	switch outcome(err) {
	case worked:
		s.breaker.succeed()
	case failed:
		s.failures++
		s.breaker.fail(c.now(), u.probe)
	case unclear:
		if u.probe {
			s.breaker.release()
		}
	}
	after, pause := s.breaker.open(), s.breaker.pause
	c.mu.Unlock()
	switch {
	case after && !before:
		c.log.Warn("engine fails: it is not asked for tokens for a while", "instance", u.ID, "pause", pause, "reason", err)
	case before && !after:
		c.log.Info("engine is asked for tokens again", "instance", u.ID)
	}
}
