package hub

import (
	"log/slog"
	"sync"
	"time"
)

// progressEvery is how often a download says how far it is.
const progressEvery = 2 * time.Second

// progress logs what takes long, and where it is.
type progress struct {
	log  *slog.Logger
	stop chan struct{}
	done sync.WaitGroup

	mu    sync.Mutex
	what  string
	bytes int64
	size  int64
}

// startProgress logs with every tick until it is closed.
func startProgress(log *slog.Logger, ticks <-chan time.Time) *progress {
	p := &progress{log: log, stop: make(chan struct{}), what: "the hub's answer", size: -1}
	p.done.Go(func() {
		for {
			select {
			case <-ticks:
				p.say()
			case <-p.stop:
				return
			}
		}
	})
	return p
}

func (p *progress) close() {
	close(p.stop)
	p.done.Wait()
}

func (p *progress) say() {
	p.mu.Lock()
	what, bytes, size := p.what, p.bytes, p.size
	p.mu.Unlock()
	p.log.Info("still getting a model's files", "waiting_for", what, "bytes", bytes, "of", size)
}

// at begins another step of a size in bytes, -1 if that is not known.
func (p *progress) at(what string, size int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.what, p.bytes, p.size = what, 0, size
}

func (p *progress) reset(bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bytes = bytes
}

// Write counts bytes.
func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bytes += int64(len(b))
	return len(b), nil
}
