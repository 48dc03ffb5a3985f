package bpe_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/kvindex/kvindex/tokenizer/bpe"
)

// supported are the test tokenizers that bpe knows, with the names of their
// patterns. The demo model's lies in the repository.
var supported = []struct{ name, pattern string }{
	{"demo-model", "qwen2"},
	{"qwen3", "qwen2"},
	{"qwen2_5", "qwen2"},
	{"llama3_1", "llama3"},
	{"llama3_2", "llama3"},
	{"gptoss", "o200k"},
	{"mistral_nemo", "tekken"},
	{"deepseek_v3", "deepseek_v3"},
}

// tokenizerJSON returns a test tokenizer. Without the file it skips the test, in CI
// it fails.
func tokenizerJSON(tb testing.TB, name string) []byte {
	tb.Helper()
	path := filepath.Join("..", "testdata", "demo-model", "tokenizer.json")
	if name != "demo-model" {
		path = filepath.Join(cacheDir(tb), "test-tokenizers", name, "tokenizer.json")
	}
	raw, err := os.ReadFile(path)
	if err == nil {
		return raw
	}
	if os.Getenv("CI") == "true" {
		tb.Fatalf("no test tokenizer: %v: scripts/test-tokenizers.sh fetches it", err)
	}
	tb.Skipf("skipped: no test tokenizer: %v: scripts/test-tokenizers.sh fetches it", err)
	return nil
}

// cacheDir is where the scripts keep what they fetch.
func cacheDir(tb testing.TB) string {
	tb.Helper()
	if dir := os.Getenv("KVINDEX_CACHE"); dir != "" {
		return dir
	}
	if dir := os.Getenv("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(dir, "kvindex")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		tb.Skipf("skipped: no home directory: %v", err)
	}
	return filepath.Join(home, ".cache", "kvindex")
}

// encoders are those that tests have loaded; loading takes longer than most
// tests.
var encoders sync.Map

func encoder(tb testing.TB, name string) *bpe.Encoder {
	tb.Helper()
	if e, ok := encoders.Load(name); ok {
		return e.(*bpe.Encoder)
	}
	e, err := bpe.New(tokenizerJSON(tb, name))
	if err != nil {
		tb.Fatalf("New(%s): %v", name, err)
	}
	encoders.Store(name, e)
	return e
}

// addedTokens splits text the way the library does before anything else.
type addedTokens struct {
	levels [2]map[string]uint32 // those found in the text as it is, and in normalized text
	before []uint32             // what add_special_tokens puts before a text
}

func readAddedTokens(tb testing.TB, raw []byte) *addedTokens {
	tb.Helper()
	type processor struct {
		Type   string
		Single []struct{ SpecialToken *struct{ ID string } }
	}
	var f struct {
		Added []struct {
			ID         uint32 `json:"id"`
			Content    string `json:"content"`
			Normalized bool   `json:"normalized"`
		} `json:"added_tokens"`
		Post *struct {
			processor
			Processors []processor
		} `json:"post_processor"`
	}
	if err := json.Unmarshal(raw, &f); err != nil {
		tb.Fatal(err)
	}
	a := &addedTokens{levels: [2]map[string]uint32{{}, {}}}
	ids := map[string]uint32{}
	for _, t := range f.Added {
		level := 0
		if t.Normalized {
			level = 1
		}
		a.levels[level][t.Content] = t.ID
		ids[t.Content] = t.ID
	}
	if f.Post != nil {
		for _, p := range append(f.Post.Processors, f.Post.processor) {
			for _, s := range p.Single {
				if s.SpecialToken == nil {
					break
				}
				a.before = append(a.before, ids[s.SpecialToken.ID])
			}
		}
	}
	return a
}

// split calls piece for text between added tokens and token for those.
func (a *addedTokens) split(text string, level int, piece func(string), token func(uint32)) {
	if level == len(a.levels) {
		if text != "" {
			piece(text)
		}
		return
	}
	longest := 0
	var first strings.Builder // bytes that a token begins with
	for t := range a.levels[level] {
		longest = max(longest, len(t))
		if strings.IndexByte(first.String(), t[0]) < 0 {
			first.WriteByte(t[0])
		}
	}
	from := 0
	for i := 0; i < len(text); {
		next := -1
		if strings.IndexByte(first.String(), text[i]) >= 0 {
			for n := min(longest, len(text)-i); n > 0; n-- {
				if id, ok := a.levels[level][text[i:i+n]]; ok {
					a.split(text[from:i], level+1, piece, token)
					token(id)
					next = i + n
					break
				}
			}
		}
		if next < 0 {
			i++
			continue
		}
		i, from = next, next
	}
	a.split(text[from:], level+1, piece, token)
}

// encode returns the ids of a text that may contain added tokens.
func (a *addedTokens) encode(tb testing.TB, e *bpe.Encoder, text string) []uint32 {
	tb.Helper()
	var ids []uint32
	a.split(text, 0, func(s string) {
		var err error
		if ids, err = e.Append(ids, s); err != nil {
			tb.Fatal(err)
		}
	}, func(id uint32) { ids = append(ids, id) })
	return ids
}
