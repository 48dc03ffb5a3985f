package enginesim

// hit is one cached block of a prompt: on the GPU, or else to be loaded from
// the host tier.
type hit struct {
	gpu *block // nil: load
	id  digest // what to load
}

// lookup returns the cached blocks that j's prompt starts with, and how many
// of the first are on the GPU. The last token is always computed, so that
// there is something to sample from: a prompt that is cached whole recomputes
// its last block.
//
// Where the GPU has lost blocks in the middle, the host tier fills the holes;
// vLLM would not look at the GPU again behind the first of them. So Cached is
// exactly the prefix of which every block is in one tier or the other.
func (p *Pool) lookup(j *Job) (hits []hit, onGPU int) {
	most := (len(j.tokens) - 1) / p.o.BlockSize
	for _, x := range j.prefixes[:most] {
		b := p.cache.get(x.id)
		if b == nil && (p.cpu == nil || !p.cpu.has(x.id)) {
			break
		}
		if b != nil && onGPU == len(hits) {
			onGPU++
		}
		hits = append(hits, hit{gpu: b, id: x.id})
	}
	return hits, onGPU
}

// allocate gives j the blocks for its next n tokens, behind those of hits, and
// announces what is full then: at the time of scheduling, before anything is
// computed. It reports false, and has done nothing, if there are too few.
// Blocks that are found are taken out of the free queue before any is reused.
func (p *Pool) allocate(j *Job, hits []hit, n int) bool {
	total := j.computed + len(hits)*p.o.BlockSize + n
	need := ceilDiv(total, p.o.BlockSize) - len(j.blocks)
	found := 0
	for _, h := range hits {
		if h.gpu != nil {
			need--
			if h.gpu.refs == 0 {
				found++
			}
		}
	}
	if need+found > p.free.len {
		return false
	}
	for _, h := range hits {
		if h.gpu == nil {
			p.cpu.touch(h.id)
			continue
		}
		if h.gpu.refs == 0 {
			p.free.remove(h.gpu)
		}
		h.gpu.refs++
	}
	for _, h := range hits {
		if h.gpu == nil {
			h.gpu = p.reuse()
		}
		j.blocks = append(j.blocks, h.gpu)
	}
	for len(j.blocks) < ceilDiv(total, p.o.BlockSize) {
		j.blocks = append(j.blocks, p.reuse())
	}
	j.computed = total
	p.report(j, hits)
	p.announce(j)
	return true
}

// report announces what the GPU held of hits once more, if j asks for it.
func (p *Pool) report(j *Job, hits []hit) {
	n := 0
	for n < len(hits) && hits[n].gpu != nil {
		n++
	}
	if j.req.Report && n > 0 {
		p.events = append(p.events, p.storedEvent(j.prefixes[:n], p.medium(false)))
	}
}

// reuse takes the block that has been free for longest. What it still held is
// evicted now and not before.
func (p *Pool) reuse() *block {
	b := p.free.head
	p.free.remove(b)
	b.refs = 1
	if b.held != nil {
		p.removed(b.held, p.medium(false))
		p.cache.drop(b)
	}
	return b
}

// release gives back the blocks of j, its tail first. A block that holds
// nothing costs nothing, so it is the next to be reused.
func (p *Pool) release(j *Job) {
	for i := len(j.blocks) - 1; i >= 0; i-- {
		b := j.blocks[i]
		if b.refs--; b.refs > 0 {
			continue
		}
		if b.held == nil && !p.o.QueueEmpty {
			p.free.pushFront(b)
		} else {
			p.free.pushBack(b)
		}
	}
	j.blocks, j.computed, j.seen = nil, 0, 0
}

// announce puts the blocks of j that have become full into the cache: one
// event for each run of them, which is one event a step unless the GPU held
// blocks behind some that were loaded.
func (p *Pool) announce(j *Job) {
	j.extendPrefixes(p.hasher, p.o.BlockSize)
	full := j.computed / p.o.BlockSize
	for j.seen < full {
		if j.blocks[j.seen].held != nil {
			j.seen++
			continue
		}
		from := j.seen
		for j.seen < full && j.blocks[j.seen].held == nil {
			p.cache.put(j.blocks[j.seen], j.prefixes[j.seen])
			j.seen++
		}
		run := j.prefixes[from:j.seen]
		p.events = append(p.events, p.storedEvent(run, p.medium(false)))
		j.fresh = append(j.fresh, run...)
	}
}

// offload starts the copies of j's new blocks to the host tier.
func (p *Pool) offload(j *Job) {
	if p.cpu != nil && len(j.fresh) > 0 {
		p.cpu.pending = append(p.cpu.pending, transfer{due: p.steps + p.o.OffloadDelay, parts: j.fresh})
	}
	j.fresh = nil
}

// completeTransfers announces the copies that are complete by now, after the
// GPU's events of the same step.
func (p *Pool) completeTransfers() {
	for p.cpu != nil && len(p.cpu.pending) > 0 && p.cpu.pending[0].due <= p.steps {
		parts := p.cpu.pending[0].parts
		p.cpu.pending = p.cpu.pending[1:]
		stored, evicted := p.cpu.store(parts)
		for _, x := range evicted {
			p.removed(x, p.medium(true))
		}
		if !p.o.OffloadTokens && len(stored) > 0 {
			ev := Event{Kind: Stored, Medium: p.medium(true), Group: NoGroup}
			for _, x := range stored {
				ev.Hashes = append(ev.Hashes, x.hash)
			}
			p.events = append(p.events, ev)
			continue
		}
		for len(stored) > 0 {
			n := 1
			for n < len(stored) && stored[n].parent == stored[n-1] {
				n++
			}
			p.events = append(p.events, p.storedEvent(stored[:n], p.medium(true)))
			stored = stored[n:]
		}
	}
}

// storedEvent announces a run of consecutive blocks.
func (p *Pool) storedEvent(run []*prefix, medium string) Event {
	first := run[0]
	ev := Event{
		Kind:      Stored,
		BlockSize: p.o.BlockSize,
		LoRAID:    first.scope.loraID,
		LoRAName:  first.scope.lora,
		Salt:      first.scope.salt,
		Medium:    medium,
		SpecKind:  "full_attention",
		Tokens:    make([]uint32, 0, len(run)*p.o.BlockSize),
	}
	if first.parent != nil {
		ev.Parent, ev.HasParent = first.parent.hash, true
	}
	for _, x := range run {
		ev.Hashes = append(ev.Hashes, x.hash)
		ev.Tokens = append(ev.Tokens, x.tokens...)
		ev.Extra = append(ev.Extra, x.scope.extraKeys(x.depth))
	}
	return ev
}

func (p *Pool) removed(x *prefix, medium string) {
	if n := len(p.events); p.o.MergeRemoved && n > 0 && p.events[n-1].Kind == Removed && p.events[n-1].Medium == medium {
		p.events[n-1].Hashes = append(p.events[n-1].Hashes, x.hash)
		return
	}
	ev := Event{Kind: Removed, Hashes: []Hash{x.hash}, Medium: medium}
	if medium != MediumGPU && !p.o.OffloadTokens {
		ev.Group = NoGroup
	}
	p.events = append(p.events, ev)
}

func (p *Pool) medium(host bool) string {
	switch {
	case !host:
		return MediumGPU
	case p.o.Hash == HashSGLang:
		return MediumCPUPinned
	}
	return MediumCPU
}
