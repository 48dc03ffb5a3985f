package chat

import (
	"slices"
	"strings"

	"github.com/kvindex/kvindex/tokenizer/chat/pyjson"
)

// textKeys are the types of parts that are text, and the key that holds it.
var textKeys = map[string]string{
	"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal", "thinking": "thinking",
}

// mediaTypes are the types of parts that an engine puts its own tokens in for.
var mediaTypes = []string{
	"input_image", "image_url", "image_embeds", "image_pil", "audio_url", "input_audio", "audio_embeds",
	"video_url", "video_embeds", "prompt_embeds",
}

// knownPartKeys are the keys of all types of parts. Others stay with a text
// that a template gets as a part.
var knownPartKeys = []string{
	"audio_embeds", "audio_url", "closed", "data", "file", "image_embeds", "image_pil", "image_url", "input_audio",
	"name", "prompt_cache_breakpoint", "refusal", "text", "thinking", "type", "uuid", "video_embeds", "video_url",
}

func checkPart(p pyjson.Value) error {
	if p.Kind() == pyjson.String {
		return nil
	}
	if p.Kind() != pyjson.Dict {
		return invalid("a part of a content must be an object")
	}
	t := p.Get("type")
	if slices.ContainsFunc(p.Keys(), func(k string) bool { return slices.Contains(mediaTypes, k) }) ||
		slices.Contains(mediaTypes, t.Str()) {
		return unsupported("a part of a content is no text")
	}
	if !p.Get("uuid").IsNone() {
		return unsupported("a part of a content has a uuid")
	}
	switch key := textKeys[t.Str()]; {
	case key != "":
		text := p.Get(key)
		// A text that is null is skipped; vLLM refuses everything else.
		skipped := text.Kind() == pyjson.Null && (t.Str() == "text" || t.Str() == "refusal")
		if text.Kind() != pyjson.String && !skipped {
			return invalid("a part of type %s must have the text %q", t.Str(), key)
		}
	case t.Str() == "tool_reference":
		if p.Get("name").Kind() != pyjson.String {
			return unsupported("a tool_reference without a name")
		}
	case t.Kind() == pyjson.String:
		return unsupported("a part of a content has a type of its own")
	default:
		return invalid("a part of a content must have a type")
	}
	return nil
}

// part is a part as vLLM sees it, or ok false if it is skipped. Only text
// parts may carry extra keys.
func part(p pyjson.Value) (kind, text string, ok bool) {
	if p.Kind() == pyjson.String {
		return "text", p.Str(), true
	}
	t := p.Get("type").Str()
	if t == "tool_reference" {
		return t, p.Get("name").Str(), true
	}
	v := p.Get(textKeys[t])
	return "text", v.Str(), v.Kind() == pyjson.String
}

// billingHeader begins a line of metadata that clients put before a system
// prompt; vLLM drops it, as it would make every prompt different.
const billingHeader = "x-anthropic-billing-header"

// unbilled is text without that line; ok is false if nothing is left of it.
func unbilled(text string) (string, bool) {
	if !strings.HasPrefix(text, billingHeader) {
		return text, true
	}
	_, rest, _ := strings.Cut(text, "\n")
	return rest, rest != ""
}

// contentFor is the content that a template gets: one text, or a list of
// parts.
func (m *message) contentFor(parts bool) pyjson.Value {
	items := m.content.Items()
	if m.content.Kind() == pyjson.String {
		items = []pyjson.Value{m.content}
	}
	var texts []string
	var list []pyjson.Value
	onlyText := true
	for _, p := range items {
		kind, text, ok := part(p)
		if !ok {
			continue
		}
		if kept := text; m.role == "system" && (p.Kind() == pyjson.String || p.Get("type").Str() == "text") {
			if text, ok = unbilled(kept); !ok {
				continue
			}
		}
		if text != "" || parts {
			texts = append(texts, text)
		}
		if parts {
			onlyText = onlyText && kind == "text"
			list = append(list, wrap(kind, text, p))
		}
	}
	// Templates want the answer of a tool as text.
	if parts && (m.role != "tool" || !onlyText) {
		return pyjson.NewList(list...)
	}
	return pyjson.NewString(strings.Join(texts, "\n"))
}

func wrap(kind, text string, p pyjson.Value) pyjson.Value {
	var d builder
	d.set("type", pyjson.NewString(kind))
	if kind != "text" {
		d.set("name", pyjson.NewString(text))
		return d.value()
	}
	d.set("text", pyjson.NewString(text))
	for i, k := range p.Keys() {
		if !slices.Contains(knownPartKeys, k) {
			d.set(k, p.Items()[i])
		}
	}
	return d.value()
}
