//go:build !nohf

package bpe_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/kvindex/kvindex/tokenizer/bpe"
	"github.com/kvindex/kvindex/tokenizer/hf"
)

var all = flag.Bool("all", false,
	"compare all code points, not a sample of those in large uniform blocks, and 20 times as many random texts")

// shortMergeBytes is about where words get too long for a short merge.
const shortMergeBytes = 60

// comparison counts what two engines agree in.
type comparison struct {
	bpe *bpe.Encoder
	hf  interface {
		Append([]uint32, string) ([]uint32, error)
	}
	texts  int
	tokens int
	got    []uint32
	want   []uint32
}

func compare(tb testing.TB, raw []byte) *comparison {
	tb.Helper()
	e, err := bpe.New(raw)
	if err != nil {
		tb.Fatal(err)
	}
	return &comparison{bpe: e, hf: library(tb, raw)}
}

// library returns the library's tokenizer.
func library(tb testing.TB, raw []byte) *hf.Encoder {
	tb.Helper()
	h, err := hf.New(raw, hf.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { h.Close() })
	return h
}

// check reports a text for which the engines differ. The library is given
// valid UTF-8.
func (c *comparison) check(tb testing.TB, text string) bool {
	tb.Helper()
	var err error
	if c.want, err = c.hf.Append(c.want[:0], valid(text)); errors.Is(err, hf.ErrNUL) {
		return true // the library cannot be asked
	} else if err != nil {
		tb.Fatalf("hf on %q: %v", text, err)
	}
	if c.got, err = c.bpe.Append(c.got[:0], text); err != nil {
		tb.Fatal(err)
	}
	c.texts++
	c.tokens += len(c.want)
	if !slices.Equal(c.got, c.want) {
		tb.Errorf("%s for %+q", firstDifference(c.got, c.want), text)
		return false
	}
	return true
}

// rounds is how many random texts a test compares.
func rounds(n int) int {
	switch {
	case *all:
		return 20 * n
	case testing.Short():
		return n / 10
	}
	return n
}

// Real tokenizers: the library and bpe give the same ids for random texts of
// all kinds, valid UTF-8 or not, and for long runs of one thing.
func TestLibraryTokenizers(t *testing.T) {
	for _, tc := range supported {
		t.Run(tc.name, func(t *testing.T) {
			raw := tokenizerJSON(t, tc.name)
			c := &comparison{bpe: encoder(t, tc.name), hf: library(t, raw)}
			added := readAddedTokens(t, raw)
			r := rand.New(rand.NewPCG(7, 7))
			for range rounds(2000) {
				text := randomText(r, 1+r.IntN(400))
				if r.IntN(4) == 0 { // break it
					b := []byte(text)
					for range 1 + r.IntN(3) {
						b[r.IntN(len(b))] = byte(1 + r.IntN(255))
					}
					text = string(b)
				}
				ok := true
				added.split(text, 0, func(piece string) { ok = ok && c.check(t, piece) }, func(uint32) {})
				if !ok {
					return
				}
			}
			for i, s := range fragments {
				// Longer than a short merge, than the library's cache, than any token.
				n := []int{shortMergeBytes + r.IntN(8), 257, 1000 + r.IntN(1000)}[i%3]
				run := strings.Repeat(s, n/len(s)+1)
				c.check(t, run)
				c.check(t, "x"+run+"y")
			}
			long := make([]byte, 20000)
			for i := range long {
				long[i] = byte('a' + r.IntN(26))
			}
			c.check(t, string(long))
			c.check(t, strings.ReplaceAll(strings.Repeat(sampleChinese, 20), "。", ""))
			t.Logf("%d texts, %d tokens", c.texts, c.tokens)
		})
	}
}

// Every pattern, with a vocabulary whose ids show where words end: the library
// and bpe cut at the same places.
func TestLibraryWords(t *testing.T) {
	for name, splits := range bpe.PatternSplits() {
		t.Run(name, func(t *testing.T) {
			c := compare(t, crafted{splits: splits, nfc: name == "qwen2", pairs: true}.json(t))
			r := rand.New(rand.NewPCG(11, 11))
			for range rounds(10000) {
				if !c.check(t, randomText(r, 1+r.IntN(60))) {
					return
				}
			}
			t.Logf("%d texts, %d tokens", c.texts, c.tokens)
		})
	}
}

// Every code point is in the classes in which the regex engine of the library
// has it.
func TestLibraryClasses(t *testing.T) {
	for _, regex := range []string{
		`\p{L}`, `\p{N}`, `\p{M}`, `\s`, `[\p{P}\p{S}]`, `[\p{Lu}\p{Lt}]`, `\p{Ll}`, `[\p{Lm}\p{Lo}]`,
	} {
		raw := crafted{splits: []string{regex}, behavior: "Removed"}.json(t)
		h := library(t, raw)
		eachCodePoint(0x4000, func(rs []rune) {
			var others []rune
			for _, r := range rs {
				if !bpe.HasClass(r, regex) {
					others = append(others, r)
				}
			}
			ids, err := h.Append(nil, string(rs))
			if err != nil && len(others) > 0 {
				t.Fatal(err)
			}
			if got := bytesOf(ids); got != string(others) {
				t.Errorf("%s: %s", regex, firstOther(got, string(others)))
			}
		})
	}
}

// eachCodePoint calls f with all code points but NUL, up to n at a time. Where
// large blocks are all of one kind (ideographs, Hangul,
// private use, what is unassigned) it takes one in 61, with -all every one.
func eachCodePoint(n int, f func([]rune)) {
	uniform := [][2]rune{
		{0x3400, 0x4dbf}, {0x4e00, 0x9fff}, {0xac00, 0xd7a3}, {0xe000, 0xf8ff}, {0x13430, 0x143ff}, {0x14680, 0x167ff},
		{0x17000, 0x18aff}, {0x1b300, 0x1bbff}, {0x20000, 0x333ff}, {0x33500, 0xdffff}, {0xe0200, unicode.MaxRune},
	}
	batch := make([]rune, 0, n)
	for r := rune(1); r <= unicode.MaxRune; r++ {
		inner := slices.ContainsFunc(uniform, func(b [2]rune) bool { return r > b[0]+64 && r < b[1]-64 })
		if !utf8.ValidRune(r) || inner && r%61 != 0 && !*all {
			continue
		}
		if batch = append(batch, r); len(batch) == n {
			f(batch)
			batch = batch[:0]
		}
	}
	f(batch)
}

// bytesOf turns the ids of a crafted tokenizer without merges back into text.
func bytesOf(ids []uint32) string {
	b := make([]byte, len(ids))
	for i, id := range ids {
		b[i] = byte(id)
	}
	return string(b)
}

// firstOther names the first characters in which two texts differ.
func firstOther(got, want string) string {
	g, w := []rune(got), []rune(want)
	i := 0
	for i < min(len(g), len(w)) && g[i] == w[i] {
		i++
	}
	return fmt.Sprintf("library has %U, want %U", g[i:min(i+3, len(g))], w[i:min(i+3, len(w))])
}

// Every code point is normalized as the library does, alone and next to marks
// and letters.
func TestLibraryNormalization(t *testing.T) {
	raw := crafted{splits: bpe.PatternSplits()["qwen2"], nfc: true}.json(t)
	c := compare(t, raw)
	r := rand.New(rand.NewPCG(3, 3))
	contexts := []string{
		"%s", "a%s\u0301", "%s\u0301", "a\u0323%s", "\u0915%s\u093c", "\u0301\u0323%s\u0301\u0323", "\u1100%s\u11a8",
	}
	eachCodePoint(64, func(rs []rune) {
		var b strings.Builder
		for _, r := range rs {
			for _, context := range contexts {
				fmt.Fprintf(&b, context+"x", string(r))
			}
		}
		c.check(t, b.String())
	})
	marks := []string{
		"\u0301", "\u0323", "\u0307", "\u0345", "\u093c", "\u3099", "\u0340", "\u0344", "\u1ac1", "\u0898", "\U0001e4ec",
		"a", "e", "가", "\u11a8", "\u1161", "\u1100",
	}
	for range rounds(3000) {
		var b strings.Builder
		b.WriteString("q")
		for range r.IntN(80) {
			b.WriteString(marks[r.IntN(len(marks))])
		}
		if !c.check(t, b.String()) {
			return
		}
	}
	t.Logf("%d texts, %d bytes", c.texts, c.tokens)
}

// Merges happen in the library's order, whatever the ranks are.
func TestLibraryMerges(t *testing.T) {
	c := compare(t, crafted{splits: bpe.PatternSplits()["llama3"], deep: true}.json(t))
	r := rand.New(rand.NewPCG(17, 17))
	for range rounds(10000) {
		w := make([]byte, 1+r.IntN(r.IntN(300)+1))
		for i := range w {
			w[i] = "abcd"[r.IntN(1+r.IntN(4))]
		}
		if !c.check(t, string(w)) {
			return
		}
	}
	t.Logf("%d texts, %d tokens", c.texts, c.tokens)
}
