package bpe

import (
	"strings"
	"sync/atomic"
	"unsafe"
)

const (
	cacheSets  = 8192 // a power of two
	cacheWays  = 4
	cachedWord = 64 // bytes of the longest word that is cached
)

// cache remembers the ids of words that took merging. It has a fixed number of
// entries: words with the same hash drive each other out of their set. Any
// number of goroutines may use it; none waits.
type cache struct {
	sets  [cacheSets][cacheWays]atomic.Pointer[cached]
	turn  atomic.Uint32 // which way is next driven out
	bytes atomic.Int64
}

// cached is a word and its ids. It does not change.
type cached struct {
	word string
	ids  []uint32
}

func (c *cached) size() int64 {
	return int64(unsafe.Sizeof(*c)) + int64(len(c.word)) + int64(4*len(c.ids))
}

// get returns the entry of w, whose hash is given, or nil.
func (c *cache) get(w string, hash uint64) *cached {
	set := &c.sets[hash%cacheSets]
	for i := range set {
		if e := set[i].Load(); e != nil && e.word == w {
			return e
		}
	}
	return nil
}

// put adds w, in place of another if its set is full.
func (c *cache) put(w string, hash uint64, ids []uint32) {
	e := &cached{word: strings.Clone(w), ids: append([]uint32(nil), ids...)}
	c.bytes.Add(e.size())
	set := &c.sets[hash%cacheSets]
	for i := range set {
		if set[i].CompareAndSwap(nil, e) {
			return
		}
	}
	if old := set[c.turn.Add(1)%cacheWays].Swap(e); old != nil {
		c.bytes.Add(-old.size())
	}
}
