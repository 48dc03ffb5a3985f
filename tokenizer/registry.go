package tokenizer

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Renderer turns the body of a chat request into the text that its engine
// tokenizes. An *InvalidError says that the engine would refuse it; any other
// error, that only an engine can tell. Neither holds anything of the request.
type Renderer interface {
	Render(r Request) (Rendered, error)
}

// Rendered is the text of a request.
type Rendered struct {
	Text       string
	AddSpecial bool // special tokens are put around it
	Dated      bool // the time is in it: tomorrow it is another
}

// Parts are what a model's tokenizer is put together from.
type Parts struct {
	JSON    []byte // tokenizer.json, which Encoder was made from
	Encoder Encoder
	Engine  string // which encoder it is, for people: "bpe/qwen2", "hf"
	Source  string // where the files come from, for people; "" keeps what the model was added with

	// Oracle encodes a whole text, added tokens included, as the model's engine
	// does; nil where none is at hand. The tokenizer is held against it once,
	// before it is used.
	Oracle func(text string) ([]uint32, error)

	// Before and After are what add_special_tokens puts around a text.
	Before, After []uint32

	Renderer    Renderer // of chats; nil if there is none
	NoChat      string   // why Renderer is nil
	CloseOracle func()   // frees the oracle after the proof; may be nil
	Limits      string   // what else should be known of it, for people
	MaxLen      int      // longest prompt that the model is made for, in tokens; 0: unknown
}

// Loader makes the parts of a model's tokenizer from its files.
type Loader func(ctx context.Context, source string) (*Parts, error)

// Engines are the running instances of models.
type Engines interface {
	// Tokens asks one of the model's instances, whichever has the least to do,
	// what token ids it computes of a request. An error says why none can tell;
	// an *InvalidError, that the request is refused.
	Tokens(ctx context.Context, model string, r Request) ([]uint32, error)
}

// RegistryOptions configure a Registry.
type RegistryOptions struct {
	Load       Loader
	CacheBytes int // of tokenized beginnings, of all models together

	// Engines are asked where a model has no local tokenizer that is exact, and
	// about a share of all other requests, to see that it still is. May be nil.
	Engines Engines

	// SampleEvery says which share of the requests that are tokenized here an
	// engine is asked about too, off their way: every n-th. 0: none.
	SampleEvery int

	Logger *slog.Logger // nil discards
}

// Registry holds the tokenizers of all models. It is safe for concurrent use.
type Registry struct {
	opts     RegistryOptions
	cache    *Cache
	requests *requestCache
	log      *slog.Logger

	mu     sync.RWMutex
	models map[string]*model
	wg     sync.WaitGroup // loads

	sampler *sampler // nil: nothing is sampled
}

// NewRegistry returns a registry. Close ends what it has begun.
func NewRegistry(o RegistryOptions) *Registry {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Registry{
		opts: o, cache: NewCache(o.CacheBytes), requests: newRequestCache(o.CacheBytes / 4),
		log: o.Logger, models: map[string]*model{},
	}
	if o.Engines != nil && o.SampleEvery > 0 {
		r.sampler = newSampler(r, o.SampleEvery)
	}
	return r
}

// Close waits for what runs in the background. No method may be called
// afterwards.
func (r *Registry) Close() {
	r.wg.Wait()
	if r.sampler != nil {
		r.sampler.close()
	}
}

// CacheStats says what the prefix cache holds and has done.
func (r *Registry) CacheStats() CacheStats { return r.cache.Stats() }

// Add begins to load the tokenizer of a model; until it is there, and if it
// fails, an engine is asked. Wait waits for all of them. ctx ends a load.
func (r *Registry) Add(ctx context.Context, name, source string) {
	r.AddLoader(ctx, name, source, r.opts.Load)
}

// AddLoader is Add with a loader of the model's own.
func (r *Registry) AddLoader(ctx context.Context, name, source string, load Loader) {
	m := &model{name: name, source: source, load: load}
	m.status = Status{State: Loading, Source: source, Reason: "its tokenizer is being loaded"}
	r.mu.Lock()
	r.models[name] = m
	r.mu.Unlock()
	r.wg.Go(func() { r.fill(ctx, m) })
}

// Refuse says that the tokens of a model are not to be had: neither here nor
// of an engine.
func (r *Registry) Refuse(name, reason string) {
	m := &model{name: name}
	m.status = Status{State: Refused, Reason: reason}
	r.mu.Lock()
	r.models[name] = m
	r.mu.Unlock()
}

// ErrNoTokenizer says that a model has no local tokenizer that could be loaded
// again.
var ErrNoTokenizer = errors.New("the model has no local tokenizer")

// Reload reads a model's files again, and waits for that. Until then, and if
// they are no better, the tokenizer that is there stays in use, if one is. All
// proofs are made again.
func (r *Registry) Reload(ctx context.Context, name string) (Status, error) {
	m := r.model(name)
	if m == nil || m.load == nil {
		return Status{}, ErrNoTokenizer
	}
	r.fill(ctx, m)
	st, _ := r.Status(name)
	return st, nil
}

// Wait waits until no tokenizer is being loaded.
func (r *Registry) Wait() { r.wg.Wait() }

// fill loads a model, proves it and says so.
func (r *Registry) fill(ctx context.Context, m *model) {
	m.filling.Lock()
	defer m.filling.Unlock()
	begin := time.Now()
	state, reason := r.load(ctx, m)
	if reason != "" && reason == m.said {
		return // once is enough
	}
	m.said = reason
	log := r.log.With("model", m.name, "source", m.source, "took", time.Since(begin).Round(time.Millisecond))
	if state == Ready {
		st := m.snapshot()
		log.Info("tokenizer loaded", "engine", st.Engine, "proof", st.Proof, "limits", st.Reason)
		return
	}
	log.Error("the tokenizer cannot be used: engines are asked, or texts and chats of the model are answered unknown",
		"state", state, "reason", reason)
}

func (r *Registry) load(ctx context.Context, m *model) (State, string) {
	p, err := m.load(ctx, m.source)
	if err != nil {
		return m.fail(Failed, err.Error()), err.Error()
	}
	if p.CloseOracle != nil {
		defer p.CloseOracle()
	}
	tok, err := New(p.JSON, Options{Encoder: p.Encoder, Cache: r.cache, Before: p.Before, After: p.After})
	if err != nil {
		return m.fail(Failed, err.Error()), err.Error()
	}
	proof, err := prove(tok, p)
	if err != nil {
		m.mismatch(StageLoad)
		return m.fail(Quarantined, err.Error()), err.Error()
	}
	if old := m.ready(tok, p, proof); old != nil {
		r.requests.forget(old)
	}
	return Ready, ""
}

// Names returns the models that have an entry, sorted.
func (r *Registry) Names() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	names := make([]string, 0, len(r.models))
	for n := range r.models {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Status returns how the tokenizer of a model is doing; ok is false if it has
// none.
func (r *Registry) Status(name string) (Status, bool) {
	m := r.model(name)
	if m == nil {
		return Status{}, false
	}
	return m.snapshot(), true
}

func (r *Registry) model(name string) *model {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.models[name]
}
