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

	// Sure is Blocks without what is suspect (Holder.Doubt): a count ends at the
	// first block that may be no longer held.
	Sure [NumTiers]int
}

// Windows of blocks are hashed before they are looked up: the first is small,
// for prompts that nobody holds, the later ones ever larger.
const (
	firstWindow = 16
	lastWindow  = 1024
)

// MatchTokens finds which streams hold leading blocks of a prompt. A table of
// bigrams forms the n-1 pairs of n tokens. maxBlocks bounds the scan, 0 means
// no bound. Blocks are hashed as the scan needs them, in windows of growing
// size: a prompt that nobody holds costs 16 blocks.
func (t *Table) MatchTokens(tokens []uint32, scope ScopeKey, maxBlocks int, r *Result) {
	m := &r.matching
	for again := true; again; again = r.end(t) {
		total := r.begin(t, t.blocksIn(len(tokens)), maxBlocks)
		var prev SeqHash
		for i, n := 0, firstWindow; i < total; n = min(4*n, lastWindow) {
			m.window = m.window[:0]
			for end := min(i+n, total); i < end; i++ {
				prev = t.chain(i, prev, scope, t.localAt(tokens, i, &m.pairs))
				m.window = append(m.window, prev)
			}
			if !t.scan(m.window, r) {
				break
			}
		}
	}
}

// MatchLocal is MatchTokens for a caller that has hashed the blocks' tokens.
func (t *Table) MatchLocal(local []LocalHash, scope ScopeKey, maxBlocks int, r *Result) {
	m := &r.matching
	for again := true; again; again = r.end(t) {
		total := r.begin(t, len(local), maxBlocks)
		var prev SeqHash
		for i, n := 0, firstWindow; i < total; n = min(4*n, lastWindow) {
			m.window = m.window[:0]
			for end := min(i+n, total); i < end; i++ {
				prev = t.chain(i, prev, scope, local[i])
				m.window = append(m.window, prev)
			}
			if !t.scan(m.window, r) {
				break
			}
		}
	}
}

// MatchSeq is MatchTokens for a caller that has hashed the prefixes. The scope
// is in the hashes. They must be those of one prompt, in order: each stands for
// all blocks before it, and where one is found, those may not be compared.
func (t *Table) MatchSeq(seq []SeqHash, maxBlocks int, r *Result) {
	for again := true; again; again = r.end(t) {
		t.scan(seq[:r.begin(t, len(seq), maxBlocks)], r)
	}
}

// matching is the state of a match, and its scratch memory.
type matching struct {
	roster *roster
	moves  uint64 // of the table when the match began
	tries  int    // that were in vain

	exhausted bool // the last match saw blocks move each time it began anew

	last   uint32             // id of the set of the block before
	view   view               // of that set
	next   uint32             // the entry where the next block may be
	set    []uint64           // words of a set
	window []SeqHash          // hashes
	alive  [NumTiers][]uint64 // by cumulative tier: slots that hold all blocks so far
	at     []int32            // slot -> its place in Streams
	slots  []int32            // place in Streams -> slot
	pairs  []uint32           // bigrams of one block
}

// begin prepares r for a match and returns how many blocks to scan at most.
func (r *Result) begin(t *Table, total, maxBlocks int) int {
	m := &r.matching
	m.moves = t.moves.Load()
	m.roster, m.last, m.view, m.next = t.roster.Load(), 0, view{}, 0
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
	if n := len(m.roster.seats); cap(m.at) < n {
		m.at = make([]int32, n+n/2)
	} else {
		m.at = m.at[:cap(m.at)]
	}
	if maxBlocks > 0 {
		total = min(total, maxBlocks)
	}
	return total
}

// step takes block n, held by the set that has the given planes of words one
// after another, and reports whether any stream still matches.
func (r *Result) step(n int, set []uint64, words int) bool {
	m := &r.matching
	r.ScannedBlocks = n + 1
	if len(m.roster.tracks) > 0 {
		m.roster.join(set, words)
	}
	var left uint64
	for w, still := range m.alive[NumTiers-1] {
		if still == 0 {
			continue
		}
		var gpu, cpu, disk uint64
		if w < words {
			gpu, cpu, disk = set[w], set[words+w], set[2*words+w]
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
		r.Streams = append(r.Streams, StreamMatch{Stream: m.roster.ids[slot]})
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

// maxTries is how often a match begins anew at most.
const maxTries = 3

// end scores the streams that match to the end of the scan, and drops those
// that were retired meanwhile: their slots may have passed to other streams. It
// is true if blocks have meanwhile moved to where the match did not look for them:
// it should begin anew.
func (r *Result) end(t *Table) (again bool) {
	m := &r.matching
	if r.ScannedBlocks > 0 {
		for tier := range m.alive {
			for w, still := range m.alive[tier] {
				r.score(Tier(tier), w, still, r.ScannedBlocks)
			}
		}
	}
	r.settle(t.roster.Load() != m.roster)
	m.roster, m.view = nil, view{} // do not keep them from the garbage collector
	moved := t.moves.Load() != m.moves
	if m.tries++; moved && m.tries < maxTries {
		return true
	}
	m.exhausted, m.tries = moved, 0
	return false
}

// settle makes one of what was matched for a stream, and drops, if the roster has
// changed, what was matched in seats that have ended.
func (r *Result) settle(changed bool) {
	m := &r.matching
	ro := m.roster
	for i, slot := range m.slots {
		s := &r.Streams[i]
		s.Sure = s.Blocks
		if tr := ro.trackAt(slot); tr != nil && int(slot) == tr.all {
			s.Sure = r.blocksAt(tr.sure)
		}
	}
	if !changed && len(ro.tracks) == 0 {
		return
	}
	kept := r.Streams[:0]
	for i, slot := range m.slots {
		if changed && ro.seats[slot].ended.Load() {
			continue
		}
		if tr := ro.trackAt(slot); tr != nil {
			// Where something of all has ended, what is certain is what is left.
			if gone := changed && ro.ended(tr); gone == (int(slot) == tr.all) {
				continue
			}
		}
		kept = append(kept, r.Streams[i])
	}
	r.Streams = kept
}

// blocksAt returns what was matched in a slot, -1 being none.
func (r *Result) blocksAt(slot int) (blocks [NumTiers]int) {
	m := &r.matching
	if slot >= 0 {
		if i := int(m.at[slot]); i < len(m.slots) && int(m.slots[i]) == slot {
			return r.Streams[i].Blocks
		}
	}
	return blocks
}
