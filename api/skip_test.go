package api

import (
	"encoding/json/jsontext"
	"fmt"
	"strings"
	"testing"
)

// TestPlainValue: what is passed over quickly, and what is left to jsontext.
func TestPlainValue(t *testing.T) {
	f := func(text string, plain bool) {
		t.Helper()
		for _, pad := range []string{"", ",", "       ]"} { // the end of the buffer is near, or not
			want := -1
			if plain {
				want = len(text)
			}
			if got := plainValue([]byte(text+pad), 0, 0); got != want {
				t.Errorf("%q: %d, want %d", text+pad, got, want)
			}
		}
	}
	for _, good := range []string{
		`"x"`, `""`, `"a long text of more than eight bytes"`, `"\n\"\\\/\b\f\r\t and more"`, `"é世\n界😀 and more"`, "\"\x7f\"",
		`{}`, `[]`, ` [ ] `[:4], `{"a":1,"b":[true,false,null]}`, `[ {"a" : "b" } , 1.5e-3, -0, 0.1, 12 ]`,
		`[{"role":"user","content":"Say \"hi\""},{"role":"user","content":[{"type":"text","text":"x"}]}]`,
	} {
		f(good, true)
	}
	for _, other := range []string{
		`"\u0041"`, `"\x"`, "\"\n\"", "\"\xff\"", "\"\xed\xa0\x80\"", `"x`, `"x\`, `{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `{"a"}`, `{"a":}`, `{"a":1 "b":2}`,
		`[1,]`, `[1 2]`, `[,1]`, `01`, `-`, `1.`, `.5`, `1e`, `+1`, `tru`, `nul`, `x`, ``, `{,}`, `{1:2}`,
		strings.Repeat("[", 20) + strings.Repeat("]", 20),
	} {
		if got := plainValue([]byte(other), 0, 0); got > 0 {
			t.Errorf("%q is passed over, up to %d", other, got)
		}
	}
	var many strings.Builder
	for i := range maxSkipNames + 1 {
		fmt.Fprintf(&many, `,"%d":0`, i)
	}
	if got := plainValue([]byte("{"+many.String()[1:]+"}"), 0, 0); got > 0 {
		t.Error("an object of many members is passed over")
	}
	// Every byte in every place of a word.
	for at := range 16 {
		for c := range 256 {
			text := []byte(`"abcdefghijklmnop"`)
			text[1+at] = byte(c)
			checkPlain(t, text)
		}
	}
}

// checkPlain holds what is passed over against jsontext.
func checkPlain(t *testing.T, text []byte) {
	t.Helper()
	end := plainValue(text, 0, 0)
	if end > 0 && !jsontext.Value(text[:end]).IsValid() {
		t.Errorf("%q is passed over, and is not valid", text[:end])
	}
}

// FuzzPlainValue: what is passed over is valid JSON without duplicate names.
func FuzzPlainValue(f *testing.F) {
	f.Add([]byte(`[{"role":"user","content":"é\n"},1.5e3,true]`))
	f.Add([]byte(`{"a":{"b":[null,"\\"]},"c":-0.1}`))
	f.Fuzz(func(t *testing.T, text []byte) { checkPlain(t, text) })
}

// BenchmarkSkipChat passes over a chat of 400 KB.
func BenchmarkSkipChat(b *testing.B) {
	for name, text := range map[string]string{
		"ascii": "Tell me about gardens in the rain. ", "lines": "Tell me about\ngardens in \"the\" rain.\n\n", "chinese": "花园里下着雨 rain, ",
	} {
		content, err := jsontext.AppendQuote(nil, strings.Repeat(text, 2000/len(text)))
		if err != nil {
			b.Fatal(err)
		}
		message := `{"role":"user","content":` + string(content) + `}`
		body := []byte("[" + strings.Repeat(message+",", 200) + message + "]")
		b.Run(name, func(b *testing.B) {
			var s scanner
			b.SetBytes(int64(len(body)))
			defer reportCPU(b)()
			for b.Loop() {
				s.reset(body)
				if _, err := s.skip(); err != nil || s.i != len(body) {
					b.Fatal(err, s.i)
				}
			}
		})
		b.Run(name+"-jsontext", func(b *testing.B) {
			var s scanner
			b.SetBytes(int64(len(body)))
			defer reportCPU(b)()
			for b.Loop() {
				s.reset(body)
				if _, err := s.value(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
