package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"
	"unicode/utf8"

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
	return loadTokenizerFrom(os.DirFS(dir), dir, time.Now)
}

// loadTokenizerFrom is loadTokenizer of any file system. now is the time that
// templates write into prompts.
func loadTokenizerFrom(fsys fs.FS, name string, now func() time.Time) (*tokenizer.Parts, error) {
	files, noChat, err := readTokenizerFiles(fsys, name)
	if err != nil {
		return nil, err
	}
	p := &tokenizer.Parts{JSON: files["tokenizer.json"]}
	if err := chooseEncoder(p, files["tokenizer_config.json"]); err != nil {
		return nil, err
	}
	model, err := parseModelConfig(files["config.json"])
	if noChat = errors.Join(noChat, err); noChat == nil {
		p.Renderer, noChat = newRenderer(files, model, now)
	}
	if noChat != nil {
		p.Renderer, p.NoChat = nil, noChat.Error()
	}
	p.MaxLen = max(model.MaxPositions, model.Text.MaxPositions)
	return p, nil
}

// modelFile is what config.json says that matters here.
type modelFile struct {
	Type          string   `json:"model_type"`
	Architectures []string `json:"architectures"`
	MaxPositions  int      `json:"max_position_embeddings"`
	Text          struct { // of models that see too
		MaxPositions int `json:"max_position_embeddings"`
	} `json:"text_config"`
}

func parseModelConfig(b []byte) (m modelFile, err error) {
	if b == nil {
		return m, nil
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("cannot parse config.json: %w", err)
	}
	return m, nil
}

// tokenizerFiles are what is read of a model's directory. Only the first must
// be there.
var tokenizerFiles = [...]string{
	"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "chat_template.json", "special_tokens_map.json", "config.json",
}

// readTokenizerFiles reads the files of a model. noChat is what is wrong with
// one that only chats need.
func readTokenizerFiles(fsys fs.FS, dir string) (files map[string][]byte, noChat, err error) {
	files = map[string][]byte{}
	for _, name := range tokenizerFiles {
		b, err := fs.ReadFile(fsys, name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err == nil && utf8.Valid(b):
			files[name] = b
			continue
		case err == nil:
			err = fmt.Errorf("%s is not UTF-8", name)
		default:
			err = fmt.Errorf("cannot read the tokenizer: %w", err)
		}
		if name == "tokenizer.json" {
			return nil, nil, err
		}
		noChat = errors.Join(noChat, err)
	}
	if files["tokenizer.json"] == nil {
		return nil, nil, fmt.Errorf("%s holds no tokenizer.json", dir)
	}
	return files, noChat, nil
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

func newRenderer(files map[string][]byte, model modelFile, now func() time.Time) (tokenizer.Renderer, error) {
	config, err := chat.ParseConfig(chat.Files{
		TokenizerConfig: files["tokenizer_config.json"], ChatTemplateJinja: files["chat_template.jinja"],
		ChatTemplateJSON: files["chat_template.json"], SpecialTokensMap: files["special_tokens_map.json"],
	})
	if err != nil {
		return nil, err
	}
	r, err := chat.Compile(config, chat.Options{ModelType: model.Type, Architectures: model.Architectures, Now: now})
	if err != nil {
		return nil, err
	}
	return renderer{r}, nil
}

// Render implements tokenizer.Renderer.
func (r renderer) Render(t tokenizer.Request) (tokenizer.Rendered, error) {
	kind := chat.ChatCompletions
	if t.Kind == tokenizer.TokenizeChat {
		kind = chat.Tokenize
	}
	parse := chat.ParseRequest
	if t.Valid {
		parse = chat.ParseValid
	}
	req, err := parse(t.Body, kind)
	if err != nil {
		return tokenizer.Rendered{}, withoutText(err)
	}
	out, err := r.r.Render(req)
	return tokenizer.Rendered{Text: out.Text, AddSpecial: out.AddSpecial, Dated: out.Dated}, withoutText(err)
}

// withoutText keeps from callers and logs what a template raised: it may quote
// messages.
func withoutText(err error) error {
	if invalid := (*chat.InvalidError)(nil); errors.As(err, &invalid) {
		return &tokenizer.InvalidError{Reason: "the chat is not valid for the model: its engine answers 400 too"}
	}
	return err
}

// newTokenizers begins to load the tokenizers of all models.
func newTokenizers(ctx context.Context, c *config, e tokenizer.Engines, log *slog.Logger) (*tokenizer.Registry, error) {
	h, err := newHub(c.Tokenizer.Hub, log)
	if err != nil {
		return nil, err
	}
	o := tokenizer.RegistryOptions{
		Load: hubLoader(h), CacheBytes: c.Tokenizer.CacheBytes, SampleEvery: c.Tokenizer.SampleEvery, Logger: log,
	}
	if c.Tokenizer.AskEngines {
		o.Engines = e
	}
	r := tokenizer.NewRegistry(o)
	for _, m := range c.Models {
		if m.Tokenizer == noTokenizer {
			r.Refuse(m.Name, "the configuration says that requests of the model carry token ids (models[].tokenizer: none)")
		} else if source := m.tokenizerSource(); source != "" {
			r.Add(ctx, m.Name, source)
		}
	}
	return r, nil
}

// loadingTokenizers says which tokenizers are not there yet.
func loadingTokenizers(r *tokenizer.Registry) []string {
	var out []string
	for _, name := range r.Names() {
		if st, _ := r.Status(name); st.State == tokenizer.Loading {
			out = append(out, "tokenizer of "+name)
		}
	}
	return out
}
