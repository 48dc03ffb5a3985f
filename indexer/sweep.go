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
			for t.sweepOne(x.stop) {
			}
		}
	}
}

// sweepOne sweeps the holder that has waited longest. It is false if there is
// none, or when stop ends it.
func (t *Table) sweepOne(stop <-chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.retired) == 0 {
		return false
	}
	// Nobody else changes a retired holder, so its maps can be walked although
	// the lock is given up in between.
	h := t.retired[0]
	n := 0
	for e, a := range h.aliases.m {
		t.blocks.removeSlot(a.seq, h.slot)
		for _, a := range h.aliases.more[e] {
			t.blocks.removeSlot(a.seq, h.slot)
		}
		if n++; n%clearChunk == 0 && !t.pause(stop) {
			return false
		}
	}
	for e := range h.lot.kids {
		t.sharing.unwait(h, e)
		if n++; n%clearChunk == 0 && !t.pause(stop) {
			return false
		}
	}
	h.aliases, h.extra, h.lot = aliases{}, nil, lot{}
	t.retired[0] = nil
	t.retired = t.retired[1:]
	// Only now no block is left that shows the slot.
	t.slots[h.slot] = nil
	for n := len(t.slots); n > 0 && t.slots[n-1] == nil; n-- {
		t.slots = t.slots[:n-1]
	}
	return true
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
