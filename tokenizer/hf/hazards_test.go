//go:build cgo && !nohf && (amd64 || arm64)

package hf

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
)

const whitespaceSplit = `{"type":"WhitespaceSplit"}`

// TestSwallowedErrorIsFound: a word that the model cannot encode makes the library return nothing at all.
func TestSwallowedErrorIsFound(t *testing.T) {
	e := newEncoder(t, tinyJSON("", whitespaceSplit, "", added(2, "<x>"), wordLevel), Options{})
	f := func(text string, want []uint32, wantErr error) {
		t.Helper()
		dst := []uint32{7}
		got, err := e.Append(dst, text)
		if !slices.Equal(got, append(dst, want...)) || !errors.Is(err, wantErr) {
			t.Errorf("%q: got %d, %v; want %d, %v", text, got, err, want, wantErr)
		}
	}
	f("a b <x>", []uint32{0, 1, 2}, nil)
	f("a unknown b", nil, ErrEncode)
	f("unknown\x00", nil, ErrEncode)
	f(escapeMark, nil, ErrEncode)
	// No tokens and no error.
	f("", nil, nil)
	f("   ", nil, nil)
	f("\n\t\u3000", nil, nil)
}

// TestSwallowedErrorIsFoundWithoutEscaping: where escaping is not exact, an empty result is still told from an error.
func TestSwallowedErrorIsFoundWithoutEscaping(t *testing.T) {
	pre := `{"type":"Sequence","pretokenizers":[{"type":"WhitespaceSplit"},{"type":"Metaspace","replacement":"_","prepend_scheme":"first","split":true}]}`
	e := newEncoder(t, tinyJSON("", pre, "", "", `{"type":"WordLevel","vocab":{"_a":0,"b":1},"unk_token":"missing"}`), Options{})
	if ids := mustAppend(t, e, "a b"); !slices.Equal(ids, []uint32{0, 1}) {
		t.Errorf("got %d", ids)
	}
	if ids := mustAppend(t, e, "  "); len(ids) != 0 {
		t.Errorf("got %d", ids)
	}
	for _, text := range []string{"c", escapeMark} {
		if ids, err := e.Append(nil, text); !errors.Is(err, ErrEncode) {
			t.Errorf("%q: got %d, %v", text, ids, err)
		}
	}
}

// TestTruncationAndPaddingAreOff: both stand in the tokenizer.json of many models, and engines switch them off.
func TestTruncationAndPaddingAreOff(t *testing.T) {
	var whole map[string]json.RawMessage
	if err := json.Unmarshal(readDemo(t), &whole); err != nil {
		t.Fatal(err)
	}
	whole["truncation"] = json.RawMessage(`{"direction":"Right","max_length":4,"strategy":"LongestFirst","stride":0}`)
	whole["padding"] = json.RawMessage(`{"strategy":{"Fixed":64},"direction":"Right","pad_to_multiple_of":null,"pad_id":0,"pad_type_id":0,"pad_token":"x"}`)
	changed, err := json.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("some words ", 20)
	want := mustAppend(t, demoEncoder(t), text)
	if got := mustAppend(t, newEncoder(t, changed, Options{}), text); !slices.Equal(got, want) {
		t.Errorf("differs %s", firstDifference(got, want))
	}
}

func TestAppendSpecialAddsWhatThePostProcessorAdds(t *testing.T) {
	post := `{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"</s>","type_id":0}}],` +
		`"pair":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":1}}],"special_tokens":{"<s>":{"id":"<s>","ids":[2],"tokens":["<s>"]},"</s>":{"id":"</s>","ids":[3],"tokens":["</s>"]}}}`
	e := newEncoder(t, tinyJSON("", whitespaceSplit, post, added(2, "<s>")+","+added(3, "</s>"), wordLevel), Options{})
	f := func(text string, want ...uint32) {
		t.Helper()
		got, err := e.AppendSpecial(nil, text)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: got %d, %v; want %d", text, got, err, want)
		}
	}
	f("", 2, 3)
	f(" ", 2, 3)
	f("a b", 2, 0, 1, 3)
	f("<s>a", 2, 2, 0, 3)
	if got := mustAppend(t, e, "<s>a"); !slices.Equal(got, []uint32{2, 0}) {
		t.Errorf("without: got %d", got)
	}
	if got, err := e.AppendSpecial(nil, "a c"); !errors.Is(err, ErrEncode) {
		t.Errorf("error: got %d, %v", got, err)
	}
}

func TestTooLong(t *testing.T) {
	e := newEncoder(t, readDemo(t), Options{MaxInput: 100})
	f := func(text string, wantErr error) {
		t.Helper()
		if _, err := e.Append(nil, text); !errors.Is(err, wantErr) {
			t.Errorf("%d bytes: got %v, want %v", len(text), err, wantErr)
		}
	}
	f(strings.Repeat("a", 100), nil)
	f(strings.Repeat("a", 101), ErrTooLong)
	f(strings.Repeat("\xff", 33), nil) // 3 bytes each
	f(strings.Repeat("\xff", 34), ErrTooLong)
	f(strings.Repeat("\x00", 16), nil) // 6 bytes each
	f(strings.Repeat("\x00", 17), ErrTooLong)
	for _, o := range []Options{{MaxInput: MaxInputLimit + 1}, {MaxInput: -1}, {MaxInstances: -1}} {
		if e, err := New(readDemo(t), o); err == nil {
			e.Close()
			t.Errorf("%+v: no error", o)
		}
	}
}

// TestManySpecialTokens: each is a piece of its own.
func TestManySpecialTokens(t *testing.T) {
	e := demoEncoder(t)
	ids := mustAppend(t, e, strings.Repeat("<|im_start|>", 100_000))
	if len(ids) != 100_000 || ids[0] != 4001 || ids[99_999] != 4001 {
		t.Errorf("got %d ids", len(ids))
	}
}

// TestBrokenTokenizerJSON: whatever is wrong with the file, New returns an error and the process lives.
func TestBrokenTokenizerJSON(t *testing.T) {
	demo := readDemo(t)
	replace := func(old, with string) []byte {
		t.Helper()
		if !bytes.Contains(demo, []byte(old)) {
			t.Fatalf("the demo tokenizer has no %s", old)
		}
		return bytes.Replace(demo, []byte(old), []byte(with), 1)
	}
	bpe := func(more string) []byte {
		return tinyJSON("", "", "", "", `{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]`+more+`}`)
	}
	for name, data := range map[string][]byte{
		"nothing":              nil,
		"not JSON":             []byte("<html>404</html>"),
		"a list":               []byte("[1]"),
		"another file":         []byte(`{"bos_token":"<s>"}`),
		"truncated":            demo[:len(demo)/2],
		"more behind":          append(bytes.Clone(demo), "{}"...),
		"no closing brace":     bytes.TrimRight(demo, "} \n"),
		"invalid UTF-8":        bytes.Replace(demo, []byte(`"version"`), []byte("\"ver\xffsion\""), 1),
		"version":              replace(`"1.0"`, `"9.0"`),
		"model is a list":      tinyJSON("", "", "", "", "[]"),
		"unknown model":        tinyJSON("", "", "", "", `{"type":"New","vocab":{}}`),
		"unknown normalizer":   tinyJSON(`{"type":"New"}`, "", "", "", wordLevel),
		"unknown pretokenizer": tinyJSON("", `{"type":"FixedLength","length":5}`, "", "", wordLevel),
		"broken expression":    tinyJSON("", `{"type":"Split","pattern":{"Regex":"("},"behavior":"Isolated","invert":false}`, "", "", wordLevel),
		"NUL in a name":        tinyJSON(`{"type":"New\u0000"}`, "", "", "", wordLevel),
		"merge of no token":    tinyJSON("", "", "", "", `{"type":"BPE","vocab":{"a":0},"merges":["a b"]}`),
		"dropout":              bpe(`,"dropout":0.1`),
		"subword prefix":       tinyJSON("", "", "", "", `{"type":"BPE","vocab":{"é":0,"b":1},"merges":["b é"],"continuing_subword_prefix":"#"}`),
	} {
		if e, err := New(data, Options{}); err == nil {
			e.Close()
			t.Errorf("%s: no error", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
	for name, data := range map[string][]byte{
		"dropout 0":     bpe(`,"dropout":0.0`),
		"empty prefix":  bpe(`,"continuing_subword_prefix":""`),
		"WordPiece":     tinyJSON("", "", "", "", `{"type":"WordPiece","vocab":{"a":0,"[UNK]":1},"unk_token":"[UNK]","continuing_subword_prefix":"##","max_input_chars_per_word":100}`),
		"text like NUL": tinyJSON("", "", "", "", `{"type":"WordLevel","vocab":{"\\u0000":0},"unk_token":"missing"}`),
	} {
		if e, err := New(data, Options{}); err != nil {
			t.Errorf("%s: %v", name, err)
		} else {
			e.Close()
		}
	}
}
