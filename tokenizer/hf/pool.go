//go:build cgo && !nohf && (amd64 || arm64)

package hf

// #cgo LDFLAGS: -L${SRCDIR}/../../build/lib
//
// #include <stdlib.h>
// #ifdef __GLIBC__
// #include <malloc.h>
// static void give_memory_back(void) { malloc_trim(0); }
// #else
// static void give_memory_back(void) {}
// #endif
import "C"

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/daulet/tokenizers"
)

// instance is a tokenizer in the library's memory. Its Encode methods may run concurrently; freeing it may not.
type instance struct {
	lib   *tokenizers.Tokenizer
	calls int // that use it now; guarded by the pool
}

// load makes an instance of JSON that has passed parseSpec. It takes seconds for a large vocabulary.
func load(tokenizerJSON []byte) (*instance, error) {
	lib, err := tokenizers.FromBytes(tokenizerJSON)
	if err != nil {
		return nil, fmt.Errorf("cannot load the tokenizer: %w", err)
	}
	C.give_memory_back() // what taking the JSON apart needed
	return &instance{lib: lib}, nil
}

// encode returns the ids of text, which must be valid UTF-8 without NUL. No ids may mean an error.
// It asks for nothing but ids: token strings make the library panic if one holds a NUL.
func (i *instance) encode(text string, special bool) []uint32 {
	return i.lib.EncodeWithOptions(text, special).IDs
}

func (i *instance) free() { _ = i.lib.Close() } // its error is always nil

// trimEvery is after how many bytes of text trimmer acts, some 0.5 s of encoding.
const trimEvery = 1 << 20

// trimmer gives memory that the library has freed back to the system. Without it glibc keeps most of it: every thread
// that has made a call has an arena of its own, in which words that stay in the library's cache lie between those that
// are freed. It is safe for concurrent use.
type trimmer struct{ bytes atomic.Int64 } // encoded since the last time

// encoded is told about each text that was encoded, once no call of its own uses the memory.
func (t *trimmer) encoded(bytes int) {
	if t.bytes.Add(int64(bytes)) >= trimEvery {
		t.bytes.Store(0)
		C.give_memory_back()
	}
}

// pool holds the instances of a tokenizer. The first is there from the start; once all of them are used by share calls
// or more, one more is loaded in the background, up to max. It is safe for concurrent use until free.
type pool struct {
	max   int
	share int
	build func() (*instance, error)

	mu        sync.Mutex
	instances []*instance
	loading   bool
	loader    sync.WaitGroup // the background load
}

// newPool takes over first.
func newPool(first *instance, maxInstances, share int, build func() (*instance, error)) *pool {
	return &pool{max: maxInstances, share: max(share, 1), build: build, instances: []*instance{first}}
}

// acquire returns the instance that the fewest calls use, without waiting. put must follow.
func (p *pool) acquire() *instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	least := p.instances[0]
	for _, i := range p.instances[1:] {
		if i.calls < least.calls {
			least = i
		}
	}
	if least.calls >= p.share && len(p.instances) < p.max && !p.loading {
		p.loading = true
		p.loader.Go(p.grow)
	}
	least.calls++
	return least
}

func (p *pool) put(i *instance) {
	p.mu.Lock()
	i.calls--
	p.mu.Unlock()
}

// grow adds one instance. If that fails, which it does not after the first has loaded except for want of memory, it is
// not tried again: loading stays true.
func (p *pool) grow() {
	i, err := p.build()
	if err != nil {
		return
	}
	p.mu.Lock()
	p.instances = append(p.instances, i)
	p.loading = false
	p.mu.Unlock()
}

// free releases all instances. No call may use one, nor acquire one later.
func (p *pool) free() {
	p.loader.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range p.instances {
		i.free()
	}
	p.instances = nil
	C.give_memory_back()
}
