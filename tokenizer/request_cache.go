package tokenizer

import (
	"sync"

	"github.com/zeebo/xxh3"
)

// requestCache remembers the tokens of whole requests, for retries and for
// routers that ask about one request several times: neither JSON nor template
// is looked at again. What was added first goes first.
type requestCache struct {
	budget int // bytes

	mu    sync.Mutex
	known map[requestKey]Tokens
	order []requestKey // by age, from next on
	next  int
	bytes int
}

// requestKey names the body of a request: by a 128-bit hash, a second one and
// its length. The body is not kept.
type requestKey struct {
	tokenizer *Tokenizer // another one after a reload
	kind      Kind
	hash      xxh3.Uint128
	check     uint64
	length    int
}

// maxRequests bounds how many requests are remembered at once.
const maxRequests = 1024

func newRequestCache(budget int) *requestCache {
	return &requestCache{budget: budget, known: map[requestKey]Tokens{}}
}

func newRequestKey(t *Tokenizer, r Request) requestKey {
	return requestKey{
		tokenizer: t, kind: r.Kind, length: len(r.Body),
		hash: xxh3.Hash128(r.Body), check: xxh3.HashSeed(r.Body, checkSeed),
	}
}

func (c *requestCache) get(k requestKey) (Tokens, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.known[k]
	return t, ok
}

// size is what an entry keeps from the garbage collector: the prefix cache may
// have let go of its nodes.
func (c *requestCache) size(t Tokens) int { return nodeOverhead + 5*t.Count }

func (c *requestCache) put(k requestKey, t Tokens) {
	if c.size(t) > c.budget {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.known[k]; ok {
		return
	}
	for len(c.known) > 0 && (len(c.known) == maxRequests || c.bytes+c.size(t) > c.budget) {
		c.dropOldest()
	}
	c.known[k] = t
	c.bytes += c.size(t)
	c.order = append(c.order, k)
}

func (c *requestCache) dropOldest() {
	k := c.order[c.next]
	c.next++
	c.bytes -= c.size(c.known[k])
	delete(c.known, k)
	if c.next > len(c.order)/2 {
		c.order = append(c.order[:0], c.order[c.next:]...)
		c.next = 0
	}
}

// forget drops what a tokenizer has said.
func (c *requestCache) forget(t *Tokenizer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := c.order[:0]
	for _, k := range c.order[c.next:] {
		if k.tokenizer != t {
			kept = append(kept, k)
			continue
		}
		c.bytes -= c.size(c.known[k])
		delete(c.known, k)
	}
	c.order, c.next = kept, 0
}
