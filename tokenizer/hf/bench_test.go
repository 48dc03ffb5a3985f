//go:build cgo && !nohf && (amd64 || arm64)

package hf

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// benchText returns about size bytes of a kind of text, different with every seed.
func benchText(kind string, size int, seed uint64) string {
	r := rand.New(rand.NewPCG(seed, 10))
	words := map[string][]string{
		"english": strings.Fields("the of and to in is that it was for on are with as his they at be this from have or by one had not but what all were when we there can an your which their said if do will each about how up out them then she many some so these would other into has more her two like him see time could no make than first been its who now people my made over did down only way find use may water long little very after words called just where most know"),
		"code":    strings.Split("if err != nil {\n\t\treturn nil, err\n\t}\n|for i := range n {\n|func (s *Server) Handle(w http.ResponseWriter, r *http.Request) {\n|\treturn fmt.Errorf(\"cannot open %q: %w\", path, err)\n|x[i] += y*3.14159 // comment\n|import numpy as np\n|    self.assertEqual(a, b)\n|}\n\n|const map<string, vector<int>>& m = other->get_value();\n", "|"),
		"chinese": strings.Split("今天天气很好，|我们去公园散步。|人工智能正在改变世界，|机器学习模型需要大量数据。|请问这个问题怎么解决？|北京是中国的首都，|上海是最大的城市。|他说：“明天再来吧！”|", "|"),
	}
	var b strings.Builder
	for b.Len() < size {
		k := kind
		if kind == "mixed" {
			k = []string{"english", "code", "chinese"}[r.IntN(3)]
		}
		for range 40 {
			b.WriteString(words[k][r.IntN(len(words[k]))])
			if k == "english" {
				b.WriteString([]string{" ", " ", " ", ", ", ". "}[r.IntN(5)])
			}
		}
		fmt.Fprintf(&b, " %d %x\n", r.IntN(100_000), r.IntN(1<<24))
	}
	return b.String()
}

// BenchmarkAppend: texts of 16 KB, one after the other, KVINDEX_HF_BENCH names the tokenizer (qwen3).
func BenchmarkAppend(b *testing.B) {
	name := os.Getenv("KVINDEX_HF_BENCH")
	if name == "" {
		name = "qwen3"
	}
	e := realEncoder(b, name)
	for _, size := range []int{1 << 10, 16 << 10, 1 << 20} {
		for _, kind := range []string{"english", "code", "chinese", "mixed"} {
			if size != 16<<10 && kind != "mixed" {
				continue
			}
			texts := make([]string, 16)
			for i := range texts {
				texts[i] = benchText(kind, size, uint64(i))
			}
			b.Run(fmt.Sprintf("%s/%s/%dKB", name, kind, size>>10), func(b *testing.B) {
				b.SetBytes(int64(len(texts[0])))
				b.ReportAllocs()
				var ids []uint32
				n := 0
				start := cpuTime()
				for b.Loop() {
					ids, _ = e.Append(ids[:0], texts[n%len(texts)])
					n++
				}
				b.ReportMetric(float64(n*len(texts[0]))/1e6/(cpuTime()-start).Seconds(), "MB/cpu-s")
				b.ReportMetric(float64(len(texts[0]))/float64(len(ids)), "B/id")
			})
		}
	}
}

// cpuTime is the processor time that this process has used: on a busy machine it says more than the clock.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkParallel compares one instance that all calls share with one for each.
func BenchmarkParallel(b *testing.B) {
	tokenizerJSON, _ := readReal(b, "qwen3")
	texts := make([]string, 64)
	for i := range texts {
		texts[i] = benchText("mixed", 4<<10, uint64(i))
	}
	for _, instances := range []int{1, 2} {
		e := newEncoder(b, tokenizerJSON, Options{MaxInstances: instances})
		for len(e.pool.instances) < instances {
			i, err := e.pool.build()
			if err != nil {
				b.Fatal(err)
			}
			e.pool.instances = append(e.pool.instances, i)
		}
		b.Run(fmt.Sprintf("instances=%d", instances), func(b *testing.B) {
			b.SetBytes(4 << 10)
			b.RunParallel(func(pb *testing.PB) {
				var ids []uint32
				n := 0
				for pb.Next() {
					ids, _ = e.Append(ids[:0], texts[n%len(texts)])
					n++
				}
			})
		})
	}
}

// BenchmarkNew: taking tokenizer.json apart and loading it.
func BenchmarkNew(b *testing.B) {
	for _, name := range []string{"qwen3", "gemma3"} {
		tokenizerJSON, config := readReal(b, name)
		b.Run(name+"/parse", func(b *testing.B) {
			b.SetBytes(int64(len(tokenizerJSON)))
			for b.Loop() {
				if _, err := parseSpec(tokenizerJSON, config); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/New", func(b *testing.B) {
			b.SetBytes(int64(len(tokenizerJSON)))
			for b.Loop() {
				e, err := New(tokenizerJSON, Options{TokenizerConfig: config})
				if err != nil {
					b.Fatal(err)
				}
				e.Close()
			}
		})
	}
}
