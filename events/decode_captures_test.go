package events

import (
	"bufio"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSamples decodes one batch of every shape that vLLM sent, of many
// versions, and compares with what Python's msgpack made of it.
func TestSamples(t *testing.T) {
	f, err := os.Open("testdata/samples.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := NewDecoder(Limits{})
	dec := json.NewDecoder(f)
	dec.UseNumber()
	n := 0
	for ; ; n++ {
		var sample struct {
			Run     string
			Seq     uint64
			Payload []byte `json:"payload_b64"`
			Decoded any
		}
		if err := dec.Decode(&sample); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		want, err := oracle(sample.Decoded)
		if err != nil {
			t.Fatalf("%s, seq %d: %v", sample.Run, sample.Seq, err)
		}
		got, err := d.Decode(sample.Payload)
		if err != nil {
			t.Fatalf("%s, seq %d: %v", sample.Run, sample.Seq, err)
		}
		if diff := diffBatch(&want, got); diff != "" {
			t.Errorf("%s, seq %d (-sample +decoder):\n%s", sample.Run, sample.Seq, diff)
		}
		sameAsOracle(t, d, sample.Payload)
	}
	if n == 0 {
		t.Error("no samples")
	}
}

// TestCaptures decodes every message of every captured stream. A real engine
// gives no reason to skip anything.
func TestCaptures(t *testing.T) {
	streams, err := filepath.Glob("testdata/captures/*/stream.jsonl.gz")
	if err != nil || len(streams) == 0 {
		t.Fatalf("no captures: %v", err)
	}
	for _, path := range streams {
		t.Run(filepath.Base(filepath.Dir(path)), func(t *testing.T) {
			d := NewDecoder(Limits{})
			batches, kinds := 0, map[Kind]int{}
			for payload := range capturedPayloads(t, path) {
				sameAsOracle(t, d, payload)
				batches++
				for i := range d.batch.Events {
					kinds[d.batch.Events[i].Kind]++
				}
			}
			if batches == 0 {
				t.Error("no batches")
			}
			t.Logf("%d batches, %v", batches, kinds)
		})
	}
}

// capturedPayloads reads a stream of a capture, gzip or plain.
func capturedPayloads(t testing.TB, path string) func(yield func([]byte) bool) {
	t.Helper()
	return func(yield func([]byte) bool) {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var r io.Reader = f
		if strings.HasSuffix(path, ".gz") {
			if r, err = gzip.NewReader(f); err != nil {
				t.Fatal(err)
			}
		}
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			var message struct {
				Payload string `json:"payload_b64"`
			}
			if err := json.Unmarshal(lines.Bytes(), &message); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			payload, err := base64.StdEncoding.DecodeString(message.Payload)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			if !yield(payload) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
}
