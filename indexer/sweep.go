package indexer

import "runtime"

// sweep frees what retired holders held, until the index is closed. It runs in
// its own goroutine.
func (x *Index) sweep() {
	for {
		select {
		case <-x.stop:
			return
		case <-x.wake:
		}
		for _, t := range x.dir.Load().tables {
			for t.sweepRetired(x.stop) {
			}
		}
	}
}

// sweepRetired takes the seats that wait for it out of all sets. It is false
// if there are none, or when stop ends it.
//
// Since they were retired, no new set has them. So one walk over all blocks and
// names finds what they are in, and after it their slots are free.
func (t *Table) sweepRetired(stop <-chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	batch := len(t.retired)
	if batch == 0 {
		return false
	}
	pause := func() bool { return t.pause(stop) }
	for _, s := range t.retired[:batch] {
		h, n := s.of, 0
		if s != h.seat {
			continue // the holder may live on
		}
		for e := range h.lot.kids {
			t.sharing.unwait(h, e)
			if n++; n%(clearSlabs*slabSize) == 0 && !pause() {
				return false
			}
		}
	}
	// Blocks first: a record that is made meanwhile has the set of its block.
	if !t.eachBlock(t.sweepBlock, pause) || !t.eachRecord(t.sweepRecord, pause) {
		return false
	}
	for _, s := range t.retired[:batch] {
		if h := s.of; s == h.seat {
			t.mem.add(-h.late.bytes() - int64(len(h.lot.nodes))*bytesPerOrphan)
			h.late, h.lot = late{}, lot{}
		}
		t.mem.add(-int64(len(s.extra)) * bytesPerExtra)
		s.extra = nil
		t.sets.restore(s.slot)
		t.slots[s.slot] = nil
	}
	clear(t.retired[:batch])
	t.retired = t.retired[batch:]
	for n := len(t.slots); n > 0 && t.slots[n-1] == nil; n-- {
		t.slots = t.slots[:n-1]
	}
	return true
}

func (t *Table) sweepBlock(id uint32) {
	if set := t.arena.set(id); t.sets.isRetired(set) {
		t.setBlock(id, t.sets.clean(set))
	}
}

func (t *Table) sweepRecord(ref nameRef) {
	if set := t.holdersOf(ref); t.sets.isRetired(set) {
		t.setName(ref, t.sets.clean(set))
	}
}

// pause lets other writers pass. It is false when stop is closed.
func (t *Table) pause(stop <-chan struct{}) bool {
	t.mu.Unlock()
	defer t.mu.Lock()
	runtime.Gosched()
	select {
	case <-stop:
		return false
	default:
		return true
	}
}
