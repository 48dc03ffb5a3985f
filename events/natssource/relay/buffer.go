package relay

import (
	"github.com/kvindex/kvindex/events"
	"github.com/kvindex/kvindex/events/natssource"
)

// entry is a batch of the present process.
type entry struct {
	seq     uint64
	payload []byte
}

func (e entry) mark() *natssource.Mark {
	return &natssource.Mark{Seq: e.seq, CRC: events.Checksum(e.payload)}
}

// buffer holds the last batches of the present process, by rising seq. The
// first of them have been published, the rest waits. It is not safe for
// concurrent use.
type buffer struct {
	maxBatches, maxBytes int

	entries []entry
	bytes   int
	sent    int // how many of entries have been published
}

// add appends a batch and makes room for it. dropped is how many batches that
// wait had to go.
func (b *buffer) add(e entry) (dropped int) {
	b.entries = append(b.entries, e)
	b.bytes += len(e.payload)
	for len(b.entries) > 1 && (len(b.entries) > b.maxBatches || b.bytes > b.maxBytes) {
		b.bytes -= len(b.entries[0].payload)
		b.entries[0] = entry{}
		b.entries = b.entries[1:]
		if b.sent > 0 {
			b.sent--
		} else {
			dropped++
		}
	}
	return dropped
}

// reset forgets everything. dropped is how many batches waited.
func (b *buffer) reset() (dropped int) {
	dropped = len(b.entries) - b.sent
	b.entries, b.bytes, b.sent = nil, 0, 0
	return dropped
}

// waiting returns the next batches to publish, not more than n or, beyond the
// first, than bytes.
func (b *buffer) waiting(n, bytes int) []entry {
	return firstOf(b.entries[b.sent:], n, bytes)
}

// published notes that everything up to seq has been published.
func (b *buffer) published(seq uint64) {
	for b.sent < len(b.entries) && b.entries[b.sent].seq <= seq {
		b.sent++
	}
}

// from returns the batches from seq on, within the same bounds as waiting.
func (b *buffer) from(seq uint64, n, bytes int) []entry {
	lo, hi := 0, len(b.entries)
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); b.entries[mid].seq < seq {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return firstOf(b.entries[lo:], n, bytes)
}

// firstOf copies the first n entries, or as many as fit into bytes, but one in
// any case.
func firstOf(list []entry, n, bytes int) []entry {
	k := 0
	for k < len(list) && k < n && (k == 0 || bytes >= len(list[k].payload)) {
		bytes -= len(list[k].payload)
		k++
	}
	return append([]entry(nil), list[:k]...)
}
