package chat

import (
	"fmt"
	"slices"

	"github.com/kvindex/kvindex/tokenizer/chat/pyjson"
)

// Files are the files of a model that say how its chats are rendered. All but
// the first may be nil.
type Files struct {
	TokenizerConfig   []byte // tokenizer_config.json
	ChatTemplateJinja []byte // chat_template.jinja: beats the configuration
	// ChatTemplateJSON is chat_template.json, which belongs to the processor
	// of a multimodal model: vLLM prefers it for requests without tools.
	ChatTemplateJSON []byte
	// SpecialTokensMap is special_tokens_map.json: tokens that the
	// configuration does not name.
	SpecialTokensMap []byte
	// Named are additional_chat_templates/NAME.jinja by NAME.
	Named map[string][]byte
}

// Config is what a model's files say.
type Config struct {
	// Templates are the tokenizer's templates by name. A single one is
	// "default"; "tool_use" is taken for requests with tools.
	Templates map[string]string
	// ProcessorTemplate is the template of a multimodal model's processor.
	ProcessorTemplate string
	// SpecialTokens are bos_token, eos_token and so on, those that are set.
	SpecialTokens map[string]string
	// AddBOS and AddEOS are add_bos_token and add_eos_token, nil if not given.
	// Fast tokenizers go by tokenizer.json instead.
	AddBOS, AddEOS *bool
	// CleanUpSpaces is clean_up_tokenization_spaces. It concerns decoding only.
	CleanUpSpaces bool
	// TokenizerClass is tokenizer_class.
	TokenizerClass string
}

// specialTokens are the names that templates know, in transformers 5.
var specialTokens = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// ParseConfig reads a model's files. A model without any template is not an
// error here.
func ParseConfig(f Files) (Config, error) {
	c := Config{Templates: map[string]string{}, SpecialTokens: map[string]string{}}
	if f.TokenizerConfig != nil {
		v, err := parseFile("tokenizer_config.json", f.TokenizerConfig)
		if err != nil {
			return Config{}, err
		}
		if err := c.readTemplates(v.Get("chat_template")); err != nil {
			return Config{}, err
		}
		c.readTokens(v)
		c.AddBOS, c.AddEOS = optionalBool(v.Get("add_bos_token")), optionalBool(v.Get("add_eos_token"))
		c.CleanUpSpaces = v.Get("clean_up_tokenization_spaces").IsTrue()
		c.TokenizerClass = v.Get("tokenizer_class").Str()
	}
	if f.SpecialTokensMap != nil {
		v, err := parseFile("special_tokens_map.json", f.SpecialTokensMap)
		if err != nil {
			return Config{}, err
		}
		c.readTokens(v)
	}
	if f.ChatTemplateJinja != nil || len(f.Named) > 0 {
		c.Templates = map[string]string{}
		if f.ChatTemplateJinja != nil {
			c.Templates["default"] = string(f.ChatTemplateJinja)
		}
		for name, t := range f.Named {
			c.Templates[name] = string(t)
		}
	}
	if f.ChatTemplateJSON != nil {
		v, err := parseFile("chat_template.json", f.ChatTemplateJSON)
		if err != nil {
			return Config{}, err
		}
		c.ProcessorTemplate = v.Get("chat_template").Str()
	}
	return c, nil
}

// parseFile reads the members of a file that count here. Others are skipped:
// model_max_length is often 10^30.
func parseFile(name string, data []byte) (pyjson.Value, error) {
	var kept builder
	p := pyjson.NewParser(string(data), pyjson.Limits{Depth: maxDepth})
	err := p.Object(func(key string) error {
		if !slices.Contains(configKeys, key) && !slices.Contains(specialTokens, key) {
			return p.Skip()
		}
		v, err := p.Value()
		kept.set(key, v)
		return err
	})
	if err == nil {
		err = p.End()
	}
	if err != nil {
		return pyjson.Value{}, fmt.Errorf("cannot read %s: %w", name, err)
	}
	return kept.value(), nil
}

var configKeys = []string{"chat_template", "add_bos_token", "add_eos_token", "clean_up_tokenization_spaces", "tokenizer_class"}

// readTemplates takes one template, or a list of named ones.
func (c *Config) readTemplates(v pyjson.Value) error {
	switch v.Kind() {
	case pyjson.Absent, pyjson.Null:
		return nil
	case pyjson.String:
		c.Templates["default"] = v.Str()
		return nil
	case pyjson.List:
		for _, t := range v.Items() {
			name, text := t.Get("name"), t.Get("template")
			if name.Kind() != pyjson.String || text.Kind() != pyjson.String {
				return fmt.Errorf("cannot read tokenizer_config.json: a named chat_template without name or template")
			}
			c.Templates[name.Str()] = text.Str()
		}
		return nil
	}
	return fmt.Errorf("cannot read tokenizer_config.json: chat_template is neither text nor a list")
}

// readTokens takes the special tokens that are not known yet: text, or an
// object with the text as its content.
func (c *Config) readTokens(v pyjson.Value) {
	for i, key := range v.Keys() {
		if !slices.Contains(specialTokens, key) {
			continue
		}
		t := v.Items()[i]
		if t.Kind() == pyjson.Dict {
			t = t.Get("content")
		}
		if _, known := c.SpecialTokens[key]; !known && t.Kind() == pyjson.String {
			c.SpecialTokens[key] = t.Str()
		}
	}
}

func optionalBool(v pyjson.Value) *bool {
	if v.Kind() != pyjson.Bool {
		return nil
	}
	b := v.IsTrue()
	return &b
}
