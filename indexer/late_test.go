package indexer

import (
	"testing"

	"pgregory.net/rapid"
)

// TestLate: what is kept is what was put last under the name, and the cache stays
// in its bounds.
func TestLate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := late{keep: rapid.SampledFrom([]int{1, 2, 3, 4, 8, 64, 256}).Draw(t, "keep")}
		held := int64(rapid.IntRange(0, 5000).Draw(t, "held"))
		last := map[EngineHash]SeqHash{}
		mem := newMeter()
		for i := range rapid.IntRange(1, 400).Draw(t, "steps") {
			e := EngineHash(rapid.IntRange(0, 300).Draw(t, "name"))
			if rapid.IntRange(0, 4).Draw(t, "drop") == 0 {
				l.drop(e)
				delete(last, e)
			} else {
				l.put(lateName{name: e, seq: SeqHash(i)}, held, mem)
				last[e] = SeqHash(i)
				if n := l.get(e); n == nil || n.seq != SeqHash(i) {
					t.Fatalf("%d was put and is not there", e)
				}
			}
		}
		n := 0
		l.each(func(k *lateName) bool {
			n++
			if seq, ok := last[k.name]; !ok || k.seq != seq {
				t.Fatalf("%d is kept with %d, want %d", k.name, k.seq, seq)
			}
			return true
		})
		if n > l.keep || l.bytes() != mem.bytes.Load() {
			t.Fatalf("%d names of at most %d, %d bytes, %d counted", n, l.keep, l.bytes(), mem.bytes.Load())
		}
	})
}
