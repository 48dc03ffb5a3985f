//go:build cgo && !nohf && (amd64 || arm64)

package hf

import (
	"slices"
	"strings"
	"testing"
)

const tinyBPE = `{"type":"BPE","vocab":{"a":0,"b":1,"<":2,">":3,"x":4},"merges":[]}`

// TestTokensOfConfig: special tokens that only tokenizer_config.json names are recognised, and get their ids in order.
func TestTokensOfConfig(t *testing.T) {
	e := newEncoder(t, tinyJSON("", "", "", added(5, "<a>"), tinyBPE), Options{TokenizerConfig: []byte(`{
		"added_tokens_decoder": {
			"8": {"content":"<d>","special":true},
			"6": {"content":"<b>","special":true},
			"5": {"content":"<a>","lstrip":true,"special":true},
			"7": {"content":"<c>","special":false}},
		"bos_token": "<a>", "eos_token": {"content":"<e>","normalized":true}, "unk_token": null, "pad_token": "<a>",
		"additional_special_tokens": ["<b>", "<f>"], "extra_special_tokens": {"image": "<g>", "size": 3},
		"chat_template": [{"name":"default","template":"x"}], "model_max_length": 1e30}`)})
	for text, want := range map[string][]uint32{
		"a<a>b":            {0, 5, 1},
		"<b><c><d>":        {6, 7, 8},
		"<e><f><g>":        {9, 10, 11},
		"<x>":              {2, 4, 3},
		"a<a>b\x00<g>\x00": {0, 5, 1, 11},
	} {
		if got := mustAppend(t, e, text); !slices.Equal(got, want) {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
}

func TestConfigThatDoesNotFit(t *testing.T) {
	f := func(config, want string) {
		t.Helper()
		e, err := New(tinyJSON("", "", "", added(5, "<a>"), tinyBPE), Options{TokenizerConfig: []byte(config)})
		if err == nil {
			e.Close()
			t.Errorf("%s: no error", config)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", config, err)
		}
	}
	f(`{"added_tokens_decoder":{"9":{"content":"<b>","special":true}}}`, "the library gives it [6]")
	f(`{"added_tokens_decoder":{"x":{"content":"<b>"}}}`, `key "x" is not an id`)
	f(`{"added_tokens_decoder":{"5":`, "cannot read tokenizer_config.json")
	f(`[]`, "cannot read tokenizer_config.json")
}

// checkConfigChangesNothing: the real tokenizers have all tokens of the configuration in tokenizer.json.
func checkConfigChangesNothing(t *testing.T, name string, with *Encoder) {
	tokenizerJSON, _ := readReal(t, name)
	without, err := parseSpec(tokenizerJSON, nil)
	if err != nil {
		t.Fatal(err)
	}
	if string(with.spec.added) != string(without.added) || len(with.spec.merged) > 0 {
		t.Errorf("%d bytes of added tokens with the configuration, %d without", len(with.spec.added), len(without.added))
	}
}
