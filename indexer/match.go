package indexer

import "math/bits"

// Result is the answer to a match. Its memory, Streams included, is used again
// by the next match into it, so that a match into a used Result does not
// allocate. It belongs to one goroutine at a time. The zero value is ready.
type Result struct {
	// TotalBlocks is how many full blocks the request has: of tokens, of pairs
	// of tokens, or as many as hashes were given.
	TotalBlocks int

	// ScannedBlocks is how many leading blocks were looked at. The scan ends
	// with the first block at which no live stream matches any more, or at
	// maxBlocks, or at the end of the request. So it is the longest match plus
	// one, or less where the scan was cut short; 0 if no stream is live.
	ScannedBlocks int

	// Streams lists the streams that hold the first block in any tier, in no
	// particular order.
	Streams []StreamMatch

	matching matching
}

// StreamMatch is how much of the request one stream holds.
type StreamMatch struct {
	Stream StreamID

	// Blocks counts leading blocks, cumulative by tier: Blocks[GPU] are all in
	// gpu, Blocks[CPU] each in gpu or cpu, Blocks[Disk] each in any tier. A
	// count ends at the first block that is missing; what follows a hole
	// counts nothing.
	Blocks [NumTiers]int
}

// MatchTokens finds which streams hold leading blocks of a prompt. A table of
// bigrams forms the n-1 pairs of n tokens. maxBlocks bounds the scan, 0 means
// no bound. Blocks are hashed one after the other as the scan reaches them: a
// prompt that nobody holds costs one block.
func (t *Table) MatchTokens(tokens []uint32, scope ScopeKey, maxBlocks int, r *Result) {
	m := &r.matching
	var seq SeqHash
	for i := range r.begin(t, t.blocksIn(len(tokens)), maxBlocks) {
		seq = t.chain(i, seq, scope, t.localAt(tokens, i, &m.pairs))
		if !r.step(t.blocks.setOf(seq)) {
			break
		}
	}
	r.end()
}

// MatchLocal is MatchTokens for a caller that has hashed the blocks' tokens.
func (t *Table) MatchLocal(local []LocalHash, scope ScopeKey, maxBlocks int, r *Result) {
	var seq SeqHash
	for i := range r.begin(t, len(local), maxBlocks) {
		seq = t.chain(i, seq, scope, local[i])
		if !r.step(t.blocks.setOf(seq)) {
			break
		}
	}
	r.end()
}

// MatchSeq is MatchTokens for a caller that has hashed the prefixes. The scope
// is in the hashes.
func (t *Table) MatchSeq(seq []SeqHash, maxBlocks int, r *Result) {
	for i := range r.begin(t, len(seq), maxBlocks) {
		if !r.step(t.blocks.setOf(seq[i])) {
			break
		}
	}
	r.end()
}

// matching is the state of a match, and its scratch memory.
type matching struct {
	roster *roster
	last   *holderSet         // of the block before
	alive  [NumTiers][]uint64 // by cumulative tier: slots that hold all blocks so far
	at     []int32            // slot -> its place in Streams
	slots  []int32            // place in Streams -> slot
	pairs  []uint32           // bigrams of one block
}

// begin prepares r for a match and returns how many blocks to scan at most.
func (r *Result) begin(t *Table, total, maxBlocks int) int {
	m := &r.matching
	m.roster, m.last = t.roster.Load(), nil
	m.slots = m.slots[:0]
	r.TotalBlocks, r.ScannedBlocks, r.Streams = total, 0, r.Streams[:0]
	var streams uint64
	for _, w := range m.roster.live {
		streams |= w
	}
	if streams == 0 {
		return 0
	}
	for p := range m.alive {
		m.alive[p] = append(m.alive[p][:0], m.roster.live...)
	}
	if n := len(m.roster.holders); cap(m.at) < n {
		m.at = make([]int32, n+n/2)
	} else {
		m.at = m.at[:cap(m.at)]
	}
	if maxBlocks > 0 {
		total = min(total, maxBlocks)
	}
	return total
}

// step takes the next block, held by set, and reports whether any stream still
// matches.
func (r *Result) step(set *holderSet) bool {
	m := &r.matching
	n := r.ScannedBlocks
	r.ScannedBlocks++
	if set == m.last && n > 0 {
		return true // the same streams: all that are alive hold it
	}
	m.last = set
	var left uint64
	for w, still := range m.alive[NumTiers-1] {
		if still == 0 {
			continue
		}
		var gpu, cpu, disk uint64
		if set != nil {
			gpu, cpu, disk = set.word(w)
		}
		if n == 0 {
			r.enter(w, still&(gpu|cpu|disk))
		}
		r.drop(GPU, w, gpu, n)
		r.drop(CPU, w, gpu|cpu, n)
		left |= r.drop(Disk, w, gpu|cpu|disk, n)
	}
	return left != 0
}

// enter lists the streams of the given slots, which hold the first block.
func (r *Result) enter(w int, slots uint64) {
	m := &r.matching
	for ; slots != 0; slots &= slots - 1 {
		slot := w<<6 + bits.TrailingZeros64(slots)
		m.at[slot] = int32(len(r.Streams))
		m.slots = append(m.slots, int32(slot))
		r.Streams = append(r.Streams, StreamMatch{Stream: m.roster.holders[slot].id})
	}
}

// drop ends, after n blocks, the match of the streams that were alive in the
// cumulative tier t and are not among held. It returns those that go on.
func (r *Result) drop(t Tier, w int, held uint64, n int) uint64 {
	m := &r.matching
	was := m.alive[t][w]
	if gone := was &^ held; gone != 0 && n > 0 {
		r.score(t, w, gone, n)
	}
	m.alive[t][w] = was & held
	return was & held
}

// score notes n blocks in the cumulative tier t for the given slots.
func (r *Result) score(t Tier, w int, slots uint64, n int) {
	for ; slots != 0; slots &= slots - 1 {
		r.Streams[r.matching.at[w<<6+bits.TrailingZeros64(slots)]].Blocks[t] = n
	}
}

// end scores the streams that match to the end of the scan, and drops those
// that were retired meanwhile: their slots may have passed to other streams.
func (r *Result) end() {
	m := &r.matching
	if r.ScannedBlocks > 0 {
		for t := range m.alive {
			for w, still := range m.alive[t] {
				r.score(Tier(t), w, still, r.ScannedBlocks)
			}
		}
	}
	kept := r.Streams[:0]
	for i, slot := range m.slots {
		if !m.roster.holders[slot].retired.Load() {
			kept = append(kept, r.Streams[i])
		}
	}
	r.Streams = kept
	m.roster, m.last = nil, nil // do not keep them from the garbage collector
}
