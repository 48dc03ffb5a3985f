package main

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kvindex/kvindex/indexer/snapshot"
)

// restoring is how far the restoring of a snapshot has come: for those who wait,
// and for the log. The zero value is one that has not begun.
type restoring struct {
	mu    sync.Mutex
	at    snapshot.Progress
	whole time.Time // when all of it had been read
}

// moved is told of progress.
func (r *restoring) moved(p snapshot.Progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at, r.whole = p, time.Time{}
	if p.Whole {
		r.whole = time.Now()
	}
}

// String says how far it has come.
func (r *restoring) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	const mib = 1 << 20
	switch p := r.at; {
	case p.Source == "":
		return "snapshot: looking for one"
	case p.Whole:
		return fmt.Sprintf("snapshot: restoring from %s, all of its %d MiB read, building the index for %v",
			p.Source, (p.Bytes+mib-1)/mib, time.Since(r.whole).Round(time.Second))
	case p.Size > 0:
		return fmt.Sprintf("snapshot: restoring from %s, %d of %d MiB", p.Source, p.Bytes/mib, (max(p.Size, p.Bytes)+mib-1)/mib)
	default:
		return fmt.Sprintf("snapshot: restoring from %s, %d MiB so far", p.Source, p.Bytes/mib)
	}
}

// log says so every 2 seconds until stop is called.
func (r *restoring) log(l *slog.Logger) (stop func()) {
	over, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(2 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
				l.Info("still restoring: nothing is known until that is done", "progress", r.String())
			}
		}
	}()
	return func() { close(over); <-gone }
}
