package tokenizer

import (
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/zeebo/xxh3"
)

// key names a text up to a boundary: a running 128-bit hash of its segments,
// and its length.
type key struct {
	hash   xxh3.Uint128
	length int // bytes
}

// checkSeed makes the second hash independent of the first.
const checkSeed = 0x9e3779b97f4a7c15

// next returns the key and the check at the end of segment, which follows k's
// text. Every byte of a text is read once for each.
func (k key) next(segment string, check uint64) (key, uint64) {
	h := xxh3.HashString128Seed(segment, k.hash.Lo+uint64(k.length))
	h.Hi ^= bits.RotateLeft64(k.hash.Hi, 1)
	return key{hash: h, length: k.length + len(segment)}, xxh3.HashStringSeed(segment, check^checkSeed)
}

// node is a tokenized text up to a boundary, as a link in a chain: only the
// last segment's tokens are its own, so that the turns of a conversation take
// memory once. It is immutable but for blocks and used.
type node struct {
	parent *node // nil for the beginning
	ids    []uint32
	count  int    // tokens of the whole text
	check  uint64 // a second hash of the last segment: see Cache

	mu     sync.Mutex
	blocks []nodeBlocks // by block size; few

	used atomic.Int64 // tick of the last use
}

// nodeBlocks are the hashes of the blocks that end within a node's tokens.
type nodeBlocks struct {
	hash *BlockHash
	sums []uint64
}

// nodeOverhead is what a node takes beside its ids, in bytes: the struct, its
// place in the map and in memory allocation.
const nodeOverhead = 256

func (n *node) bytes() int {
	return nodeOverhead + 4*len(n.ids) + 8*(len(n.ids)/8) // ids, and block hashes for blocks of 8 or more
}

// Cache remembers tokenized beginnings of texts, of all models together,
// within a budget of bytes. What was used longest ago goes first. It is safe
// for concurrent use.
//
// An entry is found by a 128-bit hash of its text and confirmed by a second,
// independently seeded one and the lengths; the text itself is not kept.
type Cache struct {
	budget int
	shards [16]cacheShard
	bytes  atomic.Int64
	tick   atomic.Int64
	evict  sync.Mutex // one eviction at a time

	hits, misses, evicted atomic.Uint64 // tokens found, tokens not found, nodes
}

type cacheShard struct {
	mu    sync.RWMutex
	nodes map[key]*node
}

// NewCache returns a cache of the given size in bytes.
func NewCache(budget int) *Cache {
	c := &Cache{budget: budget}
	for i := range c.shards {
		c.shards[i].nodes = map[key]*node{}
	}
	return c
}

// CacheStats are sums over the life of a Cache.
type CacheStats struct {
	Bytes        int    // in use now
	Nodes        int    // now
	HitTokens    uint64 // that did not have to be computed
	MissedTokens uint64 // that had to be
	EvictedNodes uint64
}

// Stats returns what the cache holds and has done.
func (c *Cache) Stats() CacheStats {
	s := CacheStats{
		Bytes: int(c.bytes.Load()), HitTokens: c.hits.Load(),
		MissedTokens: c.misses.Load(), EvictedNodes: c.evicted.Load(),
	}
	for i := range c.shards {
		c.shards[i].mu.RLock()
		s.Nodes += len(c.shards[i].nodes)
		c.shards[i].mu.RUnlock()
	}
	return s
}

func (c *Cache) shard(k key) *cacheShard { return &c.shards[k.hash.Lo%uint64(len(c.shards))] }

func (c *Cache) get(k key, check uint64) *node {
	s := c.shard(k)
	s.mu.RLock()
	n := s.nodes[k]
	s.mu.RUnlock()
	if n == nil || n.check != check {
		return nil
	}
	return n
}

// put adds n under k, unless another goroutine was faster: then that one's
// node is returned.
func (c *Cache) put(k key, n *node) *node {
	s := c.shard(k)
	s.mu.Lock()
	old := s.nodes[k]
	if old != nil && old.check == n.check {
		s.mu.Unlock()
		return old
	}
	if old != nil {
		c.bytes.Add(-int64(old.bytes()))
	}
	s.nodes[k] = n
	s.mu.Unlock()
	if c.bytes.Add(int64(n.bytes())) > int64(c.budget) {
		c.shrink()
	}
	return n
}

// now returns a tick of the cache's clock, one a text: what is touched or put
// for a text has the same, so that a beginning is never evicted before what
// follows it.
func (c *Cache) now() int64 { return c.tick.Add(1) }

// touch marks the chain that ends with n as used now.
func (c *Cache) touch(n *node, now int64) {
	for ; n != nil; n = n.parent {
		n.used.Store(now)
	}
}

// shrink evicts the least recently used nodes until an eighth of the budget is
// free: a pass over all of them, rare enough to cost little.
func (c *Cache) shrink() {
	if !c.evict.TryLock() {
		return // another goroutine is at it
	}
	defer c.evict.Unlock()
	var ages []int64
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.RLock()
		for _, n := range s.nodes {
			ages = append(ages, n.used.Load())
		}
		s.mu.RUnlock()
	}
	slices.Sort(ages)
	target := int64(c.budget - c.budget/8)
	for step := max(len(ages)/16, 1); len(ages) > 0 && c.bytes.Load() > target; {
		n := min(step, len(ages))
		c.drop(ages[n-1])
		ages = ages[n:]
	}
}

// drop removes every node that was not used since a tick.
func (c *Cache) drop(upTo int64) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		for k, n := range s.nodes {
			if n.used.Load() <= upTo {
				delete(s.nodes, k)
				c.bytes.Add(-int64(n.bytes()))
				c.evicted.Add(1)
			}
		}
		s.mu.Unlock()
	}
}
