package api

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvindex/kvindex/indexer"
)

// witness sees whether prompts that were tokenized here are stored by engines
// as they were foretold: some time after an answer, the prompt's last block
// should be in the index. One that is not may just not have been sent; but if
// hardly any of a model's is, engines compute other tokens, or hash other
// blocks, and nothing else would show it. It costs one query in witnessEvery a
// hashed chain. The zero value is ready.
type witness struct {
	turn    atomic.Uint64
	mu      sync.Mutex    // taken by one query in witnessEvery
	waiting []expectation // by time; at most maxExpectations
	seen    map[string]*Witnessed
}

const (
	witnessEvery    = 16
	witnessAfter    = 30 * time.Second // engines have answered by then, or will not store it
	maxExpectations = 256
)

// expectation is a block that should be stored soon.
type expectation struct {
	table *indexer.Table
	block indexer.SeqHash
	at    time.Time
}

// Witnessed counts prompts that were tokenized here and not yet stored whole
// when they were asked for, by whether an engine stored them within half a
// minute. It is a sample.
type Witnessed struct {
	Stored    uint64 `json:"stored"`
	NotStored uint64 `json:"not_stored"`
}

// saw takes note of an answer.
func (w *witness) saw(m *matcher, q *queryRequest, sum summary) {
	if q.source != sourcePrompt || len(m.tables) != 1 || sum.total == 0 || w.turn.Add(1)%witnessEvery != 1 {
		return
	}
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.judge(now)
	if len(w.waiting) == maxExpectations {
		return
	}
	t := m.tables[0]
	seq := t.Sequence(q.tokenIDs(), m.index.Hasher().Scope(indexer.Scope{Tenant: q.tenant, LoRA: m.lora, Salt: q.salt}), nil)
	if len(seq) == 0 {
		return
	}
	last := seq[len(seq)-1]
	if _, stored := t.Block(last); !stored {
		w.waiting = append(w.waiting, expectation{t, last, now})
	}
}

// judge decides about what has waited long enough.
func (w *witness) judge(now time.Time) {
	n := 0
	for n < len(w.waiting) && now.Sub(w.waiting[n].at) >= witnessAfter {
		e := w.waiting[n]
		n++
		if w.seen == nil {
			w.seen = map[string]*Witnessed{}
		}
		model := e.table.Key().Model
		if w.seen[model] == nil {
			w.seen[model] = &Witnessed{}
		}
		if _, stored := e.table.Block(e.block); stored {
			w.seen[model].Stored++
		} else {
			w.seen[model].NotStored++
		}
	}
	w.waiting = append(w.waiting[:0], w.waiting[n:]...)
}

// of returns what is known of a model.
func (w *witness) of(model string, now time.Time) Witnessed {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.judge(now)
	if s := w.seen[model]; s != nil {
		return *s
	}
	return Witnessed{}
}
