package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"github.com/kvindex/kvindex/api"
	"github.com/kvindex/kvindex/tokenizer"
	"github.com/kvindex/kvindex/tokenizer/bpe"
	"github.com/kvindex/kvindex/tokenizer/chat"
	"github.com/kvindex/kvindex/tokenizer/hf"
)

// loadTokenizer is a tokenizer.Loader for directories. It makes a model's tokenizer from a directory with its
// tokenizer.json, tokenizer_config.json and chat template: by package bpe where
// that knows all of it, else by the engine's own library, which also proves
// the former.
func loadTokenizer(_ context.Context, dir string) (*tokenizer.Parts, error) {
	return loadTokenizerFrom(os.DirFS(dir), dir)
}

func loadTokenizerFrom(fsys fs.FS, name string) (*tokenizer.Parts, error) {
	files, err := readTokenizerFiles(fsys, name)
	if err != nil {
		return nil, err
	}
	p := &tokenizer.Parts{JSON: files["tokenizer.json"]}
	if err := chooseEncoder(p, files["tokenizer_config.json"]); err != nil {
		return nil, err
	}
	p.Renderer, err = newRenderer(files)
	if err != nil {
		p.Renderer, p.NoChat = nil, err.Error()
	}
	return p, nil
}

// tokenizerFiles are what is read of a model's directory. Only the first must
// be there.
var tokenizerFiles = [...]string{
	"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "chat_template.json", "special_tokens_map.json", "config.json",
}

func readTokenizerFiles(fsys fs.FS, dir string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, name := range tokenizerFiles {
		b, err := fs.ReadFile(fsys, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read the tokenizer: %w", err)
		}
		files[name] = b
	}
	if files["tokenizer.json"] == nil {
		return nil, fmt.Errorf("%s holds no tokenizer.json", dir)
	}
	return files, nil
}

// chooseEncoder sets p's encoder, its oracle and its special tokens.
func chooseEncoder(p *tokenizer.Parts, config []byte) error {
	library, libraryErr := hf.New(p.JSON, hf.Options{TokenizerConfig: config})
	own, ownErr := bpe.New(p.JSON)
	switch {
	case ownErr == nil:
		p.Encoder, p.Engine = own, "bpe/"+own.Name()
	case libraryErr == nil:
		p.Encoder, p.Engine = library, "hf"
	default:
		return errors.Join(ownErr, libraryErr)
	}
	if libraryErr != nil {
		if !errors.Is(libraryErr, hf.ErrUnavailable) {
			return libraryErr
		}
		return nil
	}
	p.Oracle = func(text string) ([]uint32, error) { return library.Append(nil, text) }
	var err error
	if p.Before, p.After, err = specialTokens(library); err != nil {
		return err
	}
	if ownErr == nil {
		p.CloseOracle = library.Close
	}
	return nil
}

// specialTokens finds what the post-processor puts around a text.
func specialTokens(e *hf.Encoder) (before, after []uint32, err error) {
	const text = "a"
	plain, err := e.Append(nil, text)
	if err != nil {
		return nil, nil, err
	}
	full, err := e.AppendSpecial(nil, text)
	if err != nil {
		return nil, nil, err
	}
	for i := 0; i+len(plain) <= len(full); i++ {
		if equalIDs(full[i:i+len(plain)], plain) {
			return full[:i], full[i+len(plain):], nil
		}
	}
	return nil, nil, errors.New("the post-processor changes the tokens of the text itself")
}

func equalIDs(a, b []uint32) bool {
	for i := range b {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// renderer renders chats with a model's template.
type renderer struct{ r *chat.Renderer }

func newRenderer(files map[string][]byte) (tokenizer.Renderer, error) {
	config, err := chat.ParseConfig(chat.Files{
		TokenizerConfig: files["tokenizer_config.json"], ChatTemplateJinja: files["chat_template.jinja"],
		ChatTemplateJSON: files["chat_template.json"], SpecialTokensMap: files["special_tokens_map.json"],
	})
	if err != nil {
		return nil, err
	}
	var model struct {
		Type          string   `json:"model_type"`
		Architectures []string `json:"architectures"`
	}
	if b := files["config.json"]; b != nil {
		if err := json.Unmarshal(b, &model); err != nil {
			return nil, fmt.Errorf("cannot parse config.json: %w", err)
		}
	}
	r, err := chat.Compile(config, chat.Options{ModelType: model.Type, Architectures: model.Architectures})
	if err != nil {
		return nil, err
	}
	return renderer{r}, nil
}

// Render implements tokenizer.Renderer.
func (r renderer) Render(body []byte) (string, bool, error) {
	req, err := chat.ParseRequest(body, chat.ChatCompletions)
	if err != nil {
		return "", false, withoutText(err)
	}
	out, err := r.r.Render(req)
	return out.Text, out.AddSpecial, withoutText(err)
}

// withoutText keeps from callers and logs what a template raised: it may quote
// messages.
func withoutText(err error) error {
	if invalid := (*chat.InvalidError)(nil); errors.As(err, &invalid) {
		return errors.New("the chat is not valid for the model: its engine answers 400 too")
	}
	return err
}

// tokenizers shows a tokenizer.Registry to the API.
type tokenizers struct{ r *tokenizer.Registry }

func newTokenizers(ctx context.Context, c *config, log *slog.Logger) tokenizers {
	t := tokenizers{tokenizer.NewRegistry(loadTokenizer, c.Tokenizer.CacheBytes, log)}
	for _, m := range c.Models {
		if m.Tokenizer != "" && m.Tokenizer != noTokenizer {
			t.r.Add(ctx, m.Name, m.Tokenizer)
		}
	}
	return t
}

// AppendTokens implements api.Tokenizers.
func (t tokenizers) AppendTokens(dst []uint32, model string, body []byte) (ids []uint32, known int, err error) {
	var req struct {
		Messages   json.RawMessage `json:"messages"`
		Prompt     json.RawMessage `json:"prompt"`
		AddSpecial *bool           `json:"add_special_tokens"`
	}
	if err := json.Unmarshal(body, &req); err != nil {
		return dst, 0, errors.New("the body is not the JSON of a completions or chat request")
	}
	var tokens tokenizer.Tokens
	if req.Messages != nil {
		tokens, err = t.r.Chat(model, body)
	} else {
		var prompt string
		if prompt, err = onePrompt(req.Prompt); err != nil {
			return dst, 0, err
		}
		tokens, err = t.r.Text(model, prompt, req.AddSpecial == nil || *req.AddSpecial)
	}
	if err != nil {
		return dst, 0, err
	}
	return tokens.AppendIDs(dst), tokens.Cached, nil
}

// onePrompt is the text of a prompt: a string, or a list of one.
func onePrompt(raw json.RawMessage) (string, error) {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s, nil
	}
	var list []string
	if json.Unmarshal(raw, &list) == nil && len(list) == 1 {
		return list[0], nil
	}
	return "", errors.New("the prompt is neither a text nor a list of one")
}

// TokenizerStatus implements api.Tokenizers.
func (t tokenizers) TokenizerStatus(model string) (api.TokenizerStatus, bool) {
	st, ok := t.r.Status(model)
	return api.TokenizerStatus{
		State: string(st.State), Reason: st.Reason, Source: st.Source, Engine: st.Engine,
		Proof: st.Proof, Requests: st.Requests, Failures: st.Failures,
	}, ok
}

// loading says which tokenizers are not there yet.
func (t tokenizers) loading() []string {
	var out []string
	for _, name := range t.r.Names() {
		if st, _ := t.r.Status(name); st.State == tokenizer.Loading {
			out = append(out, "tokenizer of "+name)
		}
	}
	return out
}
