package indexer

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// Index is the block tables of all models, and the names that lead to them.
//
// All methods are safe for concurrent use. Those on the query path (Hasher,
// Tables, Resolve) take no lock.
type Index struct {
	opts   Options
	hasher Hasher

	mu     sync.Mutex // serializes changes of dir
	dir    atomic.Pointer[directory]
	quota  quota             // of all tables
	quotas map[string]*quota // by model; guarded by mu

	wake   chan struct{} // a holder was retired
	stop   chan struct{}
	closed sync.Once
	done   sync.WaitGroup
}

// directory is what an Index knows by name. It is never changed, only
// replaced, so that readers need no lock.
type directory struct {
	tables  map[TableKey]*Table
	byModel map[string][]*Table // ordered; also models that have no table yet
	aliases map[string]string   // other name -> model
	loras   map[string][]string // adapter -> models it was seen on, sorted
}

// TableKey names a block table. Blocks of different size, or of tokens and of
// bigrams, have nothing to compare, so each kind has a table of its own.
type TableKey struct {
	Model     string
	BlockSize int  // tokens (or bigrams) in a block
	Bigram    bool // blocks are of bigrams, as EAGLE engines announce them
}

// New returns an empty index and starts its background sweeper; Close ends it.
func New(o Options) (*Index, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("cannot make an index: %w", err)
	}
	o = o.withDefaults()
	x := &Index{
		opts:   o,
		hasher: NewHasher(o.Seed),
		wake:   make(chan struct{}, 1),
		stop:   make(chan struct{}),
	}
	x.quota.maxBlocks, x.quota.maxBytes = int64(o.MaxBlocks), o.MaxBytes
	x.dir.Store(&directory{})
	x.done.Go(x.sweep)
	return x, nil
}

// Close stops the background sweeper and waits for it. The index still
// answers after that, but no longer frees what retired holders held. It may be
// called more than once.
func (x *Index) Close() {
	x.closed.Do(func() { close(x.stop) })
	x.done.Wait()
}

// Hasher returns the hasher of the index's keys.
func (x *Index) Hasher() Hasher { return x.hasher }

// Table returns the table of key and makes it if there is none. A BlockSize
// below 1 makes a table that no tokens match.
func (x *Index) Table(key TableKey) *Table {
	if t := x.dir.Load().tables[key]; t != nil {
		return t
	}
	var t *Table
	x.change(func(d *directory) {
		if t = d.tables[key]; t != nil {
			return // another caller was faster
		}
		t = newTable(key, x)
		d.insert(t)
	})
	return t
}

// insert makes t findable.
func (d *directory) insert(t *Table) {
	model := t.key.Model
	d.tables[t.key] = t
	d.declare(model)
	of := append(slices.Clone(d.byModel[model]), t)
	slices.SortFunc(of, func(a, b *Table) int {
		return cmp.Or(cmp.Compare(a.key.BlockSize, b.key.BlockSize), boolToInt(a.key.Bigram)-boolToInt(b.key.Bigram))
	})
	d.byModel[model] = of
}

// quotaOf returns what bounds the tables of model. The caller has the index's
// mutex.
func (x *Index) quotaOf(model string) *quota {
	q := x.quotas[model]
	if q == nil {
		q = &quota{maxBlocks: int64(x.opts.MaxModelBlocks), maxBytes: x.opts.MaxModelBytes}
		if x.quotas == nil {
			x.quotas = make(map[string]*quota)
		}
		x.quotas[model] = q
	}
	return q
}

// Tables returns the tables that model has: ordered by block size, tokens
// before bigrams. The slice is shared: the caller must not change it.
func (x *Index) Tables(model string) []*Table {
	ts := x.dir.Load().byModel[model]
	return ts[:len(ts):len(ts)]
}

// change applies f to a copy of the directory and publishes it.
func (x *Index) change(f func(*directory)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	old := x.dir.Load()
	d := &directory{
		tables:  cloneMap(old.tables),
		byModel: cloneMap(old.byModel),
		aliases: cloneMap(old.aliases),
		loras:   cloneMap(old.loras),
	}
	f(d)
	x.dir.Store(d)
}

// cloneMap is maps.Clone, but never nil.
func cloneMap[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return map[K]V{}
	}
	return maps.Clone(m)
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
