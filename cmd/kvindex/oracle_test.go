package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/kvindex/kvindex/tokenizer"
	"github.com/kvindex/kvindex/tokenizer/hf"
)

// oracleCase is a request that a real vLLM 0.32.0 tokenized.
type oracleCase struct {
	ID      string          `json:"id"`
	Kind    string          `json:"kind"` // chat or completion
	Request json.RawMessage `json:"request"`
	Tokens  []uint32        `json:"tokens"`
	Status  int             `json:"tokenize_status"`
}

// TestOracle holds the whole way from a request to token ids against a real
// engine: files, template, tokenizer, and the cache, which every case finds as
// the ones before left it.
func TestOracle(t *testing.T) {
	if !hf.Available() {
		t.Skip("this build has no tokenizer library")
	}
	unknownIDs := map[string]int{"gptoss": 65} // its chats are rendered by harmony, which only engines have
	for _, name := range []string{"qwen3", "qwen2_5", "llama3_1", "llama3_2", "deepseek_v3", "gemma3", "mistral_nemo", "gptoss"} {
		t.Run(name, func(t *testing.T) {
			r := tokenizer.NewRegistry(tokenizer.RegistryOptions{Load: loadOnTheOraclesDay, CacheBytes: 8 << 20})
			t.Cleanup(r.Close)
			r.Add(t.Context(), name, testTokenizer(t, name))
			r.Wait()
			st, _ := r.Status(name)
			if st.State != tokenizer.Ready {
				t.Fatal(st.Reason)
			}
			identical, unknown, refused, different := 0, 0, 0, 0
			for _, c := range readOracle(t, name) {
				ids, err := oracleTokens(t, r, name, c)
				var invalid *tokenizer.InvalidError
				switch {
				case c.Status != 200 && (err != nil || c.Tokens == nil):
					refused++
				case errors.As(err, &invalid):
					t.Errorf("%s: refused, and the engine took it: %v", c.ID, err)
				case err != nil:
					unknown++
					t.Logf("%s: unknown: %v", c.ID, err)
				case slices.Equal(ids, c.Tokens):
					identical++
				default:
					different++
					t.Errorf("%s: %d tokens, the engine has %d", c.ID, len(ids), len(c.Tokens))
				}
			}
			t.Logf("%-12s by %-16s identical %3d, unknown %2d, refused by the engine %2d, different %d", name, st.Engine, identical, unknown, refused, different)
			if unknown > unknownIDs[name] || identical < 30 {
				t.Errorf("%d identical, %d unknown", identical, unknown)
			}
		})
	}
}

// loadOnTheOraclesDay is loadTokenizer with the date that the engine wrote into
// prompts.
func loadOnTheOraclesDay(_ context.Context, dir string) (*tokenizer.Parts, error) {
	return loadTokenizerFrom(os.DirFS(dir), dir, func() time.Time { return time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC) })
}

// oracleTokens tokenizes a case the way /tokenize does.
func oracleTokens(t *testing.T, r *tokenizer.Registry, model string, c oracleCase) ([]uint32, error) {
	kind := tokenizer.TokenizePrompt
	if c.Kind == "chat" {
		kind = tokenizer.TokenizeChat
	}
	tokens, _, err := r.Tokens(t.Context(), model, tokenizer.Request{Kind: kind, Body: c.Request})
	return tokens.AppendIDs(nil), err
}

// testTokenizer is the folder of a real tokenizer, which
// scripts/test-tokenizers.sh fetches.
func testTokenizer(t *testing.T, name string) string {
	t.Helper()
	cache := os.Getenv("KVINDEX_CACHE")
	if cache == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		cache = filepath.Join(base, "kvindex")
	}
	dir := filepath.Join(cache, "test-tokenizers", name)
	if _, err := os.Stat(filepath.Join(dir, "tokenizer.json")); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("%v: scripts/test-tokenizers.sh fetches it", err)
		}
		t.Skipf("no tokenizer in %s: scripts/test-tokenizers.sh fetches it", dir)
	}
	return dir
}

func readOracle(t *testing.T, name string) []oracleCase {
	t.Helper()
	f, err := os.Open("../../tokenizer/testdata/oracle/oracle_" + name + ".jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var list []oracleCase
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var c oracleCase
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		list = append(list, c)
	}
	if err := lines.Err(); err != nil || len(list) == 0 {
		t.Fatalf("%d cases, %v", len(list), err)
	}
	return list
}
