package kthena

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/kvindex/kvindex/indexer/snapshot/redistest"
)

// TestBounded: a Redis that stalls costs each match its deadline, a few times;
// then nothing, until a match that tries again succeeds.
func TestBounded(t *testing.T) {
	srv := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: srv.Addr, ContextTimeoutEnabled: true, MaxRetries: -1})
	defer client.Close()
	hashes := FlatHashes(counting(64), 16)
	ok(t, client.HSet(t.Context(), Key("m", hashes[0]), "a.ns", "1703123456").Err())
	r, err := NewReader(Options{Client: client})
	ok(t, err)
	const timeout, pause = 150 * time.Millisecond, 700 * time.Millisecond
	b := NewBounded(r, Bounds{Timeout: timeout, Failures: 2, Pause: pause})
	f := func(what string, wrong error, least, most time.Duration) {
		t.Helper()
		begin := time.Now()
		m, err := b.Match(t.Context(), "m", hashes)
		took := time.Since(begin)
		switch {
		case wrong == nil && (err != nil || m.Pods["a.ns"].Blocks != 1),
			wrong != nil && (err == nil || errors.Is(wrong, ErrOpen) != errors.Is(err, ErrOpen)),
			took < least, took > most:
			t.Errorf("%s: %+v, %v after %v; want %v after %v to %v", what, m, err, took, wrong, least, most)
		}
	}
	late := errors.New("late")
	f("well", nil, 0, timeout)
	srv.Pause()
	f("stalled", late, timeout, 5*timeout)
	f("stalled again", late, timeout, 5*timeout)
	begin := time.Now()
	f("open", ErrOpen, 0, timeout/2)
	f("still open", ErrOpen, 0, timeout/2)
	time.Sleep(time.Until(begin.Add(pause)))
	f("one tries", late, timeout, 5*timeout)
	begin = time.Now()
	f("open again", ErrOpen, 0, timeout/2)
	srv.Resume()
	time.Sleep(time.Until(begin.Add(pause)))
	f("well again", nil, 0, timeout)
	f("and on", nil, 0, timeout)

	// Callers who go do not count.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 5 {
		if _, err := b.Match(ctx, "m", hashes); err == nil {
			t.Error("no error")
		}
	}
	f("the others are not kept out", nil, 0, timeout)
}
