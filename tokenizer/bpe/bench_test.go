package bpe_test

import (
	"bufio"
	"go/build"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/kvindex/kvindex/tokenizer/bpe"
)

// corpusBytes is how long the texts of the benchmarks are.
const corpusBytes = 1 << 20

// corpora are texts of different kinds, by name. Code and English (its
// comments) are Go's standard library; Chinese is made of a tokenizer's tokens,
// frequent ones more often, as no such text is at hand everywhere.
func corpora(tb testing.TB) map[string]string {
	tb.Helper()
	code, english := goSource(tb)
	c := map[string]string{"code": code, "english": english, "chinese": chinese(tb)}
	var mixed strings.Builder
	for from := 0; mixed.Len() < corpusBytes; from += 3000 {
		for _, kind := range []string{"english", "code", "chinese"} {
			end := min(from+3000, len(c[kind]))
			mixed.WriteString(strings.ToValidUTF8(c[kind][from:end], ""))
		}
	}
	c["mixed"] = mixed.String()[:corpusBytes]
	return c
}

// goSource returns Go code and, apart, the text of comments.
func goSource(tb testing.TB) (code, english string) {
	tb.Helper()
	var c, e strings.Builder
	for _, pkg := range strings.Fields("net/http go/types runtime reflect encoding/json os time strings crypto/tls " +
		"text/template database/sql sync context io math/big go/ast testing") {
		files, err := filepath.Glob(filepath.Join(build.Default.GOROOT, "src", filepath.FromSlash(pkg), "*.go"))
		if err != nil {
			tb.Fatal(err)
		}
		for _, path := range files {
			raw, err := os.ReadFile(path)
			if err != nil {
				tb.Fatal(err)
			}
			if c.Len() < corpusBytes && len(raw) < 200_000 {
				c.Write(raw)
			}
			for s := bufio.NewScanner(strings.NewReader(string(raw))); s.Scan() && e.Len() < corpusBytes; {
				if text, ok := strings.CutPrefix(strings.TrimSpace(s.Text()), "// "); ok {
					e.WriteString(text)
					e.WriteByte(" \n"[len(text)&7/7])
				}
			}
		}
	}
	if c.Len() < corpusBytes || e.Len() < corpusBytes {
		tb.Skip("skipped: Go's source is not here")
	}
	return c.String()[:corpusBytes], e.String()[:corpusBytes]
}

func chinese(tb testing.TB) string {
	tb.Helper()
	texts, err := bpe.TokenBytes(tokenizerJSON(tb, "qwen3"))
	if err != nil {
		tb.Fatal(err)
	}
	var words []string
	for id := range uint32(len(texts)) {
		isHan := func(r rune) bool { return unicode.Is(unicode.Han, r) }
		if w := texts[id]; w != "" && strings.IndexFunc(w, func(r rune) bool { return !isHan(r) }) < 0 {
			words = append(words, w)
		}
	}
	r := rand.New(rand.NewPCG(1, 1))
	zipf := rand.NewZipf(r, 1.1, 20, uint64(len(words)-1))
	var b strings.Builder
	for b.Len() < corpusBytes {
		for range 3 + r.IntN(10) {
			b.WriteString(words[zipf.Uint64()])
		}
		b.WriteString([]string{"，", "，", "，", "。", "。", "、", "：", "？", "。\n", "2024"}[r.IntN(10)])
	}
	return strings.ToValidUTF8(b.String()[:corpusBytes], "")
}

// Append on a megabyte that the encoder has not seen (cold: its cache of words
// is empty) or has (warm).
func BenchmarkAppend(b *testing.B) {
	texts := corpora(b)
	for _, name := range []string{"qwen3", "llama3_1", "gptoss", "deepseek_v3"} {
		e := encoder(b, name)
		for _, kind := range []string{"english", "code", "chinese", "mixed"} {
			for _, cold := range []bool{true, false} {
				run := name + "/" + kind + "/warm"
				if cold {
					run = name + "/" + kind + "/cold"
				}
				b.Run(run, func(b *testing.B) {
					b.SetBytes(int64(len(texts[kind])))
					ids, err := e.Append(nil, texts[kind])
					if err != nil {
						b.Fatal(err)
					}
					tokens, from := len(ids), cpuTime(b)
					for b.Loop() {
						if cold {
							e.ForgetWords()
						}
						if ids, err = e.Append(ids[:0], texts[kind]); err != nil {
							b.Fatal(err)
						}
					}
					reportCPU(b, from, len(texts[kind]))
					b.ReportMetric(float64(len(texts[kind]))/float64(tokens), "bytes/token")
				})
			}
		}
	}
}

// A megabyte of one thing, or without any end of a word.
func BenchmarkHostile(b *testing.B) {
	random := make([]byte, corpusBytes)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range random {
		random[i] = byte('a' + r.IntN(26))
	}
	for _, name := range []string{"qwen3", "gptoss", "deepseek_v3"} {
		e := encoder(b, name)
		for kind, text := range map[string]string{
			"letter":   strings.Repeat("a", corpusBytes),
			"letters":  string(random),
			"spaces":   strings.Repeat(" ", corpusBytes),
			"newlines": strings.Repeat("\n", corpusBytes),
			"digits":   strings.Repeat("7", corpusBytes),
			"marks":    strings.Repeat("\u0301\u0323", corpusBytes/4),
			"han":      strings.Repeat("界", corpusBytes/3),
			"invalid":  strings.Repeat("\xff", corpusBytes),
		} {
			b.Run(name+"/"+kind, func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				var ids []uint32
				from := cpuTime(b)
				for b.Loop() {
					ids, _ = e.Append(ids[:0], text)
				}
				reportCPU(b, from, len(text))
			})
		}
	}
}

// Building an encoder.
func BenchmarkNew(b *testing.B) {
	for _, name := range []string{"qwen3", "llama3_1", "gptoss", "deepseek_v3"} {
		b.Run(name, func(b *testing.B) {
			raw := tokenizerJSON(b, name)
			var e *bpe.Encoder
			from := cpuTime(b)
			for b.Loop() {
				var err error
				if e, err = bpe.New(raw); err != nil {
					b.Fatal(err)
				}
			}
			reportCPU(b, from, len(raw))
			b.ReportMetric(float64(e.Bytes())/1e6, "MB")
		})
	}
}

// cpuTime is the processor time that this process has used. On a machine that does
// other things as well it says more than the clock.
func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// reportCPU reports megabytes a second of processor time since from.
func reportCPU(b *testing.B, from time.Duration, size int) {
	b.Helper()
	b.ReportMetric(float64(b.N)*float64(size)/1e6/(cpuTime(b)-from).Seconds(), "MB/cpu-s")
}
