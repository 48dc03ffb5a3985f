package bpe_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kvindex/kvindex/tokenizer/bpe"
)

func TestSafeCut(t *testing.T) {
	qwen := encoder(t, "demo-model")
	tekken, err := bpe.New(crafted{splits: bpe.PatternSplits()["tekken"]}.json(t))
	if err != nil {
		t.Fatal(err)
	}
	f := func(e *bpe.Encoder, text string, at, want int) {
		t.Helper()
		if got := e.SafeCut(text, at); got != want {
			t.Errorf("SafeCut(%q, %d) of %s: %d, want %d", text, at, e.Name(), got, want)
		}
	}
	f(qwen, "", 0, 0)
	f(qwen, "a\nb", 3, 2)
	f(qwen, "a\nb", 100, 2)
	f(qwen, "a\nb", 2, 2)
	f(qwen, "a\nb", 1, 0)
	f(qwen, "a\nb", -1, 0)
	f(qwen, "a\n", 2, 0)    // more newlines may come
	f(qwen, "a\n  ", 4, 0)  // even so
	f(qwen, "a\n  b", 5, 2) // before the indentation
	f(qwen, "a\n \n b", 6, 4)
	f(qwen, "a\n \n b", 3, 0) // not the last newline of its run
	f(qwen, "x\ny\n \u3000\n b", 7, 2)
	f(qwen, "a\r\nb", 4, 3)
	f(qwen, "a\n/b", 4, 2)
	f(tekken, "a\n/b", 4, 0)
	f(tekken, "a\n /b", 5, 2)
}

// Cutting at a safe position changes nothing, whatever comes after.
func TestSafeCutIsExact(t *testing.T) {
	for name, splits := range bpe.PatternSplits() {
		t.Run(name, func(t *testing.T) {
			e, err := bpe.New(crafted{splits: splits, nfc: true, pairs: true}.json(t))
			if err != nil {
				t.Fatal(err)
			}
			r := rand.New(rand.NewPCG(5, 5))
			cuts := 0
			n := 10000
			if testing.Short() {
				n /= 10
			}
			for range n {
				text := randomText(r, 80)
				if r.IntN(2) == 0 {
					text = strings.ReplaceAll(text, "e", "\n")
				}
				p := e.SafeCut(text, r.IntN(len(text)+10))
				if p == 0 {
					continue
				}
				cuts++
				for _, more := range []string{"", randomText(r, 10)} {
					whole := mustAppend(t, e, nil, text+more)
					parts := mustAppend(t, e, mustAppend(t, e, nil, text[:p]), text[p:]+more)
					if !slices.Equal(whole, parts) {
						t.Fatalf("cut at %d of %+q", p, text+more)
					}
				}
			}
			t.Logf("%d cuts", cuts)
		})
	}
}
