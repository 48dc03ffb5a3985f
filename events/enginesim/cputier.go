package enginesim

import "container/list"

// cpuTier is the host tier behind the GPU: whole blocks in order of last use.
type cpuTier struct {
	capacity int
	order    *list.List // of *prefix, most recently used first
	byID     map[digest]*list.Element
	pending  []transfer
}

// transfer is a copy from the GPU that is under way.
type transfer struct {
	due   int // step at whose end it is complete
	parts []*prefix
}

func newCPUTier(capacity int) *cpuTier {
	return &cpuTier{capacity: capacity, order: list.New(), byID: map[digest]*list.Element{}}
}

func (t *cpuTier) has(id digest) bool {
	_, ok := t.byID[id]
	return ok
}

// touch makes p the most recently used, if it is there.
func (t *cpuTier) touch(id digest) {
	if e, ok := t.byID[id]; ok {
		t.order.MoveToFront(e)
	}
}

// store puts parts into the tier. It returns those that were new and those
// that had to leave. As in vLLM, parts that cannot all fit are not stored.
func (t *cpuTier) store(parts []*prefix) (stored, evicted []*prefix) {
	for _, p := range parts {
		if t.has(p.id) {
			t.touch(p.id)
			continue
		}
		stored = append(stored, p)
	}
	if len(stored) > t.capacity {
		return nil, nil
	}
	for t.order.Len()+len(stored) > t.capacity {
		p := t.order.Remove(t.order.Back()).(*prefix)
		delete(t.byID, p.id)
		evicted = append(evicted, p)
	}
	for _, p := range stored {
		t.byID[p.id] = t.order.PushFront(p)
	}
	return stored, evicted
}

func (t *cpuTier) clear() {
	t.order.Init()
	clear(t.byID)
	t.pending = nil
}
