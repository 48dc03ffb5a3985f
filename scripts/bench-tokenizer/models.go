package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/kvindex/kvindex/tokenizer"
	"github.com/kvindex/kvindex/tokenizer/bpe"
	"github.com/kvindex/kvindex/tokenizer/chat"
	"github.com/kvindex/kvindex/tokenizer/hf"
)

// chatModel is the tokenizer whose chats are measured.
const chatModel = "qwen3"

// required are the tokenizers without which a run would not say what it
// should.
var required = [...]string{"qwen3", "llama3_1", "gptoss", "deepseek_v3", "mistral_nemo"}

// errNoTokenizers is wrapped by the error for missing files.
var errNoTokenizers = errors.New("the tokenizers of real models are not here: make setup or scripts/test-tokenizers.sh fetches them")

// modelFiles are what a tokenizer is made from.
type modelFiles struct {
	name              string
	tokenizer, config []byte // tokenizer.json, tokenizer_config.json
}

// tokenizersDir is where scripts/test-tokenizers.sh keeps what it fetches.
func tokenizersDir() (string, error) {
	if dir := os.Getenv("KVINDEX_CACHE"); dir != "" {
		return filepath.Join(dir, "test-tokenizers"), nil
	}
	if dir := os.Getenv("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(dir, "kvindex", "test-tokenizers"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("cannot find the tokenizers: %w", err)
	}
	return filepath.Join(home, ".cache", "kvindex", "test-tokenizers"), nil
}

// modelNames lists the required tokenizers and, if all are wanted, the others
// in a directory. Those are variants of the former.
func modelNames(dir string, all bool) ([]string, error) {
	names := slices.Clone(required[:])
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(dir, name, "tokenizer.json")); err != nil {
			return nil, fmt.Errorf("%w: %w", errNoTokenizers, err)
		}
	}
	if !all {
		return names, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot list the tokenizers: %w", err)
	}
	for _, e := range entries {
		if _, err := os.Stat(filepath.Join(dir, e.Name(), "tokenizer.json")); err == nil && !slices.Contains(names, e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func readModel(dir, name string) (*modelFiles, error) {
	f := &modelFiles{name: name}
	var err error
	if f.tokenizer, err = os.ReadFile(filepath.Join(dir, name, "tokenizer.json")); err != nil {
		return nil, fmt.Errorf("cannot read the tokenizer %s: %w", name, err)
	}
	f.config, err = os.ReadFile(filepath.Join(dir, name, "tokenizer_config.json"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot read the tokenizer %s: %w", name, err)
	}
	return f, nil
}

// newOwn makes a tokenizer of package bpe as kvindex serve does. It remembers
// texts if there is a cache; words it always remembers, so a new one is cold.
func (f *modelFiles) newOwn(cache *tokenizer.Cache) (*tokenizer.Tokenizer, error) {
	e, err := bpe.New(f.tokenizer)
	if err != nil {
		return nil, fmt.Errorf("cannot load %s: %w", f.name, err)
	}
	return tokenizer.New(f.tokenizer, tokenizer.Options{Encoder: e, Cache: cache})
}

func (f *modelFiles) newLibrary() (*hf.Encoder, error) {
	e, err := hf.New(f.tokenizer, hf.Options{TokenizerConfig: f.config, MaxInstances: 1})
	if err != nil {
		return nil, fmt.Errorf("cannot load %s with the library: %w", f.name, err)
	}
	return e, nil
}

// renderer renders chats with a model's template.
type renderer struct{ r *chat.Renderer }

func (f *modelFiles) newRenderer() (*renderer, error) {
	config, err := chat.ParseConfig(chat.Files{TokenizerConfig: f.config})
	if err != nil {
		return nil, fmt.Errorf("cannot read the chat template of %s: %w", f.name, err)
	}
	r, err := chat.Compile(config, chat.Options{})
	if err != nil {
		return nil, fmt.Errorf("cannot compile the chat template of %s: %w", f.name, err)
	}
	return &renderer{r}, nil
}

// render returns the text of a chat and whether it gets special tokens.
func (r *renderer) render(body []byte, kind chat.Kind) (text string, addSpecial bool, err error) {
	req, err := chat.ParseRequest(body, kind)
	if err != nil {
		return "", false, err
	}
	out, err := r.r.Render(req)
	return out.Text, out.AddSpecial, err
}
