package bpe_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kvindex/kvindex/tokenizer/bpe"
)

// firstDifference says where two sequences of ids part.
func firstDifference(got, want []uint32) string {
	i := 0
	for i < min(len(got), len(want)) && got[i] == want[i] {
		i++
	}
	return fmt.Sprintf("%d ids, want %d; from %d on %v, want %v",
		len(got), len(want), i, got[i:min(i+5, len(got))], want[i:min(i+5, len(want))])
}

func mustAppend(tb testing.TB, e *bpe.Encoder, dst []uint32, piece string) []uint32 {
	tb.Helper()
	ids, err := e.Append(dst, piece)
	if err != nil {
		tb.Fatal(err)
	}
	return ids
}

// Append keeps what is in dst, and nothing comes of nothing.
func TestAppendAppends(t *testing.T) {
	e := encoder(t, "demo-model")
	if ids := mustAppend(t, e, nil, ""); len(ids) != 0 {
		t.Errorf("ids of the empty text: %v", ids)
	}
	ids := mustAppend(t, e, []uint32{7}, "Hello")
	if want := append([]uint32{7}, mustAppend(t, e, nil, "Hello")...); !slices.Equal(ids, want) {
		t.Error(firstDifference(ids, want))
	}
}

// Invalid UTF-8 is replaced as encoding/json does it.
func TestInvalidUTF8(t *testing.T) {
	e := encoder(t, "demo-model")
	r := rand.New(rand.NewPCG(13, 13))
	for range 2000 {
		b := make([]byte, 1+r.IntN(12))
		for i := range b {
			b[i] = byte(0x80 + r.IntN(0x80))
		}
		var want string
		if err := json.Unmarshal([]byte(`"`+string(b)+`"`), &want); err != nil {
			t.Fatal(err)
		}
		if got, ids := mustAppend(t, e, nil, string(b)), mustAppend(t, e, nil, want); !slices.Equal(got, ids) {
			t.Fatalf("% x: %s", b, firstDifference(got, ids))
		}
	}
}

// Goroutines that use one encoder at once, with more words than its cache
// holds, get the ids that one alone gets.
func TestConcurrentAppend(t *testing.T) {
	e := encoder(t, "demo-model")
	r := rand.New(rand.NewPCG(1, 1))
	var texts []string
	var want [][]uint32
	for range 300 {
		text := randomText(r, 600) + strings.Repeat("long", r.IntN(50))
		texts = append(texts, text)
		want = append(want, mustAppend(t, e, nil, text))
	}
	e.ForgetWords()
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			var ids []uint32
			for i := range texts {
				i = (i*(2*g+1) + g) % len(texts)
				ids, _ = e.Append(ids[:0], texts[i])
				if !slices.Equal(ids, want[i]) {
					t.Errorf("text %d: %s", i, firstDifference(ids, want[i]))
				}
			}
		})
	}
	wg.Wait()
}

// The cache of words stays bounded, whatever texts come.
func TestCacheIsBounded(t *testing.T) {
	e := encoder(t, "demo-model")
	e.ForgetWords()
	empty := e.Bytes()
	r := rand.New(rand.NewPCG(1, 1))
	w := make([]byte, 64)
	var ids []uint32
	for range 100_000 {
		for i := range w {
			w[i] = byte('a' + r.IntN(26))
		}
		ids = mustAppend(t, e, ids[:0], string(w))
	}
	if grown := e.Bytes() - empty; grown < 1<<20 || grown > 16<<20 {
		t.Errorf("the cache has %d bytes", grown)
	}
}

// Append allocates nothing for words that it has met, nor for long ones.
func TestAppendAllocs(t *testing.T) {
	for _, tc := range supported {
		t.Run(tc.name, func(t *testing.T) {
			e := encoder(t, tc.name)
			text := sampleEnglish + sampleCode + sampleChinese + sampleLog + strings.Repeat("x", 500)
			ids := mustAppend(t, e, nil, text)
			got := testing.AllocsPerRun(20, func() { ids, _ = e.Append(ids[:0], text) })
			if got != 0 {
				t.Errorf("%v allocations for %d ids", got, len(ids))
			}
		})
	}
}

// The number of steps grows like the length of the text, whatever the text.
func TestStepsAreLinear(t *testing.T) {
	units := []string{
		"a", "A", " ", "\n", "7", "\t", "'", ".", "/", " \n", "\r\n ", "aA", "\u0301A", "A\u0301", "\u0301", "\u0301\u0323",
		"中", "界\u3040", "\x01", "\x01a", "'s", " a", "  a", "ab", "abcdefgh", "e\u0301", "가", "ᄀ", "ʰA", "/\n", "!\n/",
		"\xff", "\u1ac1\u0323",
	}
	r := rand.New(rand.NewPCG(1, 1))
	random := make([]byte, 997)
	for i := range random {
		random[i] = byte('a' + r.IntN(26))
	}
	units = append(units, string(random))
	names := []string{"demo-model", "qwen3", "llama3_1", "gptoss", "deepseek_v3"}
	if testing.Short() {
		names = names[:1]
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			e := encoder(t, name)
			worst, of := 0.0, ""
			for _, unit := range units {
				for _, end := range []string{"", "x"} {
					small, large := strings.Repeat(unit, 10_000/len(unit))+end, strings.Repeat(unit, 160_000/len(unit))+end
					_, steps := e.Steps(small)
					_, more := e.Steps(large)
					each := float64(more) / float64(len(large))
					if each > worst {
						worst, of = each, unit
					}
					// A heap of 16 times as many is 4 higher.
					if before := float64(steps) / float64(len(small)); each > 60 || each > 2*before+1 {
						t.Errorf("%+q: %.1f steps a byte, %.1f for a 16th of the text", unit, each, before)
					}
				}
			}
			t.Logf("at most %.1f steps a byte, for %.20q", worst, of)
		})
	}
}

// FuzzAppend looks for texts that make Append panic, whose ids do not stand
// for the text, or that change when cut at a safe position.
func FuzzAppend(f *testing.F) {
	type target struct {
		encoder *bpe.Encoder
		texts   map[uint32]string
	}
	var targets []target
	for name, splits := range bpe.PatternSplits() {
		raw := crafted{splits: splits, nfc: name == "qwen2", pairs: true}.json(f)
		e, err := bpe.New(raw)
		if err != nil {
			f.Fatal(err)
		}
		texts, err := bpe.TokenBytes(raw)
		if err != nil {
			f.Fatal(err)
		}
		targets = append(targets, target{e, texts})
	}
	for _, s := range fragments {
		f.Add(s + s)
	}
	f.Add(sampleEnglish)
	f.Add(sampleCode)
	f.Add(sampleChinese)
	f.Add(sampleLog)
	f.Fuzz(func(t *testing.T, text string) {
		for _, tg := range targets {
			ids := mustAppend(t, tg.encoder, nil, text)
			var b strings.Builder
			for _, id := range ids {
				b.WriteString(tg.texts[id])
			}
			if got, want := b.String(), tg.encoder.Normalized(text); got != want {
				t.Errorf("%s: %+q stands for %+q, want %+q", tg.encoder.Name(), text, got, want)
			}
			if p := tg.encoder.SafeCut(text, len(text)); p > 0 {
				parts := mustAppend(t, tg.encoder, mustAppend(t, tg.encoder, nil, text[:p]), text[p:])
				if !slices.Equal(parts, ids) {
					t.Errorf("%s: %+q cut at %d: %s", tg.encoder.Name(), text, p, firstDifference(parts, ids))
				}
			}
		}
	})
}
