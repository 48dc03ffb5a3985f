package snapshot

import "golang.org/x/sys/unix"

// Room returns an empty slice with room for n bytes, and what gives the room
// back: after that nothing may be left that refers to it.
//
// It is not the garbage collector's: hundreds of megabytes that come and go
// would make it work, and queries wait for that. And all its pages are there:
// who copies an index into it while others wait does not wait for the kernel.
func Room(n int) (b []byte, release func()) {
	b, err := unix.Mmap(-1, 0, max(n, 1), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return make([]byte, 0, n), func() {}
	}
	// Both are wishes: without them it takes longer.
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE)
	_ = unix.Madvise(b, unix.MADV_POPULATE_WRITE)
	whole := b
	return b[:0], func() { _ = unix.Munmap(whole) }
}
