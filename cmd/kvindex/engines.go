package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/kvindex/kvindex/events"
	"github.com/kvindex/kvindex/tokenizer"
	"github.com/kvindex/kvindex/tokenizer/remote"
)

// engines asks the instances that are followed what tokens they compute. It
// implements tokenizer.Engines.
type engines struct {
	client *remote.Client
	fleet  *events.Fleet
}

func newEngines(f *events.Fleet, log *slog.Logger) (*engines, error) {
	e := &engines{fleet: f}
	var err error
	e.client, err = remote.New(remote.Options{Targets: e.targets, Logger: log})
	return e, err
}

// targets are the instances of a model that have a URL.
func (e *engines) targets(model string) []remote.Target {
	var list []remote.Target
	for _, in := range e.fleet.Instances() {
		if spec := in.Spec(); spec.Model == model && spec.URL != "" {
			list = append(list, remote.Target{ID: spec.ID, URL: spec.URL, Model: spec.Model})
		}
	}
	return list
}

// Tokens implements tokenizer.Engines.
func (e *engines) Tokens(ctx context.Context, model string, r tokenizer.Request) ([]uint32, error) {
	ids, err := e.client.Tokens(ctx, model, remoteKind(r.Kind), r.Body)
	return ids, remoteError(err)
}

func remoteKind(k tokenizer.Kind) remote.Kind {
	switch k {
	case tokenizer.ChatCompletions:
		return remote.Chat
	case tokenizer.TokenizeChat:
		return remote.TokenizeChat
	case tokenizer.TokenizePrompt:
		return remote.TokenizePrompt
	}
	return remote.Completion
}

func remoteError(err error) error {
	if errors.Is(err, remote.ErrRefused) || errors.Is(err, remote.ErrBody) {
		return &tokenizer.InvalidError{Reason: err.Error()}
	}
	return err
}

// prover holds local tokenizers against every instance that has a URL: at
// first contact, and now and then.
type prover struct {
	engines  *engines
	registry *tokenizer.Registry
	every    time.Duration // between two proofs of one instance

	wg  sync.WaitGroup
	due map[proofKey]proofDue
}

// proofKey is a model's tokenizer and an instance of the model.
type proofKey struct{ model, instance, url string }

type proofDue struct {
	at    time.Time
	pause time.Duration // after the last failure
}

// How often instances are looked through, and how long one that cannot be asked
// is left alone.
const (
	proofTick     = time.Second
	proofPause    = 2 * time.Second
	proofMaxPause = time.Minute
)

// start proves until ctx ends; wait waits for that.
func (p *prover) start(ctx context.Context) {
	p.due = map[proofKey]proofDue{}
	p.wg.Go(func() {
		tick := time.NewTicker(proofTick)
		defer tick.Stop()
		for {
			p.round(ctx)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
}

func (p *prover) wait() { p.wg.Wait() }

// round proves what is due.
func (p *prover) round(ctx context.Context) {
	there := map[proofKey]bool{}
	for _, in := range p.engines.fleet.Instances() {
		spec := in.Spec()
		st, local := p.registry.Status(spec.Model)
		if spec.URL == "" || !local || st.State != tokenizer.Ready {
			continue
		}
		key := proofKey{spec.Model, spec.ID, spec.URL}
		there[key] = true
		_, proved := st.Engines[spec.ID] // not after a reload
		if due, known := p.due[key]; known && proved && time.Now().Before(due.at) {
			continue
		}
		target := remote.Target{ID: spec.ID, URL: spec.URL, Model: spec.Model}
		_, done := p.registry.ProveWith(ctx, spec.Model, spec.ID, func(ctx context.Context, r tokenizer.Request) ([]uint32, error) {
			ids, err := p.engines.client.TokensFrom(ctx, target, remoteKind(r.Kind), r.Body)
			return ids, remoteError(err)
		})
		if ctx.Err() != nil {
			return
		}
		next := proofDue{pause: min(max(2*p.due[key].pause, proofPause), proofMaxPause)}
		if done {
			next = proofDue{at: time.Now().Add(p.every)}
		} else {
			next.at = time.Now().Add(next.pause)
		}
		p.due[key] = next
	}
	for key := range p.due {
		if !there[key] {
			delete(p.due, key)
			p.registry.ForgetEngine(key.model, key.instance)
		}
	}
}
