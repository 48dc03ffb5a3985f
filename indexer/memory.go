package indexer

import "unsafe"

const hugePage = 2 << 20

// newChunks makes n chunks. From about 2 MB on it asks for huge pages: a look-up
// in millions of blocks then misses once, not once for the block and once for
// where its page is.
func newChunks(n int) []*chunk {
	cs := make([]*chunk, n)
	if int64(n)*chunkBytes < hugePage {
		region := make([]chunk, n)
		for i := range region {
			cs[i] = &region[i]
		}
		return cs
	}
	// The slack for alignment is never touched, so it is no memory.
	size := uintptr(n) * unsafe.Sizeof(chunk{})
	words := make([]uint64, (size+2*hugePage)/8)
	start := unsafe.Pointer(&words[0])
	start = unsafe.Add(start, -uintptr(start)&(hugePage-1))
	adviseHuge(start, (size+hugePage-1)&^(hugePage-1))
	for i := range cs {
		cs[i] = (*chunk)(unsafe.Add(start, uintptr(i)*unsafe.Sizeof(chunk{})))
	}
	return cs
}
