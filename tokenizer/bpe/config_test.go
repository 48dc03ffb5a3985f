package bpe_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kvindex/kvindex/tokenizer/bpe"
)

func TestNames(t *testing.T) {
	for _, tc := range supported {
		t.Run(tc.name, func(t *testing.T) {
			e := encoder(t, tc.name)
			if e.Name() != tc.pattern {
				t.Errorf("Name: %q, want %q", e.Name(), tc.pattern)
			}
			if mb := e.Bytes() >> 20; mb < 0 || mb > 64 {
				t.Errorf("Bytes: %d MB", mb)
			}
		})
	}
}

// Gemma replaces spaces, has no byte-level vocabulary and falls back to bytes.
func TestGemmaIsUnsupported(t *testing.T) {
	var unsupported *bpe.UnsupportedError
	if _, err := bpe.New(tokenizerJSON(t, "gemma3")); !errors.As(err, &unsupported) {
		t.Errorf("New: %v, want an UnsupportedError", err)
	}
}

// Any component that could change an id and is not known exactly is refused.
func TestNewRefuses(t *testing.T) {
	plain := string(crafted{splits: bpe.PatternSplits()["qwen2"]}.json(t))
	f := func(name, component, old, replacement string) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			raw := strings.Replace(plain, old, replacement, 1)
			if raw == plain {
				t.Fatalf("the file has no %s", old)
			}
			_, err := bpe.New([]byte(raw))
			var unsupported *bpe.UnsupportedError
			if !errors.As(err, &unsupported) || unsupported.Component != component {
				t.Errorf("New: %v, want an UnsupportedError for %s", err, component)
			}
		})
	}
	f("NFKC", "normalizer", `"normalizer":null`, `"normalizer":{"type":"NFKC"}`)
	f("Lowercase in a sequence", "normalizer", `"normalizer":null`,
		`"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Lowercase"}]}`)
	f("Strip", "normalizer", `"normalizer":null`, `"normalizer":{"type":"Strip","strip_left":true,"strip_right":true}`)
	f("other regex", "pre_tokenizer", `\\p{N}|`, `\\p{N}+|`)
	f("string pattern", "pre_tokenizer", `"pattern":{"Regex"`, `"pattern":{"String"`)
	f("behavior", "pre_tokenizer", `"Isolated"`, `"Removed"`)
	f("invert", "pre_tokenizer", `"invert":false`, `"invert":true`)
	f("add_prefix_space", "pre_tokenizer", `"add_prefix_space":false`, `"add_prefix_space":true`)
	f("use_regex", "pre_tokenizer", `"use_regex":false`, `"use_regex":true`)
	f("no use_regex", "pre_tokenizer", `,"use_regex":false`, ``)
	f("other last step", "pre_tokenizer", `{"add_prefix_space":false,"trim_offsets":true,"type":"ByteLevel","use_regex":false}`,
		`{"type":"Digits","individual_digits":true}`)
	f("not a sequence", "pre_tokenizer", `"type":"Sequence"`, `"type":"Other"`)
	f("WordPiece", "model", `"type":"BPE"`, `"type":"WordPiece"`)
	f("dropout", "model", `"dropout":null`, `"dropout":0.1`)
	f("unk_token", "model", `"unk_token":null`, `"unk_token":"<unk>"`)
	f("prefix", "model", `"continuing_subword_prefix":null`, `"continuing_subword_prefix":"##"`)
	f("suffix", "model", `"end_of_word_suffix":null`, `"end_of_word_suffix":"</w>"`)
	f("byte_fallback", "model", `"byte_fallback":false`, `"byte_fallback":true`)
	f("unknown member", "model", `"byte_fallback":false`, `"byte_fallback":false,"new":1`)
	f("missing byte", "model", `"Ā":0`, `"ĀĀ":0`)
	f("large id", "model", `"Ā":0`, `"Ā":1048576`)
}

// Files that no engine could use give other errors than UnsupportedError.
func TestNewFails(t *testing.T) {
	plain := string(crafted{splits: bpe.PatternSplits()["qwen2"]}.json(t))
	for name, raw := range map[string]string{
		"empty":     "",
		"truncated": plain[:len(plain)/2],
		"merge":     strings.Replace(plain, `"merges":[]`, `"merges":["x yy"]`, 1),
	} {
		_, err := bpe.New([]byte(raw))
		var unsupported *bpe.UnsupportedError
		if err == nil || errors.As(err, &unsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Harmless spellings of the same thing are accepted.
func TestNewAccepts(t *testing.T) {
	plain := string(crafted{splits: bpe.PatternSplits()["qwen2"]}.json(t))
	f := func(old, replacement string) {
		t.Helper()
		raw := strings.Replace(plain, old, replacement, 1)
		if _, err := bpe.New([]byte(raw)); err != nil || raw == plain {
			t.Errorf("%s: %v", replacement, err)
		}
	}
	f(`"normalizer":null`, `"normalizer":{"type":"Sequence","normalizers":[]}`)
	f(`"normalizer":null`, `"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"}]}`)
	f(`"normalizer":null,`, ``)
	f(`"dropout":null`, `"dropout":0.0`)
	f(`"continuing_subword_prefix":null`, `"continuing_subword_prefix":""`)
	f(`"end_of_word_suffix":null`, `"end_of_word_suffix":""`)
	f(`"ignore_merges":false,`, ``)
	f(`"trim_offsets":true`, `"trim_offsets":false`)
}

// Merges are the same whether written as strings or as pairs.
func TestMergeForms(t *testing.T) {
	var file map[string]any
	raw := crafted{splits: bpe.PatternSplits()["llama3"], deep: true}.json(t)
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	merges := file["model"].(map[string]any)["merges"].([]any)
	for i, m := range merges {
		merges[i] = m.([]any)[0].(string) + " " + m.([]any)[1].(string)
	}
	asStrings, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("abcdabbadcaabcd", 20)
	var ids [2][]uint32
	for i, raw := range [][]byte{raw, asStrings} {
		e, err := bpe.New(raw)
		if err != nil {
			t.Fatal(err)
		}
		if ids[i], err = e.Append(nil, text); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(ids[0], ids[1]) {
		t.Error(firstDifference(ids[1], ids[0]))
	}
}
