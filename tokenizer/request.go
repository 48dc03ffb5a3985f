package tokenizer

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
)

// Kind says for which endpoint of an engine the body of a request is meant:
// they read different fields.
type Kind uint8

const (
	// ChatCompletions is POST /v1/chat/completions.
	ChatCompletions Kind = iota
	// Completions is POST /v1/completions with one prompt of text.
	Completions
	// TokenizeChat is POST /tokenize with messages.
	TokenizeChat
	// TokenizePrompt is POST /tokenize with a prompt.
	TokenizePrompt
)

// Chat reports whether bodies of this kind hold messages.
func (k Kind) Chat() bool { return k == ChatCompletions || k == TokenizeChat }

// Request is the body of a request to an engine, as its client sent it.
type Request struct {
	Kind Kind
	Body []byte // one JSON object

	// Valid says that Body is known to be JSON in UTF-8.
	Valid bool
}

// Source says where the tokens of an answer come from.
type Source string

// The sources, the fastest first.
const (
	SourceRequestCache Source = "request_cache" // the same request was answered before
	SourcePrefixCache  Source = "prefix_cache"  // the text's beginning was tokenized before
	SourceTokenizer    Source = "tokenizer"     // nothing of it was
	SourceEngine       Source = "engine"        // a running instance of the model was asked
)

// UnknownError says why the tokens of a request are not known: kvindex then
// answers so, and never guesses. The reason holds nothing of the request.
type UnknownError struct{ Reason string }

func (e *UnknownError) Error() string { return e.Reason }

// InvalidError says that the model's engine would refuse the request. The
// reason holds nothing of it.
type InvalidError struct{ Reason string }

func (e *InvalidError) Error() string { return e.Reason }

// prompt is what matters of a request with a text. Invalid UTF-8 and unpaired
// surrogates are refused, as an engine does, which cannot tokenize them.
func (r Request) prompt() (Rendered, error) {
	var body struct {
		Prompt     jsontext.Value `json:"prompt"`
		AddSpecial *bool          `json:"add_special_tokens"`
		Truncate   jsontext.Value `json:"truncate_prompt_tokens"`
		Embeds     jsontext.Value `json:"prompt_embeds"`
	}
	if err := json.Unmarshal(r.Body, &body, jsontext.AllowDuplicateNames(true)); err != nil {
		return Rendered{}, &InvalidError{"the body is not the JSON of a completions request, or not UTF-8"}
	}
	given := func(v jsontext.Value) bool { return len(v) > 0 && v.Kind() != 'n' }
	if r.Kind == Completions && (given(body.Truncate) || given(body.Embeds)) {
		return Rendered{}, &UnknownError{"truncate_prompt_tokens and prompt_embeds change the prompt"}
	}
	addSpecial := body.AddSpecial == nil || *body.AddSpecial
	switch body.Prompt.Kind() {
	case '"':
		var text string
		err := json.Unmarshal(body.Prompt, &text)
		return Rendered{Text: text, AddSpecial: addSpecial}, err
	case '[':
		var list []string
		if err := json.Unmarshal(body.Prompt, &list); err == nil && len(list) == 1 {
			return Rendered{Text: list[0], AddSpecial: addSpecial}, nil
		}
	}
	return Rendered{}, &InvalidError{"the prompt is neither a text nor a list of one"}
}
