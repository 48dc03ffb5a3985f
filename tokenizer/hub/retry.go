package hub

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"time"
)

// Pauses before another attempt double from the first up to the last. A server
// that wants a longer one than maxPause is not waited for.
const (
	firstPause = time.Second
	lastPause  = 30 * time.Second
	maxPause   = 5 * time.Minute
)

// retry calls f until it succeeds, fails for good, or has failed too often.
func (c *Cache) retry(ctx context.Context, retries int, what string, f func() error) error {
	for attempt := 0; ; attempt++ {
		err := f()
		var again *temporaryError
		if err == nil || !errors.As(err, &again) || attempt >= retries || ctx.Err() != nil {
			return err
		}
		pause := c.pause(attempt, again.after)
		if pause > maxPause {
			return err
		}
		c.o.Logger.Warn("trying again to get a model's files",
			"file", what, "pause", pause.Round(time.Millisecond), "attempt", attempt+2, "of", retries+1, "reason", err)
		if err := c.sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// pause is how long to wait after a failed attempt, the first of which is 0.
func (c *Cache) pause(attempt int, after string) time.Duration {
	if n, err := strconv.Atoi(after); err == nil && n >= 0 {
		return min(time.Duration(min(n, int(2*maxPause/time.Second)))*time.Second, 2*maxPause)
	}
	if t, err := http.ParseTime(after); err == nil {
		return max(t.Sub(c.now()), firstPause)
	}
	d := min(firstPause<<min(attempt, 10), lastPause)
	return d/2 + rand.N(d/2)
}

// rateLimit is what the hub sends with every answer, such as
// `"api";r=0;t=55`: r requests are left, and t seconds until there are more
// (draft-ietf-httpapi-ratelimit-headers).
var rateLimit = regexp.MustCompile(`;\s*r\s*=\s*0\s*;\s*t\s*=\s*(\d+)`)

// rateLimitReset is in how many seconds there are requests again, or "".
func rateLimitReset(header string) string {
	if m := rateLimit.FindStringSubmatch(header); m != nil {
		return m[1]
	}
	return ""
}

// sleep waits, or returns the context's error.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
