package chat

import (
	"slices"
	"strings"
	"time"

	"github.com/kvindex/kvindex/tokenizer/chat/jinja"
	"github.com/kvindex/kvindex/tokenizer/chat/pyjson"
)

// Options are what an engine's command line says, and bounds. The zero value
// is an engine without flags.
type Options struct {
	// ContentFormat is --chat-template-content-format: "" or "auto", "string"
	// or "openai".
	ContentFormat string
	// Template is --chat-template: it beats the model's own.
	Template string
	// DefaultKwargs is --default-chat-template-kwargs: an object in JSON.
	DefaultKwargs []byte
	// ExcludeToolsWhenChoiceNone is --exclude-tools-when-tool-choice-none.
	ExcludeToolsWhenChoiceNone bool
	// ModelType and Architectures are model_type and architectures of the
	// model's config.json. vLLM renders the chats of some in ways of their own.
	ModelType     string
	Architectures []string
	// TokenizerMode is --tokenizer-mode: "" , "auto" and "hf" are rendered
	// here. A repository in Mistral's format is "mistral" to vLLM's auto.
	TokenizerMode string
	// Now is the engines' clock, in their time zone; nil is time.Now.
	Now func() time.Time
	// MaxOutput and MaxWork bound a render as [jinja.Limits] do.
	MaxOutput, MaxWork int
}

// Rendered is the prompt of a chat.
type Rendered struct {
	Text string
	// AddSpecial is whether the tokenizer shall add its special tokens.
	AddSpecial bool
	// Dated is whether the template asked for the time: the same request has
	// another prompt tomorrow.
	Dated bool
}

// Renderer renders the chats of one model.
type Renderer struct {
	plain, withTools *compiled
	options          Options
	special          []jinja.Var
	defaults         pyjson.Value
}

// compiled is a template, or why there is none.
type compiled struct {
	template  *jinja.Template
	err       error
	parts     bool // contents are lists of parts
	developer bool // it knows the role
	content   bool // it names "content"
}

// ownRenderers are the architectures for which vLLM's tokenizer mode "auto" is
// none that renders a template.
var ownRenderers = []string{
	"MoonshotKimiaForCausalLM", "KimiK3ForConditionalGeneration", "DeepseekV32ForCausalLM", "DeepseekV4ForCausalLM",
	"DeepseekV4ForConditionalGeneration", "DeepseekV41ForCausalLM", "InklingForCausalLM", "InklingForConditionalGeneration",
}

// Compile makes a renderer. The error is an [*UnsupportedError] if only an
// engine can render the model's chats, or says which option is wrong.
func Compile(c Config, o Options) (*Renderer, error) {
	switch o.TokenizerMode {
	case "", "auto", "hf", "slow":
	default:
		return nil, unsupported("the tokenizer mode %q", o.TokenizerMode)
	}
	for _, a := range o.Architectures {
		if slices.Contains(ownRenderers, a) {
			return nil, unsupported("the chats of %s are rendered by code of its own", a)
		}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	r := &Renderer{options: o}
	if len(o.DefaultKwargs) > 0 {
		v, err := pyjson.Parse(string(o.DefaultKwargs), pyjson.Limits{Depth: maxDepth})
		if err != nil || v.Kind() != pyjson.Dict {
			return nil, invalid("the default kwargs are no object: %v", err)
		}
		r.defaults = v
	}
	for _, name := range specialTokens {
		if token, ok := c.SpecialTokens[name]; ok {
			r.special = append(r.special, jinja.Var{Name: name, Value: pyjson.NewString(token)})
		}
	}
	plain, withTools := c.choose(o.Template)
	if r.plain = r.compile(plain); r.plain.err != nil {
		return nil, r.plain.err
	}
	r.withTools = r.plain
	if withTools != plain {
		r.withTools = r.compile(withTools)
	}
	return r, nil
}

// choose picks the templates for requests without and with tools.
func (c *Config) choose(given string) (plain, withTools string) {
	if given != "" {
		return given, given
	}
	plain = c.Templates["default"]
	withTools = plain
	if t, ok := c.Templates["tool_use"]; ok {
		withTools = t
	}
	if c.ProcessorTemplate != "" {
		plain = c.ProcessorTemplate
	}
	return plain, withTools
}

func (r *Renderer) compile(source string) *compiled {
	if source == "" {
		return &compiled{err: unsupported("the model has no chat template")}
	}
	t, err := jinja.Compile(source)
	if err != nil {
		return &compiled{err: classify(err)}
	}
	c := &compiled{template: t, parts: t.WantsParts(), content: strings.Contains(source, "content")}
	c.developer = strings.Contains(source, `"developer"`) || strings.Contains(source, "'developer'")
	switch r.options.ContentFormat {
	case "", "auto":
	case "string":
		c.parts = false
	case "openai":
		c.parts = true
	default:
		c.err = unsupported("the content format %q", r.options.ContentFormat)
	}
	return c
}

// Render gives the prompt of a request.
func (r *Renderer) Render(req *Request) (Rendered, error) {
	if r.options.ModelType == "gpt_oss" && req.kind == ChatCompletions {
		return Rendered{}, unsupported("gpt-oss chats are rendered by harmony")
	}
	tools := req.tools
	if req.toolChoiceNone && r.options.ExcludeToolsWhenChoiceNone {
		tools = pyjson.Value{}
	}
	c := r.plain
	if tools.Kind() != pyjson.Absent {
		c = r.withTools
	}
	if c.err != nil {
		return Rendered{}, c.err
	}
	conversation, err := c.conversation(req)
	if err != nil {
		return Rendered{}, err
	}
	vars, err := r.vars(req, c, tools)
	if err != nil {
		return Rendered{}, err
	}
	dated := false
	now := func() time.Time {
		dated = true
		return r.options.Now()
	}
	render := func(messages []pyjson.Value) (string, error) {
		vars := append(vars, jinja.Var{Name: "messages", Value: pyjson.NewList(messages...)})
		limits := jinja.Limits{Output: r.options.MaxOutput, Work: r.options.MaxWork}
		text, err := c.template.Render(vars, limits, now)
		return text, classify(err)
	}
	out := Rendered{AddSpecial: req.addSpecialTokens}
	if req.continueFinalMessage {
		out.Text, err = c.continueFinal(conversation, render)
	} else {
		out.Text, err = render(conversation)
	}
	out.Dated = dated
	return out, err
}

// conversation is the list of messages that the template gets.
func (c *compiled) conversation(req *Request) ([]pyjson.Value, error) {
	list := make([]pyjson.Value, len(req.messages))
	developer := false
	for i := range req.messages {
		m := &req.messages[i]
		if m.role == "developer" {
			developer = true
			if c.developer && !m.tools.IsNone() {
				return nil, unsupported("a developer message with tools")
			}
		}
		list[i] = m.forTemplate(c.parts)
	}
	if developer && !c.developer {
		return asSystem(list), nil
	}
	return list, nil
}

// asSystem renames developer messages and makes all system messages one, at
// the front, as vLLM does for templates that do not know the role.
func asSystem(list []pyjson.Value) []pyjson.Value {
	var texts []string
	var others []pyjson.Value
	merge := false
	for i, m := range list {
		role := m.Get("role").Str()
		if role == "developer" {
			var d builder
			d.set("role", pyjson.NewString("system"))
			for j, k := range m.Keys() {
				if k != "role" && k != "tools" {
					d.set(k, m.Items()[j])
				}
			}
			m, role = d.value(), "system"
			list[i] = m
		}
		if role != "system" {
			others = append(others, m)
			continue
		}
		merge = merge || i > 0
		if text := plainText(m.Get("content")); text != "" {
			texts = append(texts, text)
		}
	}
	if !merge {
		return list
	}
	var d builder
	d.set("role", pyjson.NewString("system"))
	d.set("content", pyjson.NewString(strings.Join(texts, "\n\n")))
	return append([]pyjson.Value{d.value()}, others...)
}

func plainText(content pyjson.Value) string {
	if content.Kind() != pyjson.List {
		return content.Str()
	}
	var texts []string
	for _, p := range content.Items() {
		if t := p.Get("text"); t.Kind() == pyjson.String {
			texts = append(texts, t.Str())
		}
	}
	return strings.Join(texts, "\n")
}

// refused are kwargs that mean something to transformers or to vLLM, or a
// function of every template: with them, nothing is certain.
var refused = []string{
	"conversation", "messages", "tools", "tokenize", "padding", "truncation", "max_length", "return_tensors", "return_dict",
	"return_assistant_tokens_mask", "tokenizer_kwargs", "tokenizer", "model_config", "self", "chat_template",
	"raise_exception", "strftime_now", "loop", "caller", "varargs", "kwargs", "super",
}

// vars are the variables of the template but for messages: special tokens,
// then the server's kwargs, then the request's, then what the request says in
// fields of its own.
func (r *Renderer) vars(req *Request, c *compiled, tools pyjson.Value) ([]jinja.Var, error) {
	vars := slices.Clone(r.special)
	documents := pyjson.NewNull()
	set := func(name string, v pyjson.Value) error {
		switch {
		case slices.Contains(refused, name):
			return unsupported("the template kwarg %q", name)
		case name == "documents":
			documents = v
		case name == "add_generation_prompt", name == "continue_final_message":
			// The request's own fields count, which have defaults.
		case c.template.Uses(name):
			vars = append(vars, jinja.Var{Name: name, Value: v})
		}
		return nil
	}
	// null and "auto" in a request leave the server's value, or none.
	unset := func(v pyjson.Value) bool { return v.IsNone() || (v.Kind() == pyjson.String && v.Str() == "auto") }
	for i, name := range r.defaults.Keys() {
		if err := set(name, r.defaults.Items()[i]); err != nil {
			return nil, err
		}
	}
	for i, name := range req.kwargs.Keys() {
		if v := req.kwargs.Items()[i]; !unset(v) {
			if err := set(name, v); err != nil {
				return nil, err
			}
		}
	}
	if e := req.reasoningEffort; !e.IsNone() {
		_ = set("reasoning_effort", e)
		if req.kwargs.Get("enable_thinking").Kind() == pyjson.Absent {
			_ = set("enable_thinking", pyjson.NewBool(e.Str() != "none"))
		}
	}
	if !req.documents.IsNone() {
		documents = req.documents
	}
	if !documents.IsNone() && (documents.Kind() != pyjson.List ||
		slices.ContainsFunc(documents.Items(), func(v pyjson.Value) bool { return v.Kind() != pyjson.Dict })) {
		return nil, invalid("documents must be a list of objects")
	}
	if tools.Kind() == pyjson.Absent {
		tools = pyjson.NewNull()
	}
	return append(vars,
		jinja.Var{Name: "tools", Value: tools},
		jinja.Var{Name: "documents", Value: documents},
		jinja.Var{Name: "add_generation_prompt", Value: pyjson.NewBool(req.addGenerationPrompt)},
	), nil
}
