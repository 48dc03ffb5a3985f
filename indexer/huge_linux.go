package indexer

import (
	"syscall"
	"unsafe"
)

const madvHugepage = 14 // MADV_HUGEPAGE, which package syscall has not everywhere

// adviseHuge asks for huge pages in n bytes from p on, which are aligned to
// them. A system that has none says so, and nothing is lost.
func adviseHuge(p unsafe.Pointer, n uintptr) {
	_ = syscall.Madvise(unsafe.Slice((*byte)(p), n), madvHugepage)
}
