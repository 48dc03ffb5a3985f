//go:build !nohf

package bpe_test

import "testing"

// The library on the texts of BenchmarkAppend.
func BenchmarkLibrary(b *testing.B) {
	texts := corpora(b)
	for _, name := range []string{"qwen3", "llama3_1", "gptoss", "deepseek_v3"} {
		h := library(b, tokenizerJSON(b, name))
		for _, kind := range []string{"english", "code", "chinese", "mixed"} {
			b.Run(name+"/"+kind, func(b *testing.B) {
				b.SetBytes(int64(len(texts[kind])))
				var ids []uint32
				from := cpuTime(b)
				for b.Loop() {
					var err error
					if ids, err = h.Append(ids[:0], texts[kind]); err != nil {
						b.Fatal(err)
					}
				}
				reportCPU(b, from, len(texts[kind]))
			})
		}
	}
}
