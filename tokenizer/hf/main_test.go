//go:build cgo && !nohf && (amd64 || arm64)

package hf

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == subprocessArg {
		runSubprocess(os.Args[2:])
		return
	}
	goleak.VerifyTestMain(m)
}

// realNames are the tokenizers that scripts/test-tokenizers.sh fetches.
var realNames = []string{"qwen3", "qwen2_5", "llama3_1", "llama3_2", "deepseek_v3", "gemma3", "mistral_nemo", "gptoss"}

// realPath returns where tokenizer.json of a real tokenizer is, or skips the test.
func realPath(t testing.TB, name string) string {
	t.Helper()
	cache := cmp.Or(os.Getenv("XDG_CACHE_HOME"), filepath.Join(os.Getenv("HOME"), ".cache")) // as the script has it
	path := filepath.Join(cmp.Or(os.Getenv("KVINDEX_CACHE"), filepath.Join(cache, "kvindex")), "test-tokenizers", name, "tokenizer.json")
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%v: run scripts/test-tokenizers.sh", err)
		}
		t.Skipf("%v: run scripts/test-tokenizers.sh", err)
	}
	return path
}

// readReal returns tokenizer.json and tokenizer_config.json of a real tokenizer, or skips the test.
func readReal(t testing.TB, name string) (tokenizerJSON, config []byte) {
	t.Helper()
	path := realPath(t, name)
	tokenizerJSON, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	config, err = os.ReadFile(filepath.Join(filepath.Dir(path), "tokenizer_config.json"))
	if err != nil {
		t.Fatal(err)
	}
	return tokenizerJSON, config
}

// realEncoder loads a real tokenizer, or skips the test.
func realEncoder(t testing.TB, name string) *Encoder {
	t.Helper()
	tokenizerJSON, config := readReal(t, name)
	return newEncoder(t, tokenizerJSON, Options{TokenizerConfig: config})
}

func readDemo(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile("../testdata/demo-model/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func newEncoder(t testing.TB, tokenizerJSON []byte, o Options) *Encoder {
	t.Helper()
	e, err := New(tokenizerJSON, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func demoEncoder(t testing.TB) *Encoder { t.Helper(); return newEncoder(t, readDemo(t), Options{}) }

func mustAppend(t testing.TB, e *Encoder, text string) []uint32 {
	t.Helper()
	ids, err := e.Append(nil, text)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// tinyJSON is a whole tokenizer.json around the given JSON values: "" stands for null.
func tinyJSON(normalizer, preTokenizer, postProcessor, added, model string) []byte {
	return fmt.Appendf(nil, `{"version":"1.0","truncation":null,"padding":null,"added_tokens":[%s],"normalizer":%s,"pre_tokenizer":%s,`+
		`"post_processor":%s,"decoder":null,"model":%s}`, added,
		cmp.Or(normalizer, "null"), cmp.Or(preTokenizer, "null"), cmp.Or(postProcessor, "null"), model)
}

// wordLevel is a model that fails on words it does not know: its unknown token is not in the vocabulary.
const wordLevel = `{"type":"WordLevel","vocab":{"a":0,"b":1},"unk_token":"missing"}`

// added renders an element of added_tokens.
func added(id int, content string, more ...string) string {
	flags := map[string]bool{"single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}
	for _, f := range more {
		flags[f] = true
	}
	var b strings.Builder
	fmt.Fprintf(&b, `{"id":%d,"content":%q`, id, content)
	for _, f := range []string{"single_word", "lstrip", "rstrip", "normalized", "special"} {
		fmt.Fprintf(&b, `,%q:%v`, f, flags[f])
	}
	return b.String() + "}"
}

// randomText strings together fragments of many kinds: scripts, white space, numbers, control characters, code.
func randomText(r *rand.Rand, fragments int, extra ...string) string {
	kinds := append([]string{
		" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u2028", "\x01", "\x1f", "\x7f", "\u200b", "\ufeff",
		"the", " quick", "Brown", "don't", "HTTP", "é", "e\u0301", "\u0301", "你好", "日本語", "한국어", "привет", "مرحبا", "नमस्ते",
		"😀", "👩‍👩‍👧", "1", "123456", "3.14", "½", "!", "...", "://", "{}", "<|im_start|>", "<|", "|>", "<s>", "/", "=>", "\uFFFD",
		"ſ", "ǅ", "\U0001F1E9\U0001F1EA", "fi", "𝔘", "\u1100\u1161\u11a8",
	}, extra...)
	var b strings.Builder
	for range fragments {
		b.WriteString(kinds[r.IntN(len(kinds))])
	}
	return b.String()
}

func firstDifference(a, b []uint32) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("at %d of %d and %d: %d and %d", i, len(a), len(b), a[i], b[i])
		}
	}
	if slices.Equal(a, b) {
		return "none"
	}
	return fmt.Sprintf("one is longer: %d and %d", len(a), len(b))
}
