package indexer

import "sync/atomic"

// quota counts the memory of one model, or of all, and bounds it; and its blocks,
// where they have a bound.
type quota struct {
	blocks, bytes       atomic.Int64
	maxBlocks, maxBytes int64 // 0: no bound
}

// try adds n to what is counted, unless that would exceed the bound.
func try(count *atomic.Int64, n, bound int64) bool {
	if count.Add(n) <= bound || bound == 0 {
		return true
	}
	count.Add(-n)
	return false
}

// meter is what one table counts, for itself, its model and the whole index.
// Any goroutine may use it.
type meter struct {
	bytes      atomic.Int64
	model, all *quota
}

// add counts n bytes more, or fewer, that are needed whatever the bounds are:
// for what removals need, and for what is small.
func (m *meter) add(n int64) {
	m.bytes.Add(n)
	m.model.bytes.Add(n)
	m.all.bytes.Add(n)
}

// try counts n bytes more if the bounds allow it.
func (m *meter) try(n int64) bool {
	if !try(&m.model.bytes, n, m.model.maxBytes) {
		return false
	}
	if !try(&m.all.bytes, n, m.all.maxBytes) {
		m.model.bytes.Add(-n)
		return false
	}
	m.bytes.Add(n)
	return true
}

// limited reports whether there is a bound on bytes.
func (m *meter) limited() bool { return m.model.maxBytes|m.all.maxBytes != 0 }

// block counts one more block if the bounds allow it.
func (m *meter) block() bool {
	if m.model.maxBlocks|m.all.maxBlocks == 0 {
		return true
	}
	if !try(&m.model.blocks, 1, m.model.maxBlocks) {
		return false
	}
	if !try(&m.all.blocks, 1, m.all.maxBlocks) {
		m.model.blocks.Add(-1)
		return false
	}
	return true
}

// unblock counts one block less.
func (m *meter) unblock() {
	if m.model.maxBlocks|m.all.maxBlocks == 0 {
		return
	}
	m.model.blocks.Add(-1)
	m.all.blocks.Add(-1)
}

// Refused counts blocks that were not admitted, by the bound that was reached.
type Refused struct {
	Blocks int64 // MaxBlocks or MaxModelBlocks
	Bytes  int64 // MaxBytes or MaxModelBytes
}
