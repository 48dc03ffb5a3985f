package events

import (
	"hash/maphash"
	"unsafe"
)

const (
	// maxChunk bounds, in elements, how far an arena grows ahead of need
	// during one batch, so that a hostile batch cannot double its cost.
	maxChunk = 8192
	// maxKept is the size in bytes above which an arena does not keep its
	// memory for the next batch: one burst must not pin memory in every
	// stream for good.
	maxKept = 1 << 20
)

// arena hands out slices that live until reset. After a batch it resizes to
// what that batch took, so that a stream in its steady state allocates
// nothing.
type arena[T any] struct {
	chunk []T
	taken int // elements, since reset
}

// take returns a slice of n elements with arbitrary contents.
func (a *arena[T]) take(n int) []T {
	a.taken += n
	if n > cap(a.chunk)-len(a.chunk) {
		// Slices handed out before keep the old chunk alive.
		a.chunk = make([]T, 0, max(n, min(2*cap(a.chunk), maxChunk), 64))
	}
	from := len(a.chunk)
	a.chunk = a.chunk[:from+n]
	return a.chunk[from : from+n : from+n]
}

// reset makes the memory of all slices available again.
func (a *arena[T]) reset() {
	var zero T
	kept := maxKept / int(unsafe.Sizeof(zero))
	switch {
	case cap(a.chunk) > kept:
		a.chunk = nil
	case a.taken > cap(a.chunk) && a.taken <= kept:
		a.chunk = make([]T, 0, min(a.taken+a.taken/4, kept))
	}
	a.chunk = a.chunk[:0]
	a.taken = 0
}

// maxInterned is the length in bytes up to which strings are shared. Media,
// kinds, LoRA names and image hashes (64 hex digits) are shorter.
const maxInterned = 128

// interner turns bytes into strings without allocating for those it saw
// recently. It is a small cache with a few places for each hash, so it is
// bounded: a stream that names every request (session_id, cache_salt) merely
// replaces entries.
type interner struct {
	seed maphash.Seed
	sets [64][4]string // by hash; in each the last used first
}

func (t *interner) str(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if len(b) > maxInterned {
		return string(b)
	}
	set := &t.sets[maphash.Bytes(t.seed, b)%uint64(len(t.sets))]
	for i, known := range set {
		if known == string(b) {
			copy(set[1:], set[:i])
			set[0] = known
			return known
		}
	}
	// A stream uses a dozen strings all the time: that five of them meet in a
	// set, and drive each other out, does not happen.
	copy(set[1:], set[:])
	set[0] = string(b)
	return set[0]
}
