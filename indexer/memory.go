package indexer

import "unsafe"

const hugePage = 2 << 20

// newChunks makes n chunks. Where there are many it asks for huge pages: a look-up
// in millions of blocks then misses once, not once for the block and once for
// where its page is.
func newChunks(n int) []*chunk {
	region := make([]chunk, n)
	cs := make([]*chunk, n)
	for i := range region {
		cs[i] = &region[i]
	}
	p := unsafe.Pointer(&region[0])
	size, skip := uintptr(n)*unsafe.Sizeof(chunk{}), -uintptr(p)&(hugePage-1)
	if size >= skip+hugePage {
		adviseHuge(unsafe.Add(p, skip), (size-skip)&^(hugePage-1))
	}
	return cs
}
