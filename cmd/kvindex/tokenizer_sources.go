package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/kvindex/kvindex/tokenizer"
	"github.com/kvindex/kvindex/tokenizer/hub"
)

// What models[].tokenizer may be beside a directory and the name of a model on
// a hub.
const (
	noTokenizer     = "none"   // requests of the model carry token ids
	autoTokenizer   = "auto"   // the hub's files of the model's own name
	engineTokenizer = "engine" // instances of the model are asked
)

// tokenizerSource is where the files of a model come from: a directory or the
// name of a model on a hub; "" is neither.
func (m *modelConfig) tokenizerSource() string {
	switch m.Tokenizer {
	case noTokenizer, engineTokenizer:
		return ""
	case autoTokenizer:
		return m.Name
	}
	return m.Tokenizer
}

// validateTokenizer says what is wrong with models[].tokenizer.
func (m *modelConfig) validateTokenizer() error {
	source := m.tokenizerSource()
	if source == "" {
		return nil
	}
	if hub.IsDirectory(source) {
		if _, err := os.Stat(filepath.Join(source, "tokenizer.json")); err != nil {
			return fmt.Errorf("%q is no directory with a tokenizer.json", source)
		}
		return nil
	}
	if _, err := hub.ParseSource(source); err != nil {
		return fmt.Errorf("%q is neither a directory with a tokenizer.json, nor a hub's name of a model (Org/Name, Org/Name@revision), nor one of %s, %s, %s",
			m.Tokenizer, autoTokenizer, engineTokenizer, noTokenizer)
	}
	return nil
}

// newHub returns the cache of a hub's files; its settings that the
// configuration leaves empty are those of the HF_ variables.
func newHub(c hubConfig, log *slog.Logger) (*hub.Cache, error) {
	o, err := hub.Options{Dir: c.CacheDir, Endpoint: c.Endpoint, LocalOnly: c.LocalFilesOnly, Logger: log}.FromEnv(os.Getenv)
	if err != nil {
		return nil, err
	}
	if c.TokenFile != "" {
		b, err := os.ReadFile(c.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("cannot read tokenizer.hub.token_file: %w", err)
		}
		o.Token = hub.Secret(strings.TrimSpace(string(b)))
	}
	return hub.New(o)
}

// hubLoader is a tokenizer.Loader for directories and for models on a hub.
func hubLoader(h *hub.Cache) tokenizer.Loader {
	return func(ctx context.Context, source string) (*tokenizer.Parts, error) {
		found, err := h.Locate(ctx, source)
		if err != nil {
			return nil, err
		}
		p, err := loadTokenizer(ctx, found.Dir)
		if err != nil {
			return nil, err
		}
		if found.Commit != "" {
			p.Source = fmt.Sprintf("%s at %s (%s)", source, found.Commit, found.Origin)
			if len(found.Unchecked) > 0 {
				p.Limits = "the hub could not be asked whether there is more: " + strings.Join(found.Unchecked, ", ")
			}
		}
		return p, nil
	}
}

// reloader tries again what could not be loaded, less and less often: a hub
// may have been out of reach, a volume not mounted.
type reloader struct {
	registry *tokenizer.Registry
	wg       sync.WaitGroup
}

// How long it waits before it tries a failed load again.
const (
	reloadPause    = 15 * time.Second
	reloadMaxPause = 10 * time.Minute
)

func (r *reloader) start(ctx context.Context) {
	r.wg.Go(func() {
		for pause := reloadPause; ; pause = min(2*pause, reloadMaxPause) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			for _, name := range r.registry.Names() {
				if st, _ := r.registry.Status(name); st.State == tokenizer.Failed {
					_, _ = r.registry.Reload(ctx, name) // says itself what comes of it
				}
			}
		}
	})
}

func (r *reloader) wait() { r.wg.Wait() }
