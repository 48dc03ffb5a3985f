package enginesim

// block is one physical block of the GPU.
type block struct {
	id   int
	refs int     // requests that use it
	held *prefix // what it holds if that is in the cache; nil otherwise

	prev, next *block // neighbours in the free queue
	free       bool
}

// freeQueue holds the blocks that no request uses, the next to be reused
// first. Blocks in it may still hold a cached prefix: that is lost only when
// the block is taken.
type freeQueue struct {
	head, tail *block
	len        int
}

func (q *freeQueue) pushBack(b *block) {
	b.prev, b.next, b.free = q.tail, nil, true
	if q.tail == nil {
		q.head = b
	} else {
		q.tail.next = b
	}
	q.tail = b
	q.len++
}

func (q *freeQueue) pushFront(b *block) {
	b.prev, b.next, b.free = nil, q.head, true
	if q.head == nil {
		q.tail = b
	} else {
		q.head.prev = b
	}
	q.head = b
	q.len++
}

func (q *freeQueue) remove(b *block) {
	if b.prev == nil {
		q.head = b.next
	} else {
		b.prev.next = b.next
	}
	if b.next == nil {
		q.tail = b.prev
	} else {
		b.next.prev = b.prev
	}
	b.prev, b.next, b.free = nil, nil, false
	q.len--
}

// blockCache finds the blocks that hold a prefix. Several may hold the same
// one; the oldest answers.
type blockCache map[digest][]*block

func (c blockCache) get(id digest) *block {
	if bs := c[id]; len(bs) > 0 {
		return bs[0]
	}
	return nil
}

func (c blockCache) put(b *block, p *prefix) {
	// Copies share one prefix, so that the tokens of a popular block are kept once.
	if old := c.get(p.id); old != nil {
		p = old.held
	}
	b.held = p
	c[p.id] = append(c[p.id], b)
}

func (c blockCache) drop(b *block) {
	id := b.held.id
	b.held = nil
	bs := c[id]
	for i := range bs {
		if bs[i] == b {
			bs = append(bs[:i], bs[i+1:]...)
			break
		}
	}
	if len(bs) == 0 {
		delete(c, id)
		return
	}
	c[id] = bs
}
