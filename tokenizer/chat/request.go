package chat

import (
	"slices"
	"strings"
	"unicode/utf8"
	"unsafe"

	"github.com/kvindex/kvindex/tokenizer/chat/pyjson"
)

// Bounds of what a request may hold in the fields that count.
const (
	maxDepth  = 100
	maxValues = 1_000_000
)

// Kind is the endpoint that a body is meant for; the two differ in what they
// read.
type Kind uint8

const (
	// ChatCompletions is POST /v1/chat/completions (and its /render).
	ChatCompletions Kind = iota
	// Tokenize is POST /tokenize with messages. It knows no documents, no
	// reasoning_effort and no reasoning_content, and takes an empty list of
	// tools.
	Tokenize
)

// Request is a chat request, read and checked.
type Request struct {
	// Model and CacheSalt are the body's, for callers that need them too. They
	// are slices of it.
	Model, CacheSalt string

	kind     Kind
	messages []message
	tools    pyjson.Value // Absent or the list that a template gets
	// toolChoiceNone is whether the request says that no tool may be called.
	toolChoiceNone bool

	addGenerationPrompt  bool
	continueFinalMessage bool
	addSpecialTokens     bool
	kwargs               pyjson.Value // chat_template_kwargs
	documents            pyjson.Value
	reasoningEffort      pyjson.Value
}

// fields are the parts of a body that are kept as they are read.
type fields struct {
	kept map[string]pyjson.Value
}

// wanted are the fields of a body that change the prompt, or say that it
// cannot be known here. All others are skipped.
var wanted = map[Kind][]string{
	Tokenize: {
		"model", "messages", "tools", "add_generation_prompt", "continue_final_message", "add_special_tokens",
		"chat_template", "chat_template_kwargs",
	},
	ChatCompletions: {
		"model", "messages", "tools", "add_generation_prompt", "continue_final_message", "add_special_tokens",
		"chat_template", "chat_template_kwargs",
		"cache_salt", "tool_choice", "documents", "reasoning_effort", "truncate_prompt_tokens", "kv_transfer_params",
	},
}

// ParseRequest reads a body that must be valid UTF-8 JSON, in Python's
// understanding of it. It keeps the order of keys and the form of numbers. The
// request is made of slices of body, which must not change while it is in use.
func ParseRequest(body []byte, kind Kind) (*Request, error) {
	if !utf8.Valid(body) {
		return nil, invalid("the body is not UTF-8")
	}
	return parse(body, kind, false)
}

// ParseValid is ParseRequest for a body that is known to be JSON in UTF-8: not to
// look at every byte again is much of the time that a long chat takes.
func ParseValid(body []byte, kind Kind) (*Request, error) { return parse(body, kind, true) }

func parse(body []byte, kind Kind, valid bool) (*Request, error) {
	text := unsafe.String(unsafe.SliceData(body), len(body))
	f, err := readFields(strings.TrimPrefix(text, "\ufeff"), kind, valid)
	if err != nil {
		return nil, err
	}
	r := &Request{kind: kind, Model: f.kept["model"].Str(), CacheSalt: f.kept["cache_salt"].Str()}
	if err := r.readFlags(f); err != nil {
		return nil, err
	}
	if kind == ChatCompletions {
		if err := r.readChatOnly(f); err != nil {
			return nil, err
		}
	}
	if r.tools, err = readTools(f.kept["tools"]); err != nil {
		return nil, err
	}
	return r, r.readMessages(f.kept["messages"])
}

func readFields(body string, kind Kind, valid bool) (*fields, error) {
	f := &fields{kept: map[string]pyjson.Value{}}
	p := pyjson.NewParser(body, pyjson.Limits{Depth: maxDepth, Values: maxValues, Valid: valid})
	err := p.Object(func(key string) error {
		if !slices.Contains(wanted[kind], key) {
			return p.Skip()
		}
		v, err := p.Value()
		f.kept[key] = v
		return err
	})
	if err == nil {
		err = p.End()
	}
	return f, classifyJSON("the body", err)
}

// flag reads a boolean that has a default. Pydantic makes booleans of numbers
// and texts too; nobody sends them.
func (f *fields) flag(name string, def bool) (bool, error) {
	switch v, given := f.kept[name]; {
	case !given:
		return def, nil
	case v.Kind() == pyjson.Bool:
		return v.IsTrue(), nil
	case v.Kind() == pyjson.Int, v.Kind() == pyjson.String:
		return false, unsupported("%s is no boolean", name)
	}
	return false, invalid("%s must be a boolean", name)
}

func (r *Request) readFlags(f *fields) error {
	for _, flag := range []struct {
		name string
		def  bool
		to   *bool
	}{
		{"add_generation_prompt", true, &r.addGenerationPrompt},
		{"continue_final_message", false, &r.continueFinalMessage},
		{"add_special_tokens", false, &r.addSpecialTokens},
	} {
		var err error
		if *flag.to, err = f.flag(flag.name, flag.def); err != nil {
			return err
		}
	}
	if r.continueFinalMessage && r.addGenerationPrompt {
		return invalid("continue_final_message and add_generation_prompt are not compatible")
	}
	if !f.kept["chat_template"].IsNone() {
		return unsupported("the request brings its own chat template")
	}
	r.kwargs = f.kept["chat_template_kwargs"]
	if !r.kwargs.IsNone() && r.kwargs.Kind() != pyjson.Dict {
		return invalid("chat_template_kwargs must be an object")
	}
	return nil
}

// efforts are the values of reasoning_effort that vLLM takes.
var efforts = []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}

// readChatOnly reads what /tokenize does not know.
func (r *Request) readChatOnly(f *fields) error {
	if !f.kept["truncate_prompt_tokens"].IsNone() {
		return unsupported("truncate_prompt_tokens")
	}
	if ids := f.kept["kv_transfer_params"].Get("prompt_token_ids"); ids.Truth() {
		return unsupported("kv_transfer_params has the token ids already")
	}
	r.documents, r.reasoningEffort = f.kept["documents"], f.kept["reasoning_effort"]
	if e := r.reasoningEffort; !e.IsNone() && !slices.Contains(efforts, e.Str()) {
		return invalid("reasoning_effort must be one of %s", strings.Join(efforts, ", "))
	}
	if d := r.documents; !d.IsNone() {
		for _, doc := range d.Items() {
			bad := slices.ContainsFunc(doc.Items(), func(v pyjson.Value) bool { return v.Kind() != pyjson.String })
			if doc.Kind() != pyjson.Dict || bad {
				return invalid("documents must be a list of objects with texts")
			}
		}
		if d.Kind() != pyjson.List {
			return invalid("documents must be a list")
		}
	}
	tools := f.kept["tools"]
	if tools.Kind() == pyjson.List && tools.Len() == 0 {
		return invalid("tools must not be an empty array")
	}
	choice, given := f.kept["tool_choice"]
	r.toolChoiceNone = choice.Str() == "none" || (!given && !tools.Truth())
	if !choice.IsNone() && !r.toolChoiceNone && tools.IsNone() {
		return invalid("when using tool_choice, tools must be set")
	}
	return nil
}

func (r *Request) readMessages(v pyjson.Value) error {
	if v.Kind() != pyjson.List {
		return invalid("messages must be a list")
	}
	if v.Len() == 0 {
		return invalid("messages must not be empty")
	}
	r.messages = make([]message, v.Len())
	values := maxValues
	for i, m := range v.Items() {
		if err := r.messages[i].read(m, r.kind, &values); err != nil {
			return err
		}
	}
	return nil
}
