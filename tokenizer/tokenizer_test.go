package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/zeebo/xxh3"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wordEncoder is an encoder whose tokens depend on all of a piece, like those
// of real ones: a word is a token, and so is a run of spaces; lines end where
// text may be cut.
type wordEncoder struct{}

func (wordEncoder) Append(dst []uint32, text string) ([]uint32, error) {
	for len(text) > 0 {
		n := 1
		for n < len(text) && (text[n] == ' ') == (text[0] == ' ') && text[n-1] != '\n' {
			n++
		}
		dst = append(dst, 1000+uint32(xxh3.HashString(text[:n])%100_000))
		text = text[n:]
	}
	return dst, nil
}

func (wordEncoder) SafeCut(text string, at int) int {
	return strings.LastIndexByte(text[:min(at, len(text))], '\n') + 1
}

const wordTokenizer = `{"model":{"type":"BPE"},"added_tokens":[
	{"id":1,"content":"<|a|>","special":true},{"id":2,"content":"<|ab|>"},{"id":3,"content":"<|a|><|b|>"},
	{"id":4,"content":"\n\n"},{"id":5,"content":"|>|>","normalized":true}]}`

func newWordTokenizer(t testing.TB, cache *Cache) *Tokenizer {
	t.Helper()
	tok, err := New([]byte(wordTokenizer), Options{Encoder: wordEncoder{}, Cache: cache, Before: []uint32{7}, After: []uint32{8, 9}})
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

var hash4 = &BlockHash{Size: 4, Hash: func(tokens []uint32) uint64 {
	h := uint64(0)
	for _, t := range tokens {
		h = h*31 + uint64(t)
	}
	return h
}}

// drawText is made of pieces that touch every boundary rule.
func drawText(t *rapid.T, label string) string {
	parts := rapid.SliceOfN(rapid.SampledFrom([]string{
		"<|a|>", "<|ab|>", "<|a|><|b|>", "<|b|>", "<|", "|>|>", "\n", "\n\n", " ", "   ", "word", "longer-word", "é", "<",
		strings.Repeat("line of text\n", 30), strings.Repeat("x", 5000), strings.Repeat("<|a|>", 40), "\x00", "\xff",
	}), 0, 30).Draw(t, label)
	return strings.Join(parts, "")
}

// TestCachedIsWhole grows and cuts conversations at random places: what comes
// out of the cache must be what comes out without one, ids and block hashes.
func TestCachedIsWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cache := NewCache(rapid.SampledFrom([]int{1, 5_000, 1 << 20}).Draw(t, "budget"))
		tok := &Tokenizer{}
		*tok = *newWordTokenizer(nopTB{}, cache)
		text := ""
		for range rapid.IntRange(1, 8).Draw(t, "turns") {
			switch rapid.IntRange(0, 3).Draw(t, "deed") {
			case 0:
				text = text[:rapid.IntRange(0, len(text)).Draw(t, "cut")]
			case 1:
				text = drawText(t, "new")
			default:
				text += drawText(t, "more")
			}
			special := rapid.Bool().Draw(t, "special")
			whole, err := tok.whole(text, special)
			if err != nil {
				t.Fatal(err)
			}
			got, err := tok.Encode(text, special)
			if err != nil {
				t.Fatal(err)
			}
			want := whole.AppendIDs(nil)
			if ids := got.AppendIDs(nil); !slices.Equal(ids, want) || got.Count != len(want) {
				t.Fatalf("%q: %v, want %v", text, ids, want)
			}
			wantBlocks := []uint64{}
			for i := 0; i+4 <= len(want); i += 4 {
				wantBlocks = append(wantBlocks, hash4.Hash(want[i:i+4]))
			}
			if blocks := got.AppendBlocks(hash4, []uint64{}); !slices.Equal(blocks, wantBlocks) {
				t.Fatalf("%q: blocks %v, want %v", text, blocks, wantBlocks)
			}
		}
		if s := cache.Stats(); s.Bytes < 0 {
			t.Fatalf("%+v", s)
		}
	})
}

// nopTB lets helpers for tests run inside rapid checks, which fail by panic.
type nopTB struct{ testing.TB }

func (nopTB) Helper()           {}
func (nopTB) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

func TestSecondTurnHits(t *testing.T) {
	tok := newWordTokenizer(t, NewCache(1<<20))
	turn := "<|a|>" + strings.Repeat("some words of a turn ", 20) + "<|ab|>"
	first, err := tok.Encode(strings.Repeat(turn, 5)+"tail", false)
	if err != nil {
		t.Fatal(err)
	}
	if first.Cached != 0 {
		t.Errorf("%d tokens were known before anything was", first.Cached)
	}
	second, err := tok.Encode(strings.Repeat(turn, 5)+"another tail", false)
	if err != nil {
		t.Fatal(err)
	}
	if want := first.Count - 1; second.Cached != want {
		t.Errorf("%d tokens were known, want %d", second.Cached, want)
	}
	// The same text under add_special_tokens is another one.
	if special, err := tok.Encode(strings.Repeat(turn, 5)+"tail", true); err != nil || special.Cached != 0 || special.Count != first.Count+3 {
		t.Errorf("with special tokens: %d known of %d, %v", special.Cached, special.Count, err)
	}
}

func TestCacheKeepsItsBudget(t *testing.T) {
	const budget = 100_000
	cache := NewCache(budget)
	tok := newWordTokenizer(t, cache)
	for i := range 3000 {
		if _, err := tok.Encode(fmt.Sprintf("<|a|>%s %d<|ab|>", strings.Repeat("word ", 20), i), false); err != nil {
			t.Fatal(err)
		}
		if s := cache.Stats(); s.Bytes > budget+nodeOverhead*4 {
			t.Fatalf("%d bytes after %d texts", s.Bytes, i)
		}
	}
	s := cache.Stats()
	sum := 0
	for i := range cache.shards {
		for _, n := range cache.shards[i].nodes {
			sum += n.bytes()
		}
	}
	if s.EvictedNodes == 0 || s.Bytes != sum {
		t.Errorf("%+v, recounted %d bytes", s, sum)
	}
}

func TestConcurrentUse(t *testing.T) {
	cache := NewCache(20_000)
	tok := newWordTokenizer(t, cache)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			text := ""
			for i := range 200 {
				text += fmt.Sprintf("<|a|>%s turn %d of %d<|ab|>", strings.Repeat("word ", 15), i%17, g%2)
				if len(text) > 4000 {
					text = ""
				}
				want, err := tok.whole(text, false)
				if err != nil {
					t.Error(err)
				}
				got, err := tok.Encode(text, false)
				if err != nil || !slices.Equal(got.AppendIDs(nil), want.AppendIDs(nil)) ||
					!slices.Equal(got.AppendBlocks(hash4, nil), want.AppendBlocks(hash4, nil)) {
					t.Errorf("goroutine %d, turn %d: differs, %v", g, i, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestIneligible(t *testing.T) {
	f := func(json, why string) {
		t.Helper()
		_, got, err := parseSpec([]byte(json))
		if err != nil || (why == "") != (got == "") || !strings.Contains(got, why) {
			t.Errorf("%s: %q, %v; want %q", json, got, err, why)
		}
	}
	f(`{"model":{"type":"BPE"}}`, "")
	f(`{"model":{"type":"BPE","dropout":0.1}}`, "dropout")
	f(`{"model":{"type":"BPE"},"added_tokens":[{"content":"<s>","lstrip":true}]}`, "lstrip")
	f(`{"model":{"type":"BPE"},"added_tokens":[{"content":"<s>","single_word":true}]}`, "single_word")
	f(`{"model":{"type":"BPE"},"normalizer":{"type":"NFC"},"added_tokens":[{"content":"<s>","normalized":true}]}`, "normalized")
	f(`{"model":{"type":"BPE"},"normalizer":{"type":"Sequence","normalizers":[]},"added_tokens":[{"content":"<s>","normalized":true}]}`, "")
	f(`{"model":{"type":"BPE"},"pre_tokenizer":{"type":"Metaspace","prepend_scheme":"first"}}`, "Metaspace")
	for _, bad := range []string{"", "[]", "{", `{"added_tokens":null}`} {
		if _, _, err := parseSpec([]byte(bad)); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
