package snapshot

import (
	"bytes"
	"errors"
	"testing"
)

// FuzzReader: whatever the bytes, the reader says no with a reason, or what it
// accepts is exactly what the writer writes.
func FuzzReader(f *testing.F) {
	for _, n := range []int{0, 1, 300} {
		b, _ := encode(f, testHeader(), noise(n))
		f.Add(b)
		f.Add(b[:len(b)-3])
	}
	b, _ := encode(f, Header{Format: Format}, nil)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		limits := Limits{MaxBytes: 1 << 20}
		body, err := decode(b, limits)
		_, derr := Describe(bytes.NewReader(b), int64(len(b)), limits)
		for _, err := range []error{err, derr} {
			if r := (*RejectedError)(nil); err != nil && !errors.As(err, &r) {
				t.Fatalf("no rejection: %v", err)
			}
		}
		if err != nil {
			return
		}
		ok(t, derr)
		r, err := NewReader(bytes.NewReader(b), limits)
		ok(t, err)
		if again, _ := encode(t, r.Header(), body); !bytes.Equal(again, b) {
			t.Fatalf("accepted %q, and writes %q", b, again)
		}
	})
}

// FuzzManifest: likewise for manifests.
func FuzzManifest(f *testing.F) {
	for _, n := range []int{0, 1, ChunkSize + 300} {
		f.Add(encodeApart(f, testHeader(), noise(n)).manifest)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		info, err := DecodeManifest(b, Limits{})
		if r := (*RejectedError)(nil); err != nil && !errors.As(err, &r) {
			t.Fatalf("no rejection: %v", err)
		}
		if err == nil && int64(info.Chunks) != (info.Bytes+ChunkSize-1)/ChunkSize {
			t.Fatalf("%d chunks for %d bytes", info.Chunks, info.Bytes)
		}
	})
}
