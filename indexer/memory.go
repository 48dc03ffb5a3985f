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
	inHugePages(unsafe.Pointer(&region[0]), uintptr(n)*unsafe.Sizeof(chunk{}))
	return cs
}

// inHugePages asks for huge pages where the size bytes from p on span any.
func inHugePages(p unsafe.Pointer, size uintptr) {
	if skip := -uintptr(p) & (hugePage - 1); size >= skip+hugePage {
		adviseHuge(unsafe.Add(p, skip), (size-skip)&^(hugePage-1))
	}
}

// numbered is records without pointers that have a number each. It grows in parts,
// so that no record moves. One goroutine at a time uses it.
type numbered[T any] struct {
	parts []*[numberedPart]T
	n     uint32 // numbers handed out so far
	gone  []uint32
}

const numberedPart = 1024

func (p *numbered[T]) at(i uint32) *T { return &p.parts[i/numberedPart][i%numberedPart] }

// full reports whether add would need more memory.
func (p *numbered[T]) full() bool { return len(p.gone) == 0 && int(p.n) == len(p.parts)*numberedPart }

// add stores v, in more memory if it must.
func (p *numbered[T]) add(mem *meter, v T) uint32 {
	if p.full() {
		p.parts = append(p.parts, new([numberedPart]T))
		mem.add(p.partBytes())
	}
	i := p.n
	if n := len(p.gone); n > 0 {
		i = p.gone[n-1]
		p.gone = p.gone[:n-1]
	} else {
		p.n++
	}
	*p.at(i) = v
	return i
}

func (p *numbered[T]) drop(i uint32) {
	var zero T
	*p.at(i) = zero
	p.gone = append(p.gone, i)
}

func (p *numbered[T]) len() int { return int(p.n) - len(p.gone) }

func (p *numbered[T]) partBytes() int64 {
	var v T
	return int64(unsafe.Sizeof(v)) * numberedPart
}

func (p *numbered[T]) bytes() int64 { return int64(len(p.parts)) * p.partBytes() }
