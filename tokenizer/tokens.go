package tokenizer

import (
	"context"
	"errors"
)

// Tokens returns the token ids that an instance of the model computes of a
// request: those of its tokenizer here if that has proved exact, else of a
// running instance. An *UnknownError says why they cannot be told, an
// *InvalidError that an engine would refuse the request.
func (r *Registry) Tokens(ctx context.Context, name string, req Request) (Tokens, Source, error) {
	m := r.model(name)
	if m == nil {
		m = r.byEngine(name)
	}
	tokens, source, err := r.tokens(ctx, m, req)
	if err != nil {
		m.unknown.Add(1)
		return Tokens{}, "", err
	}
	m.count(source)
	return tokens, source, nil
}

// byEngine returns an entry for a model that has none: engines are asked. It is
// not kept: clients must not fill the registry with invented names.
func (r *Registry) byEngine(name string) *model {
	m := &model{name: name}
	m.status = Status{State: ByEngine, Reason: "no tokenizer is configured for the model (models[].tokenizer)"}
	return m
}

func (r *Registry) tokens(ctx context.Context, m *model, req Request) (Tokens, Source, error) {
	tok, renderer, why := m.local()
	if tok == nil {
		return r.ask(ctx, m, req, why)
	}
	key := newRequestKey(tok, req)
	if t, ok := r.requests.get(key); ok {
		return t, SourceRequestCache, nil
	}
	prompt, err := render(renderer, req)
	if invalid := (*InvalidError)(nil); errors.As(err, &invalid) {
		return Tokens{}, "", err
	}
	if err != nil {
		return r.ask(ctx, m, req, err.Error())
	}
	t, err := tok.Encode(prompt.Text, prompt.AddSpecial)
	if err != nil {
		return r.ask(ctx, m, req, "the text cannot be tokenized here: "+err.Error())
	}
	m.cached.Add(uint64(t.Cached))
	m.computed.Add(uint64(t.Count - t.Cached))
	if !prompt.Dated {
		r.requests.put(key, t)
	}
	if r.sampler != nil {
		r.sampler.offer(m, tok, req)
	}
	if t.Cached > 0 {
		return t, SourcePrefixCache, nil
	}
	return t, SourceTokenizer, nil
}

// render returns the text that a request comes to.
func render(renderer Renderer, req Request) (Rendered, error) {
	if !req.Kind.Chat() {
		return req.prompt()
	}
	return renderer.Render(req)
}

// ask asks an engine, for the reason why.
func (r *Registry) ask(ctx context.Context, m *model, req Request, why string) (Tokens, Source, error) {
	if r.opts.Engines == nil || m.snapshotState() == Refused {
		return Tokens{}, "", &UnknownError{why}
	}
	ids, err := r.opts.Engines.Tokens(ctx, m.name, req)
	if invalid := (*InvalidError)(nil); errors.As(err, &invalid) {
		return Tokens{}, "", err
	}
	if err != nil {
		return Tokens{}, "", &UnknownError{why + "; and no engine can be asked: " + err.Error()}
	}
	return Tokens{tail: ids, Count: len(ids)}, SourceEngine, nil
}

func (m *model) snapshotState() State {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.status.State
}
