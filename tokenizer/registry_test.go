package tokenizer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// wordParts are the parts of the tests' tokenizer of words.
func wordParts(context.Context, string) (*Parts, error) {
	return &Parts{
		JSON: []byte(wordTokenizer), Encoder: wordEncoder{}, Engine: "words", Before: []uint32{7}, After: []uint32{8, 9},
		Renderer: echo{}, Oracle: func(s string) ([]uint32, error) {
			t := Tokenizer{enc: wordEncoder{}}
			return wordOracle(&t, s)
		},
	}, nil
}

// wordOracle tokenizes in one piece.
func wordOracle(t *Tokenizer, s string) ([]uint32, error) {
	spec, _, err := parseSpec([]byte(wordTokenizer))
	if err != nil {
		return nil, err
	}
	t.added = newAdded(spec.Added)
	out, err := t.whole(s, false)
	return out.AppendIDs(nil), err
}

// echo renders a chat as its body.
type echo struct{}

func (echo) Render(r Request) (Rendered, error) {
	switch {
	case strings.Contains(string(r.Body), "refuse"):
		return Rendered{}, &InvalidError{"refused"}
	case strings.Contains(string(r.Body), "picture"):
		return Rendered{}, errors.New("only an engine can tell")
	}
	return Rendered{Text: string(r.Body), Dated: strings.Contains(string(r.Body), "today")}, nil
}

// truthful answers as the tokenizer of words does, until it is told to lie.
type truthful struct {
	asked atomic.Int64
	lie   atomic.Bool
	fail  atomic.Bool
	seen  chan struct{} // if not nil, gets an element for every question
}

func (e *truthful) Tokens(_ context.Context, _ string, r Request) ([]uint32, error) {
	e.asked.Add(1)
	if e.seen != nil {
		defer func() { e.seen <- struct{}{} }()
	}
	if e.fail.Load() {
		return nil, errors.New("no engine is there")
	}
	if e.lie.Load() {
		return []uint32{1}, nil
	}
	prompt, err := render(echo{}, r)
	if err != nil {
		return []uint32{99}, nil // what only an engine can tell
	}
	var t Tokenizer
	t.enc, t.before, t.after = wordEncoder{}, []uint32{7}, []uint32{8, 9}
	spec, _, err := parseSpec([]byte(wordTokenizer))
	if err != nil {
		return nil, err
	}
	t.added = newAdded(spec.Added)
	out, err := t.whole(prompt.Text, prompt.AddSpecial)
	return out.AppendIDs(nil), err
}

// record is a log that can be read.
type record struct {
	mu    sync.Mutex
	lines []string
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, string(p))
	return len(p), nil
}

func (r *record) count(what string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, l := range r.lines {
		if strings.Contains(l, what) {
			n++
		}
	}
	return n
}

func newTestRegistry(t *testing.T, o RegistryOptions) *Registry {
	t.Helper()
	if o.Load == nil {
		o.Load = wordParts
	}
	o.CacheBytes = 1 << 20
	r := NewRegistry(o)
	t.Cleanup(r.Close)
	r.Add(t.Context(), "m", "somewhere")
	r.Wait()
	return r
}

func prompt(text string) Request {
	return Request{Kind: Completions, Body: fmt.Appendf(nil, `{"prompt":%q}`, text)}
}

func mustTokens(t *testing.T, r *Registry, model string, req Request, from Source) []uint32 {
	t.Helper()
	tokens, source, err := r.Tokens(t.Context(), model, req)
	if err != nil || source != from {
		t.Fatalf("%s: from %q, want %q: %v", req.Body, source, from, err)
	}
	return tokens.AppendIDs(nil)
}

// TestSourceOrder: the tokenizer here if it is exact, else an engine, else
// nothing; what an engine would refuse is asked of none.
func TestSourceOrder(t *testing.T) {
	e := &truthful{}
	r := newTestRegistry(t, RegistryOptions{Engines: e})
	r.Refuse("never", "told so")
	long := strings.Repeat("some words ", 20) + "<|ab|>"
	first := mustTokens(t, r, "m", prompt(long), SourceTokenizer)
	if again := mustTokens(t, r, "m", prompt(long), SourceRequestCache); !slices.Equal(first, again) {
		t.Error("the request cache answers otherwise")
	}
	mustTokens(t, r, "m", prompt(long+"and more"), SourcePrefixCache)
	for range 2 { // tomorrow it is another text
		mustTokens(t, r, "m", Request{Kind: ChatCompletions, Body: []byte("it is today")}, SourceTokenizer)
	}
	if e.asked.Load() != 0 {
		t.Error("an engine was asked though the tokenizer is here")
	}
	mustTokens(t, r, "m", Request{Kind: ChatCompletions, Body: []byte("a picture")}, SourceEngine)
	mustTokens(t, r, "other", prompt("x"), SourceEngine)
	asked := e.asked.Load()
	for model, req := range map[string]Request{"m": {Kind: ChatCompletions, Body: []byte("refuse")}, "never": prompt("x")} {
		if _, _, err := r.Tokens(t.Context(), model, req); err == nil || e.asked.Load() != asked {
			t.Errorf("%s: error %v, asked %d times", model, err, e.asked.Load()-asked)
		}
	}
	e.fail.Store(true)
	if _, _, err := r.Tokens(t.Context(), "other", prompt("x")); err == nil || !strings.Contains(err.Error(), "no engine is there") {
		t.Error(err)
	}
	st, _ := r.Status("m")
	if st.Requests[SourceTokenizer] != 3 || st.Requests[SourceRequestCache] != 1 || st.Requests[SourcePrefixCache] != 1 ||
		st.Requests[SourceEngine] != 1 || st.Unknown != 1 || st.Cached == 0 || st.Computed == 0 {
		t.Errorf("%+v", st)
	}
	if names := r.Names(); !slices.Equal(names, []string{"m", "never"}) {
		t.Errorf("clients fill the registry: %q", names)
	}
}

// TestQuarantine: an engine that differs puts the tokenizer aside, at first
// contact or by a sample of what clients ask; a reload takes it back.
func TestQuarantine(t *testing.T) {
	for _, stage := range []Stage{StageContact, StageSample} {
		t.Run(string(stage), func(t *testing.T) {
			log := &record{}
			e := &truthful{seen: make(chan struct{}, 100)}
			o := RegistryOptions{Engines: e, Logger: slog.New(slog.NewTextHandler(log, nil))}
			if stage == StageSample {
				o.SampleEvery = 1
			}
			r := newTestRegistry(t, o)
			ask := func(ctx context.Context, q Request) ([]uint32, error) { return e.Tokens(ctx, "m", q) }
			provoke := func() {
				if stage == StageContact {
					r.ProveWith(t.Context(), "m", "pod-1", ask)
					return
				}
				n := e.asked.Load()
				mustTokens(t, r, "m", prompt(fmt.Sprint("secret words ", n)), SourceTokenizer)
				<-e.seen
			}
			provoke()
			st, _ := r.Status("m")
			if stage == StageContact && (st.Engines["pod-1"].Equal != len(Probes()) || st.Engines["pod-1"].Differs != "") {
				t.Errorf("%+v", st.Engines)
			}
			e.lie.Store(true)
			provoke()
			waitFor(t, func() bool { return log.count("quarantine") == 1 })
			if st, _ = r.Status("m"); st.State != Quarantined || st.Mismatches[stage] != 1 || !strings.Contains(st.Reason, "token 0 of") || log.count("quarantine") != 1 || log.count("secret") != 0 {
				t.Errorf("%+v; logged %d times", st, log.count("quarantine"))
			}
			e.lie.Store(false)
			mustTokens(t, r, "m", prompt("x"), SourceEngine) // never the tokenizer's
			if st, err := r.Reload(t.Context(), "m"); err != nil || st.State != Ready || len(st.Engines) != 0 {
				t.Errorf("after a reload: %+v, %v", st, err)
			}
			mustTokens(t, r, "m", prompt("x y z"), SourceTokenizer)
		})
	}
}

func waitFor(t *testing.T, so func() bool) {
	t.Helper()
	for range 1000 {
		if so() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("not so after 5 s")
}

// TestFailedLoads: why a load came to nothing is in the status, and in the log
// once; a tokenizer that is in use survives a reload that fails.
func TestFailedLoads(t *testing.T) {
	log := &record{}
	var fail atomic.Pointer[string]
	load := func(ctx context.Context, source string) (*Parts, error) {
		switch f := fail.Load(); {
		case f == nil:
			return wordParts(ctx, source)
		case *f == "wrong":
			p, err := wordParts(ctx, source)
			p.Oracle = func(string) ([]uint32, error) { return []uint32{1}, nil }
			return p, err
		default:
			return nil, errors.New(*f)
		}
	}
	set := func(s string) { fail.Store(&s) }
	set("no such file")
	r := newTestRegistry(t, RegistryOptions{Load: load, Logger: slog.New(slog.NewTextHandler(log, nil))})
	expect := func(state State, reason string) {
		t.Helper()
		if st, _ := r.Status("m"); st.State != state || !strings.Contains(st.Reason, reason) {
			t.Errorf("%+v, want %s because of %q", st, state, reason)
		}
	}
	reload := func() {
		t.Helper()
		if _, err := r.Reload(t.Context(), "m"); err != nil {
			t.Error(err)
		}
	}
	expect(Failed, "no such file")
	reload()
	if n := log.count("no such file"); n != 1 {
		t.Errorf("said %d times", n)
	}
	if _, _, err := r.Tokens(t.Context(), "m", prompt("x")); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("%v", err)
	}
	set("wrong")
	reload()
	expect(Quarantined, "other token ids")
	fail.Store(nil)
	reload()
	expect(Ready, "")
	mustTokens(t, r, "m", prompt("x"), SourceTokenizer)
	set("gone")
	reload()
	expect(Ready, "a reload failed")
	mustTokens(t, r, "m", prompt("x y"), SourceTokenizer)
	if _, err := r.Reload(t.Context(), "other"); !errors.Is(err, ErrNoTokenizer) {
		t.Error(err)
	}
}

// TestRequestCacheKeepsItsBudget: what is remembered of whole requests is
// bounded, in bytes and in number, and the newest stays.
func TestRequestCacheKeepsItsBudget(t *testing.T) {
	c := newRequestCache(100_000)
	tok := &Tokenizer{}
	at := func(i int) requestKey { return newRequestKey(tok, prompt(fmt.Sprint(i))) }
	for i := range 5000 {
		c.put(at(i), Tokens{Count: i % 200})
		if c.bytes > c.budget || len(c.known) > maxRequests {
			t.Fatalf("%d bytes, %d requests", c.bytes, len(c.known))
		}
		if _, ok := c.get(at(i)); !ok {
			t.Fatalf("request %d is forgotten at once", i)
		}
	}
	sum := 0
	for _, v := range c.known {
		sum += c.size(v)
	}
	if sum != c.bytes || len(c.order)-c.next != len(c.known) {
		t.Errorf("%d bytes counted, %d there; %d in order, %d known", c.bytes, sum, len(c.order)-c.next, len(c.known))
	}
	c.put(at(-1), Tokens{Count: 1 << 20})
	if _, ok := c.get(at(-1)); ok {
		t.Error("more than the budget was kept")
	}
	if c.forget(tok); len(c.known) != 0 || c.bytes != 0 {
		t.Errorf("%d requests and %d bytes left", len(c.known), c.bytes)
	}
}
