package tokenizer

import (
	"errors"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
)

// State of a model's tokenizer.
type State string

// The states of a tokenizer.
const (
	Loading State = "loading"
	Ready   State = "ready"
	Failed  State = "failed" // no files, or files that cannot be used
	// Quarantined: it gave other ids than its library or an engine. It is not
	// used.
	Quarantined State = "quarantined"
	// ByEngine: the model has none here; engines are asked.
	ByEngine State = "engine"
	// Refused: the configuration says that requests carry token ids.
	Refused State = "none"
)

// States are all states that a Status can have.
func States() []State { return []State{Loading, Ready, Failed, Quarantined, Refused} }

// Stage says at which occasion a tokenizer was held against an engine.
type Stage string

// The stages; values are metric labels.
const (
	StageLoad    Stage = "load"    // before it is used, against the engine's library
	StageContact Stage = "contact" // with the first words to an engine, and now and then
	StageSample  Stage = "sample"  // with requests of clients
)

// Status says how a model's tokenizer is doing. Counters start with the
// process and never fall.
type Status struct {
	State   State
	Reason  string // why it is not Ready, or what is limited
	Source  string // where it comes from
	Engine  string // what computes: "bpe/qwen2", "hf"
	Proof   string // what showed that it is exact
	MaxLen  int    // longest prompt in tokens, 0: unknown
	Bytes   int    // memory of what computes, 0: unknown
	Engines map[string]EngineProof

	Requests   map[Source]uint64 // answered, by where the tokens came from
	Unknown    uint64            // requests whose tokens could not be told
	Cached     uint64            // tokens found in the prefix cache
	Computed   uint64            // tokens that were not
	Samples    map[string]uint64 // requests that engines were asked about: equal, different, failed, skipped
	Mismatches map[Stage]uint64
}

// EngineProof is what came of holding a tokenizer against an engine.
type EngineProof struct {
	Equal   int    `json:"equal"`            // probes with the same ids
	Refused int    `json:"refused"`          // probes that the engine, or the tokenizer, does not take
	Differs string `json:"differs,omitzero"` // where the first difference is
	Error   string `json:"error,omitzero"`   // why the engine could not be asked
}

// model is one model's tokenizer.
type model struct {
	name, source string
	load         Loader
	filling      sync.Mutex // one load at a time
	said         string     // why the last load came to nothing, as it was logged; under filling

	mu       sync.RWMutex
	status   Status // without the counters
	tok      *Tokenizer
	renderer Renderer // with an error of its own where there is none
	proofs   map[string]EngineProof

	requests                  [4]atomic.Uint64 // by index of sources
	unknown, cached, computed atomic.Uint64
	samples                   [len(sampleResults)]atomic.Uint64
	mismatches                [3]atomic.Uint64 // by index of stages
	turn                      atomic.Uint64    // of the sampler
}

func sources() [4]Source {
	return [...]Source{SourceRequestCache, SourcePrefixCache, SourceTokenizer, SourceEngine}
}

func stages() [3]Stage { return [...]Stage{StageLoad, StageContact, StageSample} }

// snapshot returns the status with its counters.
func (m *model) snapshot() Status {
	m.mu.RLock()
	st, tok := m.status, m.tok
	st.Engines = maps.Clone(m.proofs)
	m.mu.RUnlock()
	if tok != nil {
		if s, ok := tok.enc.(sizer); ok {
			st.Bytes = s.Bytes()
		}
	}
	st.Requests, st.Samples, st.Mismatches = map[Source]uint64{}, map[string]uint64{}, map[Stage]uint64{}
	for i, s := range sources() {
		st.Requests[s] = m.requests[i].Load()
	}
	for i, s := range sampleResults {
		st.Samples[s] = m.samples[i].Load()
	}
	for i, s := range stages() {
		st.Mismatches[s] = m.mismatches[i].Load()
	}
	st.Unknown, st.Cached, st.Computed = m.unknown.Load(), m.cached.Load(), m.computed.Load()
	return st
}

// fail notes why a load came to nothing. A tokenizer that is in use stays.
func (m *model) fail(state State, reason string) State {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tok != nil && m.status.State == Ready {
		m.status.Reason = "a reload failed, the one before is in use: " + reason
		return state
	}
	m.status.State, m.status.Reason = state, reason
	return state
}

// ready puts a proved tokenizer to use and returns the one before.
func (m *model) ready(tok *Tokenizer, p *Parts, proof string) (old *Tokenizer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old = m.tok
	m.tok, m.renderer, m.proofs = tok, p.Renderer, nil
	if p.Renderer == nil {
		m.renderer = noRenderer{errors.New("chats of the model cannot be rendered here: " + p.NoChat)}
	}
	m.status = Status{State: Ready, Source: m.source, Engine: p.Engine, Proof: proof, MaxLen: p.MaxLen}
	if p.Source != "" {
		m.status.Source = p.Source
	}
	var limits []string
	if p.Renderer == nil {
		limits = append(limits, "chats cannot be rendered here: "+p.NoChat)
	}
	if p.Limits != "" {
		limits = append(limits, p.Limits)
	}
	if why := tok.Ineligible(); why != "" {
		limits = append(limits, "nothing is cached: "+why)
	}
	m.status.Reason = strings.Join(limits, "; ")
	return old
}

// noRenderer says why chats cannot be rendered.
type noRenderer struct{ err error }

// Render implements Renderer.
func (n noRenderer) Render(Request) (Rendered, error) { return Rendered{}, n.err }

// local returns the tokenizer if it may be used, else why not.
func (m *model) local() (*Tokenizer, Renderer, string) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	switch m.status.State {
	case Ready:
		return m.tok, m.renderer, ""
	case Refused:
		return nil, nil, m.status.Reason
	}
	return nil, nil, "the model's tokenizer is " + string(m.status.State) + ": " + m.status.Reason
}

// quarantine takes tok out of use, unless it has been replaced meanwhile.
func (m *model) quarantine(tok *Tokenizer, stage Stage, reason string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tok != tok || m.status.State != Ready {
		return false
	}
	m.mismatch(stage)
	m.status.State, m.status.Reason = Quarantined, reason
	return true
}

func (m *model) mismatch(stage Stage) {
	for i, s := range stages() {
		if s == stage {
			m.mismatches[i].Add(1)
		}
	}
}

func (m *model) count(source Source) {
	for i, s := range sources() {
		if s == source {
			m.requests[i].Add(1)
		}
	}
}
