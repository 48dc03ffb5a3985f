package main

import (
	"encoding/json"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kvindex/kvindex/tokenizer"
	"github.com/kvindex/kvindex/tokenizer/hf"
)

// demoModel is the folder of the demo model, whose tokenizer is small.
const demoModel = "../../tokenizer/testdata/demo-model"

// propertyModels are the tokenizers that the properties are shown of.
var propertyModels = []string{
	"demo-model", "qwen3", "qwen2_5", "llama3_1", "llama3_2", "deepseek_v3", "gemma3", "mistral_nemo", "gptoss",
}

// loadParts loads a test tokenizer with its oracle.
func loadParts(t *testing.T, name string) *tokenizer.Parts {
	t.Helper()
	dir := demoModel
	if name != "demo-model" {
		dir = testTokenizer(t, name)
	}
	parts, err := loadTokenizer(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if parts.CloseOracle != nil {
		t.Cleanup(parts.CloseOracle)
	}
	return parts
}

func newTestTokenizer(t *testing.T, p *tokenizer.Parts, cache *tokenizer.Cache) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.New(p.JSON, tokenizer.Options{Encoder: p.Encoder, Cache: cache, Before: p.Before, After: p.After})
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// writer makes the texts of conversations.
type writer struct {
	r     *rand.Rand
	added []string // the tokenizer's own special tokens
}

func newWriter(t *testing.T, tokenizerJSON []byte, seed uint64) *writer {
	t.Helper()
	var f struct {
		Added []struct {
			Content string `json:"content"`
		} `json:"added_tokens"`
	}
	if err := json.Unmarshal(tokenizerJSON, &f); err != nil {
		t.Fatal(err)
	}
	w := &writer{r: rand.New(rand.NewPCG(seed, seed))}
	for _, a := range f.Added {
		w.added = append(w.added, a.Content)
	}
	return w
}

// writerWords try boundaries of words, of characters and of tokens.
var writerWords = []string{
	"The quiet", " gardens", "'s", "'LL", " 12345", "3.14", "é", "e\u0301", "\u0301\u0323", "中文字符", "，", "日本語", "カ\u3099", "한국어", "각", "हिन्दी",
	"ǅ", "😀", "👩‍👩‍👧", "\u00a0", "\u3000", "\u2028", "func main() {\n\tfmt.Println(\"hi\")\n}\n", "/path/to:\n/A", "!!!", "…", "<|", "|>", "<", ">", "[", "</s", "ſ", "İ",
	"http://example.com/?q=1&r=%20", "٣٤٥", "½", "x²", "\x00", "\xff", "\xe4\xb8", "\ufffd", "▁", "Ġ", "\u200d", "\t", "\r\n", " ",
}

// piece returns a part of a turn.
func (w *writer) piece() string {
	r := w.r
	token := ""
	if len(w.added) > 0 {
		token = w.added[r.IntN(len(w.added))]
	}
	switch r.IntN(9) {
	case 0, 1:
		return token
	case 2: // nearly a token: cut, doubled into itself, or with something in it
		if token == "" {
			return "<|"
		}
		i := r.IntN(len(token))
		return []string{token[:i], token[i:], token[:i] + token, token + token[i:], token[:i] + " " + token[i:], token + token}[r.IntN(6)]
	case 3: // a run of one thing
		s := writerWords[r.IntN(len(writerWords))]
		return strings.Repeat(s, 1+r.IntN(1+r.IntN(300)))
	case 4: // white space with newlines anywhere
		b := make([]byte, 1+r.IntN(1+r.IntN(200)))
		for i := range b {
			b[i] = " \n  \t\r "[r.IntN(7)]
		}
		return string(b)
	case 5: // lines, enough for several segments
		return strings.Repeat("a line of text, and more of it;\n", r.IntN(1+r.IntN(400)))
	case 6: // without any place to cut
		return strings.Repeat(writerWords[r.IntN(len(writerWords))]+"x", 1+r.IntN(1000))
	}
	var b strings.Builder
	for range 1 + r.IntN(20) {
		b.WriteString(writerWords[r.IntN(len(writerWords))])
	}
	return b.String()
}

// turn returns what a conversation grows by.
func (w *writer) turn() string {
	var b strings.Builder
	for range 1 + w.r.IntN(8) {
		b.WriteString(w.piece())
	}
	return b.String()
}

// next grows a conversation, cuts it anywhere, or begins another.
func (w *writer) next(text string) string {
	switch n := w.r.IntN(8); {
	case n == 0 || len(text) > 60_000:
		return w.turn()
	case n < 3:
		return text[:w.r.IntN(len(text)+1)]
	case n == 3: // cut, and grown another way
		return text[:w.r.IntN(len(text)+1)] + w.turn()
	}
	return text + w.turn()
}

// testHashes are hash functions of blocks of sizes that divide nothing evenly.
func testHashes() []*tokenizer.BlockHash {
	var list []*tokenizer.BlockHash
	for _, size := range []int{1, 3, 16, 64, 257} {
		list = append(list, &tokenizer.BlockHash{Size: size, Hash: func(tokens []uint32) uint64 {
			h := fnv.New64a()
			for _, id := range tokens {
				_, _ = h.Write([]byte{byte(id), byte(id >> 8), byte(id >> 16), byte(id >> 24)})
			}
			return h.Sum64()
		}})
	}
	return list
}

// hashBlocks hashes ids block by block.
func hashBlocks(h *tokenizer.BlockHash, ids []uint32) []uint64 {
	out := []uint64{}
	for ; len(ids) >= h.Size; ids = ids[h.Size:] {
		out = append(out, h.Hash(ids[:h.Size]))
	}
	return out
}

// sameTokens reports how tokens differ from the ids that they should be: ids, count,
// block hashes of every size; "" for not at all.
func sameTokens(got tokenizer.Tokens, want []uint32, hashes []*tokenizer.BlockHash) string {
	ids := got.AppendIDs([]uint32{4711})
	switch {
	case ids[0] != 4711:
		return "AppendIDs overwrites"
	case !slices.Equal(ids[1:], want):
		return "other ids"
	case got.Count != len(want):
		return "another count"
	case got.Cached > got.Count:
		return "more cached than there are"
	}
	for _, h := range hashes {
		if !slices.Equal(got.AppendBlocks(h, []uint64{}), hashBlocks(h, want)) {
			return "other hashes of blocks"
		}
	}
	return ""
}

// TestCachedIsLibrary holds real tokenizers, through caches that keep
// everything and caches that keep nearly nothing, against the library on the
// whole text, while conversations grow and are cut.
func TestCachedIsLibrary(t *testing.T) {
	if !hf.Available() {
		t.Skip("this build has no tokenizer library")
	}
	for i, name := range propertyModels {
		t.Run(name, func(t *testing.T) {
			parts := loadParts(t, name)
			w := newWriter(t, parts.JSON, uint64(100+i))
			toks := map[string]*tokenizer.Tokenizer{
				"no cache": newTestTokenizer(t, parts, nil),
				"a big":    newTestTokenizer(t, parts, tokenizer.NewCache(64<<20)),
				"a small":  newTestTokenizer(t, parts, tokenizer.NewCache(30_000)),
				"a tiny":   newTestTokenizer(t, parts, tokenizer.NewCache(1)),
			}
			hashes := testHashes()
			text, asked, cached := "", 0, 0
			rounds := 40
			if testing.Short() {
				rounds /= 10
			}
			for round := range rounds {
				text = w.next(text)
				plain, err := parts.Oracle(text)
				if err != nil {
					t.Fatalf("round %d: the library: %v", round, err)
				}
				asked += len(plain)
				for _, special := range []bool{false, true} {
					want := plain
					if special {
						want = slices.Concat(parts.Before, plain, parts.After)
					}
					for kind, tok := range toks {
						got, err := tok.Encode(text, special)
						if err != nil {
							t.Fatal(err)
						}
						if differs := sameTokens(got, want, hashes); differs != "" {
							t.Fatalf("round %d, %s cache, special %v: %s for %+q", round, kind, special, differs, text)
						}
						cached += got.Cached
					}
				}
			}
			if cached == 0 && toks["a big"].Ineligible() == "" {
				t.Error("nothing was found in a cache")
			}
			t.Logf("%s: %d tokens asked, %d found in caches", parts.Engine, asked, cached)
		})
	}
}

// TestCacheShared: goroutines that grow and cut the same conversations at the
// same time share one cache, and so do two models; tokens that are held while
// their nodes are evicted stay what they are.
func TestCacheShared(t *testing.T) {
	models := []string{"demo-model", "gptoss"}
	if testing.Short() {
		models = models[:1]
	}
	for _, budget := range []int{20_000, 1 << 20} {
		cache := tokenizer.NewCache(budget)
		var wg sync.WaitGroup
		for m, name := range models {
			parts := loadParts(t, name)
			w := newWriter(t, parts.JSON, uint64(m+1))
			plain, tok := newTestTokenizer(t, parts, nil), newTestTokenizer(t, parts, cache)
			var texts []string
			var want [][]uint32
			for text := ""; len(texts) < 40; {
				text = w.next(text)
				tokens, err := plain.Encode(text, true)
				if err != nil {
					t.Fatal(err)
				}
				texts, want = append(texts, text), append(want, tokens.AppendIDs(nil))
			}
			hashes := testHashes()
			for g := range 3 {
				wg.Go(func() {
					held := make([]tokenizer.Tokens, len(texts))
					for k := range 2 * len(texts) {
						i := (k*(g+1) + g) % len(texts)
						got, err := tok.Encode(texts[i], true)
						if err != nil {
							t.Error(err)
							return
						}
						if differs := sameTokens(got, want[i], hashes[k%len(hashes):]); differs != "" {
							t.Errorf("%s, goroutine %d, text %d: %s", name, g, i, differs)
							return
						}
						held[i] = got
					}
					for i, tokens := range held {
						if tokens.Count == 0 {
							continue
						}
						if differs := sameTokens(tokens, want[i], hashes); differs != "" {
							t.Errorf("%s, goroutine %d, text %d, later: %s", name, g, i, differs)
						}
					}
				})
			}
		}
		wg.Wait()
		s := cache.Stats()
		if s.Bytes < 0 || s.Bytes > budget+budget/4+1<<16 || budget < 1<<20 && s.EvictedNodes == 0 {
			t.Errorf("a cache of %d bytes: %+v", budget, s)
		}
	}
}
