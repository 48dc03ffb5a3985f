package events

import (
	"fmt"
	"hash/maphash"
	"testing"
)

func TestArena(t *testing.T) {
	var a arena[uint32]
	first := a.take(10)
	for i := range first {
		first[i] = 7
	}
	second := a.take(1000) // does not fit behind the first
	clear(second)
	for _, x := range first {
		if x != 7 {
			t.Fatal("a later slice overlaps an earlier one")
		}
	}
	if len(first) != 10 || cap(first) != 10 || len(second) != 1000 {
		t.Errorf("lengths %d (capacity %d), %d", len(first), cap(first), len(second))
	}
	a.reset()
	if allocs := testing.AllocsPerRun(10, func() { a.take(10); a.take(1000); a.reset() }); allocs != 0 {
		t.Errorf("%v allocations after the first batch, want 0", allocs)
	}
	a.take(maxKept/4 + 1)
	a.reset()
	if cap(a.chunk) != 0 {
		t.Errorf("keeps %d elements after a burst", cap(a.chunk))
	}
	for range 100 {
		a.take(maxChunk)
	}
	a.reset()
	if got := 4 * cap(a.chunk); got > maxKept {
		t.Errorf("keeps %d bytes after many slices, want at most %d", got, maxKept)
	}
}

func TestInterner(t *testing.T) {
	in := interner{seed: maphash.MakeSeed()}
	for range 2 {
		for i := range 1000 { // more than it has room for
			want := fmt.Sprintf("adapter-%d", i)
			if got := in.str([]byte(want)); got != want {
				t.Fatalf("str(%q) = %q", want, got)
			}
		}
	}
	b := []byte("GPU")
	in.str(b)
	if allocs := testing.AllocsPerRun(10, func() { in.str(b) }); allocs != 0 {
		t.Errorf("%v allocations for a known string, want 0", allocs)
	}
	got := in.str(b)
	if b[0] = 'X'; got != "GPU" {
		t.Error("a string shares memory with the payload")
	}
	long := make([]byte, maxInterned+1)
	if got := in.str(long); got != string(long) {
		t.Errorf("a long string comes back with %d bytes", len(got))
	}
}

// A burst does not stay in memory.
func TestDecoderForgetsBursts(t *testing.T) {
	d := NewDecoder(Limits{})
	events := make([]any, maxChunk+1)
	for i := range events {
		events[i] = []any{"AllBlocksCleared"}
	}
	for _, payload := range [][]byte{batchOf(t, events...), batchOf(t, storedMap(20_000, 16, nil))} {
		if _, err := d.Decode(payload); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Decode(batchOf(t)); err != nil {
		t.Fatal(err)
	}
	if n := cap(d.batch.Events); n > maxChunk {
		t.Errorf("keeps %d events", n)
	}
	if n := 4 * cap(d.tokens.chunk); n > maxKept {
		t.Errorf("keeps %d bytes of tokens", n)
	}
}
