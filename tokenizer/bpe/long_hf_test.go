//go:build !nohf

package bpe_test

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// Words of a hundred kilobytes, of one thing, of two and of anything, have the library's
// ids, also behind and before other text.
func TestLibraryLongWords(t *testing.T) {
	for _, tc := range supported {
		t.Run(tc.name, func(t *testing.T) {
			c := &comparison{bpe: encoder(t, tc.name), hf: library(t, tokenizerJSON(t, tc.name))}
			r := rand.New(rand.NewPCG(9, 9))
			units := []string{
				"a", "A", " ", "\n", "=", "-", "7", "ab", "abc", "aab", " \t", "\u00a0", "界", "你好", "한", "é", "e\u0301",
				"\u0301", "🎉", "👩‍👩‍👧", "𠀀", "\x01", "\ufffd", "ʰ", "ſ", "...", "!?", "\u3000", "ไ", "ا",
			}
			for range rounds(20) {
				var b strings.Builder
				for range 1 + r.IntN(6) {
					u := units[r.IntN(len(units))]
					b.WriteString(strings.Repeat(u, 1+r.IntN(10_000/len(u)+1)))
					if r.IntN(2) == 0 {
						b.WriteString(units[r.IntN(len(units))])
					}
				}
				if !c.check(t, b.String()) {
					return
				}
			}
			for _, letters := range []string{"abcdefghijklmnopqrstuvwxyz", "ab", "一二三四五六七八九十的了是我不在人们有来他这上着个地到大里说就去子得也和那要下看天时过出小么起你都把好还多没为又可家", "\u0301\u0323\u0307", "ABCDEF"} {
				rs := []rune(letters)
				word := make([]rune, 20_000)
				for i := range word {
					word[i] = rs[r.IntN(len(rs))]
				}
				c.check(t, string(word))
			}
			t.Logf("%d texts, %d tokens", c.texts, c.tokens)
		})
	}
}

// A megabyte of one thing and of random letters.
func BenchmarkLongWords(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	random := make([]byte, corpusBytes)
	for i := range random {
		random[i] = byte('a' + r.IntN(26))
	}
	for _, name := range []string{"qwen3", "llama3_1", "gptoss", "deepseek_v3"} {
		e := encoder(b, name)
		for _, run := range []struct{ kind, text string }{
			{"letter", strings.Repeat("a", corpusBytes)},
			{"spaces", strings.Repeat(" ", corpusBytes)},
			{"emoji", strings.Repeat("🎉", corpusBytes/4)},
			{"han", strings.Repeat("界", corpusBytes/3)},
			{"ab", strings.Repeat("ab", corpusBytes/2)},
			{"random", string(random)},
		} {
			b.Run(name+"/"+run.kind, func(b *testing.B) {
				b.SetBytes(int64(len(run.text)))
				var ids []uint32
				from := cpuTime(b)
				for b.Loop() {
					ids, _ = e.Append(ids[:0], run.text)
				}
				reportCPU(b, from, len(run.text))
			})
		}
	}
}
