//go:build cgo && !nohf && (amd64 || arm64)

package hf

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestNULEscapingIsExact(t *testing.T) { checkEscaping(t, demoEncoder(t)) }

// checkEscaping lets the mechanism for NUL bytes stand in for another control character, one that also reaches the
// library directly: both ways must give the same ids.
func checkEscaping(t *testing.T, e *Encoder) {
	if !e.spec.escapable {
		t.Fatal("not escapable")
	}
	// The step for NUL, now for U+0001.
	standIn := bytes.Replace(e.spec.escaping(), []byte(`"content":"\u0000"`), []byte(`"content":"\u0001"`), 1)
	escaping, err := load(standIn)
	if err != nil {
		t.Fatal(err)
	}
	defer escaping.free()
	r := rand.New(rand.NewPCG(1, 2))
	texts := []string{"\x01", "\x01\x01", "a\x01b", " \x01 ", "\x01" + escapeMark, escapeMark + markNUL, escapeMark + markMark + "\x01"}
	for range 300 {
		texts = append(texts, randomText(r, 1+r.IntN(30), "\x01", "\x01", escapeMark, markNUL, markMark))
	}
	for _, text := range texts {
		escaped := escape(strings.ReplaceAll(text, "\x01", "\x00"))
		for _, special := range []bool{false, true} {
			want, err := e.append(nil, text, special)
			if err != nil {
				t.Fatal(err)
			}
			if got := escaping.encode(escaped, special); !slices.Equal(got, want) {
				t.Fatalf("%q differs %s", text, firstDifference(got, want))
			}
		}
	}
}

// checkNULIsEncoded looks at ids that are known from the vocabularies. Whole texts with NUL are in the oracle.
func checkNULIsEncoded(t *testing.T, name string, e *Encoder) {
	want, known := map[string][]uint32{
		"gemma3": {238, 238}, // byte fallback
		"gptoss": {156344},   // two NUL bytes are one token
		"qwen3":  {188, 188},
	}[name]
	if got := mustAppend(t, e, "\x00\x00"); known && !slices.Equal(got, want) {
		t.Errorf("got %d, want %d", got, want)
	}
}

func TestNULRefusedWhereNotExact(t *testing.T) {
	bpe := `{"type":"BPE","vocab":{"a":0,"▁":1,"▁a":2},"merges":["▁ a"],"byte_fallback":false}`
	f := func(name string, tokenizerJSON []byte) {
		t.Helper()
		e := newEncoder(t, tokenizerJSON, Options{})
		if ids, err := e.Append(nil, "a\x00a"); !errors.Is(err, ErrNUL) || len(ids) > 0 {
			t.Errorf("%s: got %d, %v", name, ids, err)
		}
		if ids := mustAppend(t, e, "a"); len(ids) != 1 {
			t.Errorf("%s: other text: got %d", name, ids)
		}
	}
	f("Metaspace first", tinyJSON("", `{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":true}`, "", "", bpe))
	f("a token with a mark", tinyJSON("", "", "", added(3, "<"+markNUL+">"), bpe))
}

func TestEscape(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		if got := escape(text); got != want {
			t.Errorf("escape(%q) = %q, want %q", text, got, want)
		}
	}
	f("", "")
	f("plain", "plain")
	f("\x00", escapeMark+markNUL)
	f(escapeMark, escapeMark+markMark)
	f(escapeMark+markNUL, escapeMark+markMark+markNUL)
	f("\x00"+escapeMark+"\x00", escapeMark+markNUL+escapeMark+markMark+escapeMark+markNUL)
	f(markNUL+markMark, markNUL+markMark)
}

// TestInvalidUTF8 compares with the package that decodes requests.
func TestInvalidUTF8(t *testing.T) {
	texts := []string{"", "valid é", "a\xffb", "\xe4\xbd", "\xe4\xbd\xe4\xbd\xa0", "\xed\xa0\x80", "\xf0\x9f\x98", "\xc0\x80", "\xff\xfe\xfd", "x\xf8\x88\x80\x80\x80"}
	r := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		b := make([]byte, r.IntN(20))
		for i := range b {
			b[i] = "ab\x80\xbf\xc3\xa9\xe4\xbd\xa0\xf0\x9f\x98\x80\xff"[r.IntN(14)]
		}
		texts = append(texts, string(b))
	}
	e := demoEncoder(t)
	for _, text := range texts {
		var want string
		if err := json.Unmarshal([]byte(`"`+text+`"`), &want); err != nil {
			t.Fatal(err)
		}
		if got := repairUTF8(text); got != want {
			t.Fatalf("repairUTF8(%q) = %q, encoding/json gives %q", text, got, want)
		}
		if a, b := mustAppend(t, e, text), mustAppend(t, e, want); !slices.Equal(a, b) {
			t.Fatalf("%q: got %d, want %d", text, a, b)
		}
	}
}
