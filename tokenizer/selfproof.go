package tokenizer

import (
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Ask asks one engine what token ids it computes of a request. An
// *InvalidError says that it refuses the request.
type Ask func(ctx context.Context, r Request) ([]uint32, error)

// ProveWith holds a model's tokenizer against one engine of the model, with
// texts and chats that touch what tokenizers and templates stumble over. It
// reports whether there is nothing left to prove: the probes were answered, or
// the model has no tokenizer here. A difference, if it is still there when the
// probe is repeated, puts the tokenizer in quarantine.
func (r *Registry) ProveWith(ctx context.Context, name, engine string, ask Ask) (EngineProof, bool) {
	m := r.model(name)
	if m == nil {
		return EngineProof{}, true
	}
	tok, renderer, _ := m.local()
	if tok == nil {
		return EngineProof{}, m.snapshotState() != Loading
	}
	p := proveWith(ctx, tok, renderer, ask)
	m.mu.Lock()
	if m.tok == tok {
		if m.proofs == nil {
			m.proofs = map[string]EngineProof{}
		}
		m.proofs[engine] = p
	}
	m.mu.Unlock()
	if p.Differs != "" && m.quarantine(tok, StageContact, "it gives other token ids than "+engine+": "+p.Differs) {
		r.sayQuarantined(name, StageContact, engine, p.Differs)
	}
	return p, p.Error == ""
}

// ForgetEngine drops what is known of an engine that is no longer there.
func (r *Registry) ForgetEngine(name, engine string) {
	if m := r.model(name); m != nil {
		m.mu.Lock()
		delete(m.proofs, engine)
		m.mu.Unlock()
	}
}

func (r *Registry) sayQuarantined(model string, stage Stage, engine, where string) {
	r.log.Error("the tokenizer differs from an engine and is put in quarantine: see /v1/models; reload it when its files are right",
		"model", model, "stage", stage, "engine", engine, "difference", where)
}

func proveWith(ctx context.Context, tok *Tokenizer, renderer Renderer, ask Ask) EngineProof {
	var p EngineProof
	for i, probe := range Probes() {
		where, err := differs(ctx, tok, renderer, probe, ask)
		if where != "" { // once more: a template may write the time of day
			where, err = differs(ctx, tok, renderer, probe, ask)
		}
		switch {
		case errors.Is(err, errRefused):
			p.Refused++
		case err != nil:
			p.Error = err.Error()
			return p
		case where != "":
			p.Differs = fmt.Sprintf("probe %d, %s", i, where)
			return p
		default:
			p.Equal++
		}
	}
	return p
}

// errRefused is what differs returns for requests that one side does not take.
var errRefused = errors.New("the request is refused")

// differs says at which token the ids of a request differ from an engine's,
// "" if they do not.
func differs(ctx context.Context, tok *Tokenizer, renderer Renderer, req Request, ask Ask) (where string, err error) {
	prompt, err := render(renderer, req)
	if err != nil {
		return "", errRefused
	}
	got, err := tok.Encode(prompt.Text, prompt.AddSpecial)
	if err != nil {
		return "", errRefused
	}
	want, err := ask(ctx, req)
	if invalid := (*InvalidError)(nil); errors.As(err, &invalid) {
		return "", errRefused
	}
	if err != nil {
		return "", err
	}
	return firstDifference(got.AppendIDs(nil), want), nil
}

func firstDifference(got, want []uint32) string {
	if slices.Equal(got, want) {
		return ""
	}
	at := 0
	for at < len(got) && at < len(want) && got[at] == want[at] {
		at++
	}
	return fmt.Sprintf("token %d of %d here and %d there", at, len(got), len(want))
}

// Probes are requests that touch what tokenizers and templates stumble over.
func Probes() []Request {
	texts := []string{
		"Hello, world!", "  two spaces, a tab\tand\n\nlines\r\n", "l'été, 12345.678 and \u00bd", "中文、日本語、한국어",
		"😀👩‍👩‍👧 e\u0301 ﬁ", "func main() {\n\tx := []int{1, 2}\n}",
	}
	type message map[string]any
	say := func(role, text string) message { return message{"role": role, "content": text} }
	var probes []Request
	add := func(kind Kind, body map[string]any) {
		b, err := json.Marshal(body, json.Deterministic(true))
		if err != nil {
			return // cannot be: strings and maps
		}
		probes = append(probes, Request{Kind: kind, Body: b})
	}
	for _, t := range texts {
		add(Completions, map[string]any{"prompt": t})
		add(ChatCompletions, map[string]any{"messages": []message{say("user", t)}})
		add(ChatCompletions, map[string]any{"messages": []message{
			say("system", "Answer in "+t), say("user", "Hi"), say("assistant", t), say("user", t+" again"),
		}})
	}
	tool := map[string]any{"type": "function", "function": map[string]any{
		"name": "look_up", "description": "Find \"it\" <fast>", "parameters": map[string]any{
			"type": "object", "properties": map[string]any{"what": map[string]any{"type": "string"}}, "required": []string{"what"},
		},
	}}
	add(ChatCompletions, map[string]any{"messages": []message{say("user", "Who?")}, "tools": []any{tool}})
	return probes
}

// sampleResults are what may come of asking an engine about a client's request.
var sampleResults = [...]string{"equal", "different", "failed", "skipped"}

const (
	sampleEqual = iota
	sampleDifferent
	sampleFailed
	sampleSkipped
)

// sampler asks engines about a share of the requests that were tokenized here,
// one at a time, off the way of these.
type sampler struct {
	r     *Registry
	every uint64
	queue chan sample
	ctx   context.Context //nolint:containedctx // of its goroutine: close ends it
	stop  context.CancelFunc
	done  sync.WaitGroup
}

type sample struct {
	m   *model
	tok *Tokenizer
	req Request
}

// sampleTimeout bounds how long an engine may take for a sample: there is time.
const sampleTimeout = 10 * time.Second

func newSampler(r *Registry, every int) *sampler {
	s := &sampler{r: r, every: uint64(every), queue: make(chan sample, 4)}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.done.Go(func() {
		for {
			select {
			case <-s.ctx.Done():
				return
			case one := <-s.queue:
				s.check(one)
			}
		}
	})
	return s
}

func (s *sampler) close() {
	s.stop()
	s.done.Wait()
}

// offer takes every n-th request of a model, its first among them, if there is
// room. The body is copied: it may be reused.
func (s *sampler) offer(m *model, tok *Tokenizer, req Request) {
	if (m.turn.Add(1)-1)%s.every != 0 {
		return
	}
	if len(s.queue) == cap(s.queue) {
		m.samples[sampleSkipped].Add(1)
		return
	}
	req.Body = slices.Clone(req.Body)
	select {
	case s.queue <- sample{m, tok, req}:
	default:
		m.samples[sampleSkipped].Add(1)
	}
}

func (s *sampler) check(one sample) {
	ctx, cancel := context.WithTimeout(s.ctx, sampleTimeout)
	defer cancel()
	_, renderer, _ := one.m.local()
	ask := func(ctx context.Context, r Request) ([]uint32, error) {
		return s.r.opts.Engines.Tokens(ctx, one.m.name, r)
	}
	where, err := differs(ctx, one.tok, renderer, one.req, ask)
	if where != "" && err == nil {
		where, err = differs(ctx, one.tok, renderer, one.req, ask)
	}
	switch {
	case err != nil:
		one.m.samples[sampleFailed].Add(1)
	case where == "":
		one.m.samples[sampleEqual].Add(1)
	default:
		one.m.samples[sampleDifferent].Add(1)
		if one.m.quarantine(one.tok, StageSample, "it gave other token ids than an engine for a request: "+where) {
			s.r.sayQuarantined(one.m.name, StageSample, "any", where)
		}
	}
}
