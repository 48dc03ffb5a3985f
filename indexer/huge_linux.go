package indexer

import (
	"syscall"
	"unsafe"
)

const (
	hugePage      = 2 << 20
	adviseHugeAdv = 14 // MADV_HUGEPAGE, which package syscall has not on all architectures
)

// adviseHuge asks for huge pages where the memory has room for one: a look-up
// in 10 million blocks then misses the cache once, not twice. Systems without
// them ignore it.
func adviseHuge(p unsafe.Pointer, n uintptr) {
	skip := -uintptr(p) & (hugePage - 1)
	if n < skip+hugePage {
		return
	}
	n = (n - skip) &^ (hugePage - 1)
	_ = syscall.Madvise(unsafe.Slice((*byte)(unsafe.Add(p, skip)), n), adviseHugeAdv)
}
