package tokenizer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// Renderer turns the body of a request into the text that its engine
// tokenizes, and says whether special tokens are put around it.
type Renderer interface {
	Render(body []byte) (text string, addSpecial bool, err error)
}

// Parts are what a model's tokenizer is put together from.
type Parts struct {
	JSON    []byte // tokenizer.json, which Encoder was made from
	Encoder Encoder
	Engine  string // which encoder it is, for people: "bpe/qwen2", "hf"

	// Oracle encodes a whole text, added tokens included, as the model's engine
	// does; nil where none is at hand. The tokenizer is held against it once,
	// before it is used.
	Oracle func(text string) ([]uint32, error)

	// Before and After are what add_special_tokens puts around a text.
	Before, After []uint32

	Renderer    Renderer // of chats; nil if there is none
	NoChat      string   // why Renderer is nil
	CloseOracle func()   // frees the oracle after the proof; may be nil
}

// Loader makes the parts of a model's tokenizer from its files.
type Loader func(ctx context.Context, source string) (*Parts, error)

// State of a model's tokenizer.
type State string

// The states of a tokenizer.
const (
	Loading State = "loading"
	Ready   State = "ready"
	Failed  State = "failed" // no files, or files that cannot be used
	// Quarantined: it gave other ids than its oracle. It is not used.
	Quarantined State = "quarantined"
)

// Status says how a model's tokenizer is doing.
type Status struct {
	State    State
	Reason   string // why it is not Ready, or what is limited
	Source   string // where it comes from
	Engine   string
	Proof    string // what showed that it is exact
	Requests uint64 // texts tokenized
	Failures uint64 // requests whose tokens could not be told
}

// UnknownError says why the tokens of a request are not known: kvindex then
// answers so, and never guesses.
type UnknownError struct{ Reason string }

func (e *UnknownError) Error() string { return e.Reason }

// Registry holds the tokenizers of all models. It is safe for concurrent use.
type Registry struct {
	cache *Cache
	load  Loader
	log   *slog.Logger

	mu     sync.RWMutex
	models map[string]*model
	wg     sync.WaitGroup
}

// model is one model's tokenizer.
type model struct {
	mu       sync.RWMutex
	status   Status
	tok      *Tokenizer
	renderer Renderer
	noChat   string
}

// NewRegistry returns a registry whose tokenizers share a cache of the given
// size in bytes. log may be nil.
func NewRegistry(load Loader, cacheBytes int, log *slog.Logger) *Registry {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Registry{cache: NewCache(cacheBytes), load: load, log: log, models: map[string]*model{}}
}

// Cache returns the registry's cache, for its statistics.
func (r *Registry) Cache() *Cache { return r.cache }

// Add begins to load the tokenizer of a model; until it is there, and if it
// fails, Tokenize says so. Wait waits for all of them.
func (r *Registry) Add(ctx context.Context, name, source string) {
	r.AddLoader(ctx, name, source, r.load)
}

// AddLoader is Add with a loader of the model's own.
func (r *Registry) AddLoader(ctx context.Context, name, source string, load Loader) {
	m := &model{status: Status{State: Loading, Source: source, Reason: "its tokenizer is being loaded"}}
	r.mu.Lock()
	r.models[name] = m
	r.mu.Unlock()
	r.wg.Go(func() {
		begin := time.Now()
		r.fill(ctx, m, source, load)
		st, _ := r.Status(name)
		log := r.log.With("model", name, "source", source, "state", st.State, "took", time.Since(begin).Round(time.Millisecond))
		if st.State == Ready {
			log.Info("tokenizer loaded", "engine", st.Engine, "proof", st.Proof)
			return
		}
		log.Error("no tokenizer: text and chats of this model are answered unknown", "reason", st.Reason)
	})
}

// Wait waits until no tokenizer is being loaded.
func (r *Registry) Wait() { r.wg.Wait() }

// fill loads a model and proves it.
func (r *Registry) fill(ctx context.Context, m *model, source string, load Loader) {
	fail := func(state State, reason string) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.status.State, m.status.Reason = state, reason
	}
	p, err := load(ctx, source)
	if err != nil {
		fail(Failed, err.Error())
		return
	}
	if p.CloseOracle != nil {
		defer p.CloseOracle()
	}
	tok, err := New(p.JSON, Options{Encoder: p.Encoder, Cache: r.cache, Before: p.Before, After: p.After})
	if err != nil {
		fail(Failed, err.Error())
		return
	}
	proof, err := prove(tok, p)
	if err != nil {
		fail(Quarantined, err.Error())
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tok, m.renderer, m.noChat = tok, p.Renderer, p.NoChat
	m.status = Status{State: Ready, Source: source, Engine: p.Engine, Proof: proof, Reason: p.NoChat}
	if why := tok.Ineligible(); why != "" {
		m.status.Reason = strings.TrimPrefix(m.status.Reason+"; nothing is cached: "+why, "; ")
	}
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
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.status, true
}

func (r *Registry) model(name string) *model {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.models[name]
}

// Chat tokenizes the body of a chat request for a model. An *UnknownError says
// why the tokens cannot be told.
func (r *Registry) Chat(name string, body []byte) (Tokens, error) {
	m, err := r.ready(name)
	if err != nil {
		return Tokens{}, err
	}
	if m.renderer == nil {
		return m.failed("chats of the model cannot be rendered here: " + m.noChat)
	}
	text, addSpecial, err := m.renderer.Render(body)
	if err != nil {
		return m.failed(err.Error())
	}
	return m.encode(text, addSpecial)
}

// Text tokenizes a prompt for a model. An *UnknownError says why the tokens
// cannot be told.
func (r *Registry) Text(name, prompt string, addSpecial bool) (Tokens, error) {
	m, err := r.ready(name)
	if err != nil {
		return Tokens{}, err
	}
	return m.encode(prompt, addSpecial)
}

func (r *Registry) ready(name string) (*model, error) {
	m := r.model(name)
	if m == nil {
		return nil, &UnknownError{"no tokenizer is configured for the model (models[].tokenizer)"}
	}
	m.mu.RLock()
	st := m.status
	m.mu.RUnlock()
	if st.State != Ready {
		return nil, &UnknownError{fmt.Sprintf("the model's tokenizer is %s: %s", st.State, st.Reason)}
	}
	return m, nil
}

func (m *model) encode(text string, addSpecial bool) (Tokens, error) {
	t, err := m.tok.Encode(text, addSpecial)
	if err != nil {
		return m.failed("the text cannot be tokenized: " + err.Error())
	}
	m.mu.Lock()
	m.status.Requests++
	m.mu.Unlock()
	return t, nil
}

func (m *model) failed(reason string) (Tokens, error) {
	m.mu.Lock()
	m.status.Failures++
	m.mu.Unlock()
	return Tokens{}, &UnknownError{reason}
}

// errDiffers is the root of proofs that failed.
var errDiffers = errors.New("it gives other token ids than its engine's library")
