package remote

import (
	"bytes"
	"encoding/json/jsontext"
	"fmt"
	"io"
	"slices"
)

// Kind is the endpoint that a request is meant for.
type Kind uint8

// The kinds of requests.
const (
	Completion     Kind = iota // POST /v1/completions
	Chat                       // POST /v1/chat/completions
	TokenizePrompt             // POST /tokenize with a prompt
	TokenizeChat               // POST /tokenize with messages
	numKinds
)

// isTokenize says whether requests of the kind are for /tokenize itself.
func (k Kind) isTokenize() bool { return k == TokenizePrompt || k == TokenizeChat }

// String returns "completion", "chat", "tokenize prompt" or "tokenize chat".
func (k Kind) String() string {
	switch k {
	case Completion:
		return "completion"
	case Chat:
		return "chat"
	case TokenizePrompt:
		return "tokenize prompt"
	case TokenizeChat:
		return "tokenize chat"
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

const mediaReason = "the request holds more than text: its blocks are not told by tokens alone"

// member is a member of the body's object; its value is body[start:end].
type member struct {
	name       string
	start, end int
}

// request is the body of a request, of which only the parts that count are
// looked at. It is not changed after parse.
type request struct {
	kind    Kind
	body    []byte
	members []member
	open    int // where the object begins
	// onlyRender is why /tokenize would not tell the tokens; empty if it would.
	onlyRender string
}

// parse finds the members of the body. The error is ErrBody or ErrUnsupported.
func parse(kind Kind, body []byte) (*request, error) {
	if kind >= numKinds {
		return nil, unsupported("the request is of no kind that is known")
	}
	r := &request{kind: kind, body: body}
	// A client's keys may repeat and its text need not be UTF-8: what becomes of
	// that is the engine's to say.
	d := jsontext.NewDecoder(bytes.NewReader(body), lenient)
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return nil, ErrBody
	}
	r.open = int(d.InputOffset())
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return nil, ErrBody
		}
		m := member{name: name.String()}
		v, err := d.ReadValue()
		if err != nil {
			return nil, ErrBody
		}
		m.end = int(d.InputOffset())
		m.start = m.end - len(v)
		r.members = append(r.members, m)
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, ErrBody
	}
	if _, err := d.ReadToken(); err != io.EOF { //nolint:errorlint // jsontext returns it unwrapped
		return nil, ErrBody
	}
	switch kind {
	case Chat, TokenizeChat:
		return r, r.inspectChat()
	case Completion:
		return r, r.inspectCompletion()
	}
	return r, nil
}

// value is a member's value, as the client wrote it; nil if it is absent. Of
// members with one name the last counts, as in Python.
func (r *request) value(name string) jsontext.Value {
	for _, m := range slices.Backward(r.members) {
		if m.name == name {
			return r.body[m.start:m.end]
		}
	}
	return nil
}

// given says whether a member is there and not null.
func (r *request) given(name string) bool {
	v := r.value(name)
	return v != nil && v.Kind() != 'n'
}

// needRender says that /tokenize would not do, if any of the members is given:
// it does not know them, and they may change the tokens.
func (r *request) needRender(names ...string) {
	for _, name := range names {
		if r.given(name) {
			r.onlyRender = name
			return
		}
	}
}

// inspectCompletion looks for what /tokenize, or nobody, can tell the tokens of.
func (r *request) inspectCompletion() error {
	r.needRender("prompt_embeds", "truncate_prompt_tokens", "kv_transfer_params")
	switch v := r.value("prompt"); v.Kind() {
	case '"':
	case '[':
		var list []jsontext.Value
		if !decode(v, &list) || len(list) == 0 {
			break // the engine refuses it
		}
		switch kind := list[0].Kind(); {
		case len(list) > 1 && kind != '0':
			return unsupported("the request has several prompts")
		case kind != '"':
			r.onlyRender = "a prompt of token ids"
		}
	}
	return nil
}

// inspectChat is inspectCompletion of a chat.
func (r *request) inspectChat() error {
	r.needRender("reasoning_effort", "documents", "truncate_prompt_tokens", "kv_transfer_params")
	if v := r.value("tool_choice"); r.given("tools") && string(v) == `"none"` {
		r.onlyRender = `tool_choice "none"` // an engine may leave the tools out
	}
	var messages []message
	if !decode(r.value("messages"), &messages) {
		r.onlyRender = "messages of an unusual form"
	}
	for _, m := range messages {
		if m.hasMedia() {
			return unsupported(mediaReason)
		}
		if m.Reasoning != nil && m.Reasoning.Kind() != 'n' {
			r.onlyRender = "reasoning_content"
		}
	}
	return nil
}

// message is what is looked at of a chat's message.
type message struct {
	Content   jsontext.Value `json:"content"`
	Reasoning jsontext.Value `json:"reasoning_content"`
}

// textParts are the types of a content's parts that are text to vLLM
// (entrypoints/chat_utils.py).
var textParts = [...]string{"text", "input_text", "output_text", "refusal", "thinking"}

// hasMedia says whether the message holds a part that is no text.
func (m message) hasMedia() bool {
	if m.Content.Kind() != '[' {
		return false
	}
	var parts []jsontext.Value
	if !decode(m.Content, &parts) {
		return true
	}
	for _, p := range parts {
		if p.Kind() == '"' {
			continue
		}
		var part struct {
			Type string `json:"type"`
		}
		if !decode(p, &part) || !slices.Contains(textParts[:], part.Type) {
			return true
		}
	}
	return false
}

// renderBody is the body for /render: the client's own bytes, except that it
// does not stream (and so must not have options for that) and has the name
// that the model has at the target, if that is given.
func (r *request) renderBody(model string) []byte {
	out := make([]byte, 0, len(r.body)+len(model)+16)
	out = append(out, r.body[:r.open]...)
	at := r.open
	if model != "" && r.value("model") == nil {
		out = append(append(out, `"model":`...), quoted(model)...)
		if len(r.members) > 0 {
			out = append(out, ',')
		}
	}
	for _, m := range r.members {
		var with []byte
		switch v := jsontext.Value(r.body[m.start:m.end]); {
		case m.name == "stream" && v.Kind() != 'f' && v.Kind() != 'n':
			with = []byte("false")
		case m.name == "stream_options":
			with = []byte("null")
		case m.name == "model" && model != "":
			with = quoted(model)
		default:
			continue
		}
		out = append(append(out, r.body[at:m.start]...), with...)
		at = m.end
	}
	return append(out, r.body[at:]...)
}

// tokenizeMembers are the members of /tokenize's requests, in their order here.
var tokenizeMembers = [numKinds][]string{
	Completion: {"add_special_tokens"},
	Chat: {
		"messages", "add_generation_prompt", "continue_final_message", "add_special_tokens",
		"chat_template", "chat_template_kwargs", "tools",
	},
}

// tokenizeBody is the body for /tokenize, with the client's own values.
func (r *request) tokenizeBody(model string) []byte {
	out := append(make([]byte, 0, len(r.body)), '{')
	add := func(name string, v []byte) {
		if v == nil {
			return
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(out, quoted(name)...), ':')
		out = append(out, v...)
	}
	if model != "" {
		add("model", quoted(model))
	} else {
		add("model", r.value("model"))
	}
	if r.kind == Completion {
		add("prompt", r.prompt())
	}
	for _, name := range tokenizeMembers[r.kind] {
		v := r.value(name)
		if v == nil && r.kind == Chat && name == "add_special_tokens" {
			v = jsontext.Value("false")
		}
		add(name, v)
	}
	return append(out, '}')
}

// prompt is the prompt as /tokenize takes it: a list of one text is the text.
func (r *request) prompt() jsontext.Value {
	v := r.value("prompt")
	var list []jsontext.Value
	if v.Kind() == '[' && decode(v, &list) && len(list) == 1 {
		return list[0]
	}
	return v
}

// quoted is s as JSON.
func quoted(s string) []byte {
	b, _ := jsontext.AppendQuote(nil, s) // its error says that s was not UTF-8; b is
	return b
}
