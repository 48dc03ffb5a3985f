package events

import (
	"bytes"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

func benchPayloads(t testing.TB) map[string][]byte {
	lora := make([]any, 8)
	for i := range lora {
		lora[i] = []any{"my-lora"}
	}
	removals := make([]any, 64)
	for i := range removals {
		removals[i] = removedMap()
	}
	return map[string][]byte{
		"map/blocks=8/size=16":       batchOf(t, storedMap(8, 16, nil)),
		"map/blocks=8/size=16/lora":  batchOf(t, storedMap(8, 16, lora)),
		"map/blocks=32/size=16":      batchOf(t, storedMap(32, 16, nil)),
		"map/blocks=1/size=512":      batchOf(t, storedMap(1, 512, nil)),
		"array/blocks=8/size=16":     batchOf(t, storedArray(8, 16)),
		"map/blocks=512/size=16":     batchOf(t, storedMap(512, 16, nil)),
		"removed/events=64/blocks=1": batchOf(t, removals...),
	}
}

func TestDecodeDoesNotAllocate(t *testing.T) {
	for name, payload := range benchPayloads(t) {
		d := NewDecoder(Limits{})
		decode := func() {
			if b, err := d.Decode(payload); err != nil || len(b.Skipped) != 0 {
				t.Fatal(name, err, b)
			}
		}
		decode()
		decode() // the first one taught the size
		if allocs := testing.AllocsPerRun(100, decode); allocs != 0 {
			t.Errorf("%s: %v allocations a batch", name, allocs)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	for name, payload := range benchPayloads(b) {
		b.Run(name, func(b *testing.B) {
			d := NewDecoder(Limits{})
			b.SetBytes(int64(len(payload)))
			b.ReportAllocs()
			blocks := 0
			for b.Loop() {
				batch, err := d.Decode(payload)
				if err != nil {
					b.Fatal(err)
				}
				blocks = 0
				for i := range batch.Events {
					blocks += len(batch.Events[i].Hashes)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*blocks), "ns/block")
		})
	}
}

// BenchmarkDecodeInterface is the library's generic decoding of the same
// payload, for comparison.
func BenchmarkDecodeInterface(b *testing.B) {
	payload := batchOf(b, storedMap(8, 16, nil))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := msgpack.NewDecoder(bytes.NewReader(payload)).DecodeInterface(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*8), "ns/block")
}

// BenchmarkSkip tells what looking for the end of every event first would
// cost.
func BenchmarkSkip(b *testing.B) {
	payload := batchOf(b, storedMap(8, 16, nil))
	c := newCursor(16)
	for b.Loop() {
		c.buf, c.pos = payload, 0
		if err := c.skip(0); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*8), "ns/block")
}

// BenchmarkDecodeCapture decodes a whole stream of a real engine over and
// over: 693 batches, too many for a branch predictor to learn by heart.
func BenchmarkDecodeCapture(b *testing.B) {
	var payloads [][]byte
	for payload := range capturedPayloads(b, "testdata/captures/main/stream.jsonl.gz") {
		payloads = append(payloads, payload)
	}
	d := NewDecoder(Limits{})
	b.ReportAllocs()
	blocks, tokens, events := 0, 0, 0
	for b.Loop() {
		blocks, tokens, events = 0, 0, 0
		for _, payload := range payloads {
			batch, err := d.Decode(payload)
			if err != nil {
				b.Fatal(err)
			}
			for i := range batch.Events {
				blocks += len(batch.Events[i].Hashes)
				tokens += len(batch.Events[i].Tokens)
			}
			events += len(batch.Events)
		}
	}
	ns := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
	b.ReportMetric(ns/float64(events), "ns/event")
	b.ReportMetric(ns/float64(blocks), "ns/block")
	b.ReportMetric(float64(tokens)/float64(events), "tokens/event")
}
