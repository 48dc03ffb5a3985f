package tokenizer

import "slices"

// BlockHash says how the blocks of one size are hashed, so that the cache can
// remember their hashes too. The function belongs to the caller's index; it is
// called with exactly Size tokens and must be pure. A BlockHash is compared by
// its address: make one a block size and keep it.
type BlockHash struct {
	Size int
	Hash func(tokens []uint32) uint64
}

// blockSums returns the hashes of the blocks that end within n's own tokens.
// They are computed once a node and BlockHash.
func (n *node) blockSums(h *BlockHash) []uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, b := range n.blocks {
		if b.hash == h {
			return b.sums
		}
	}
	sums := sumBlocks(h, n.parent, n.ids, n.count)
	n.blocks = append(n.blocks, nodeBlocks{hash: h, sums: sums})
	return sums
}

// sumBlocks hashes the blocks that end within ids, which follow parent's text
// and end at token count.
func sumBlocks(h *BlockHash, parent *node, ids []uint32, count int) []uint64 {
	start := count - len(ids)
	full := count/h.Size - start/h.Size
	if full == 0 {
		return nil
	}
	sums := make([]uint64, 0, full)
	// The first block may have begun in the text before.
	if head := start % h.Size; head != 0 {
		block := append(lastTokens(parent, head), ids[:h.Size-head]...)
		sums = append(sums, h.Hash(block))
		ids = ids[h.Size-head:]
	}
	for len(ids) >= h.Size {
		sums = append(sums, h.Hash(ids[:h.Size]))
		ids = ids[h.Size:]
	}
	return sums
}

// lastTokens returns the last n tokens of the text that ends with p.
func lastTokens(p *node, n int) []uint32 {
	out := make([]uint32, n)
	for rest := n; rest > 0; p = p.parent {
		k := min(rest, len(p.ids))
		copy(out[rest-k:rest], p.ids[len(p.ids)-k:])
		rest -= k
	}
	return out
}

// Tokens is a tokenized text.
type Tokens struct {
	last   *node    // of the cached chain, nil if nothing of the text is cached
	tail   []uint32 // what follows it
	Count  int      // all tokens
	Cached int      // how many were found in the cache
}

// AppendIDs appends all token ids to dst.
func (t *Tokens) AppendIDs(dst []uint32) []uint32 {
	dst = slices.Grow(dst, t.Count)
	n := len(dst) + t.Count - len(t.tail)
	out := dst[:n]
	for p := t.last; p != nil; p = p.parent {
		n -= len(p.ids)
		copy(out[n:], p.ids)
	}
	return append(out, t.tail...)
}

// AppendBlocks appends the hashes of all full blocks to dst. Those of cached
// beginnings are not computed again.
func (t *Tokens) AppendBlocks(h *BlockHash, dst []uint64) []uint64 {
	total := t.Count / h.Size
	dst = slices.Grow(dst, total)
	tail := sumBlocks(h, t.last, t.tail, t.Count)
	n := len(dst) + total - len(tail)
	out := dst[:n]
	for p := t.last; p != nil; p = p.parent {
		sums := p.blockSums(h)
		n -= len(sums)
		copy(out[n:], sums)
	}
	return append(out, tail...)
}
