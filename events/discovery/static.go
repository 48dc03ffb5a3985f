package discovery

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/kvindex/kvindex/events"
)

// Static follows a fixed list of instances. Those of which only the URL is
// known are asked to describe themselves, again and again until they do.
type Static struct {
	Fleet  *events.Fleet
	Client *http.Client
	Logger *slog.Logger

	mu      sync.Mutex
	waiting map[string]string // id or URL -> what it is waiting for
	wg      sync.WaitGroup
}

// Start follows the instances that are complete, and begins to ask the
// others. It returns the first contradiction among the specs. Asking ends
// with ctx; Wait waits for that.
func (s *Static) Start(ctx context.Context, specs []events.InstanceSpec) error {
	s.mu.Lock()
	s.waiting = map[string]string{}
	s.mu.Unlock()
	for _, spec := range specs {
		if len(spec.Streams) > 0 && spec.Model != "" && spec.ID != "" {
			if _, err := s.Fleet.Add(spec); err != nil {
				return err
			}
			continue
		}
		s.setWaiting(spec, "to be asked")
		s.wg.Go(func() { s.ask(ctx, spec) })
	}
	return nil
}

// Wait returns when no engine is being asked any more.
func (s *Static) Wait() { s.wg.Wait() }

// Waiting says which instances have not described themselves yet, and why.
func (s *Static) Waiting() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for name, why := range s.waiting {
		out = append(out, name+": "+why)
	}
	return out
}

func (s *Static) setWaiting(spec events.InstanceSpec, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := spec.ID
	if name == "" {
		name = spec.URL
	}
	if why == "" {
		delete(s.waiting, name)
		return
	}
	s.waiting[name] = why
}

// Bounds of the pause between two questions to an engine.
const (
	firstPause = time.Second
	lastPause  = 30 * time.Second
)

func (s *Static) ask(ctx context.Context, spec events.InstanceSpec) {
	said := ""
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		actx, cancel := context.WithTimeout(ctx, 5*time.Second)
		full, err := Describe(actx, s.Client, spec)
		cancel()
		if err == nil {
			_, err = s.Fleet.Add(full)
		}
		if err == nil {
			s.setWaiting(spec, "")
			s.Logger.Info("the engine described itself", "instance", full.ID, "model", full.Model, "dp_ranks", len(full.Streams))
			return
		}
		if ctx.Err() != nil {
			return
		}
		s.setWaiting(spec, err.Error())
		if msg := err.Error(); msg != said {
			said = msg
			s.Logger.Warn("an instance cannot be followed yet; trying again", "instance", spec.ID, "url", spec.URL, "error", msg)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}
