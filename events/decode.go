package events

import (
	"fmt"
	"hash/maphash"
	"math"
	"slices"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/kvindex/kvindex/indexer"
)

// Limits bounds what a Decoder accepts. They stop runaway input, they do not
// describe engines: SGLang merges hundreds of hashes into one event and a
// prompt of 200k tokens may come in one, so the defaults are far above both.
// A zero field takes its default. Besides, no length on the wire is believed
// that exceeds the bytes that remain, so memory is bounded by the payload:
// about 8 bytes of hashes or 4 of tokens a byte of payload, plus MaxEvents
// events and MaxExtra extra keys.
type Limits struct {
	MaxPayload int // bytes of one batch; default 16 MiB
	MaxEvents  int // events of one batch; default 262,144
	MaxHashes  int // hashes of one event; default 1,048,576
	MaxTokens  int // token ids of one event, a pair counts as two; default 4,194,304
	MaxExtra   int // entries and keys of all non-nil extra_keys of one batch; default 1,048,576
	MaxString  int // bytes of one string that is kept; default 65,536
	MaxDepth   int // nested arrays and maps, with the batch itself; default 16, at least 8
}

// minDepth is the depth of the deepest known field: batch, events, event,
// extra_keys, keys of a block, (id, offset). Two are to spare.
const minDepth = 8

func (l Limits) withDefaults() Limits {
	for _, f := range []struct {
		field *int
		def   int
	}{
		{&l.MaxPayload, 16 << 20},
		{&l.MaxEvents, 1 << 18},
		{&l.MaxHashes, 1 << 20},
		{&l.MaxTokens, 1 << 22},
		{&l.MaxExtra, 1 << 20},
		{&l.MaxString, 1 << 16},
		{&l.MaxDepth, 16},
	} {
		if *f.field <= 0 {
			*f.field = f.def
		}
	}
	l.MaxDepth = max(l.MaxDepth, minDepth)
	return l
}

// maxRank bounds data_parallel_rank, group_idx and sizes in tokens: products
// of such a number and any count of elements fit into 64 bits.
const maxRank = math.MaxInt32

// Decoder turns payloads into batches. It accepts every shape that vLLM
// (arrays up to v0.23, maps from v0.24) and SGLang publish, mixed at will:
// the shape is decided event by event. It reuses its memory, so a stream in
// its steady state decodes without allocating. One goroutine may use it.
type Decoder struct {
	limits  Limits
	cur     cursor
	lib     *msgpack.Decoder // reads through cur
	strings interner

	batch  Batch
	hashes arena[indexer.EngineHash]
	tokens arena[uint32]
	blocks arena[BlockExtra]
	keys   arena[ExtraKey]
	extra  int // entries taken from blocks and keys
}

// NewDecoder returns a Decoder with the given limits; the zero Limits is what
// most callers want.
func NewDecoder(limits Limits) *Decoder {
	limits = limits.withDefaults()
	d := &Decoder{
		limits:  limits,
		cur:     newCursor(limits.MaxDepth),
		strings: interner{seed: maphash.MakeSeed()},
	}
	d.lib = msgpack.NewDecoder(&d.cur)
	return d
}

// Decode decodes the payload frame of one message. The batch and all it
// points to are valid until the next call; of the payload nothing is kept.
// Events that cannot be used are listed in Batch.Skipped and cost no other
// event. An error is a *BatchError: nothing of the batch can be trusted then,
// and the consumer has a gap of one.
//
// The batch is [ts, events, rank, ...] or the map {ts, events,
// data_parallel_rank, ...}; SGLang calls the rank attn_dp_rank. ts may be any
// number, NaN and infinities included. A map that gives one of them twice is
// rejected.
func (d *Decoder) Decode(payload []byte) (*Batch, error) {
	d.reset()
	if len(payload) > d.limits.MaxPayload {
		return nil, &BatchError{Reason: BatchTooLarge, Offset: d.limits.MaxPayload, Size: len(payload),
			Detail: fmt.Sprintf("want at most %d bytes", d.limits.MaxPayload)}
	}
	d.cur.buf = payload
	err := d.envelope()
	if err == nil && d.cur.remaining() > 0 {
		err = d.cur.fail(BatchTrailing, "the batch is complete but the payload goes on")
	}
	d.cur.buf = nil // the caller's; errors above have copied what they say
	if err != nil {
		return nil, err
	}
	return &d.batch, nil
}

func (d *Decoder) reset() {
	d.cur.buf, d.cur.pos = nil, 0
	d.hashes.reset()
	d.tokens.reset()
	d.blocks.reset()
	d.keys.reset()
	d.extra = 0
	d.batch = Batch{Events: kept(d.batch.Events), Skipped: kept(d.batch.Skipped)}
}

// kept empties a slice for reuse unless a burst made it large. It clears it,
// since old elements would keep the memory of dropped arenas alive.
func kept[T any](s []T) []T {
	if cap(s) > maxChunk {
		return nil
	}
	clear(s)
	return s[:0]
}

// minEvent is the size in bytes of the shortest good event, a BlockRemoved of
// no hashes. An Event takes 280.
const minEvent = 15

// depths of values, as skip wants them: how many containers enclose them.
const (
	depthBatchField = 1
	depthEvent      = 2
	depthEventField = 3
	depthExtraKey   = 5
)

func (d *Decoder) envelope() *BatchError {
	start := d.cur.pos
	switch typeName(d.cur.peek()) {
	case "map":
		return d.envelopeMap()
	case "array":
	default:
		return d.reject(start, 0, BatchNotABatch, "want an array or a map, have ")
	}
	n, err := d.lib.DecodeArrayLen()
	if err != nil || n > d.cur.remaining() {
		d.cur.pos = start
		return d.cur.fail(BatchTruncated, "the array is longer than the rest of the payload")
	}
	if n < 2 {
		return d.cur.fail(BatchNotABatch, fmt.Sprintf("an array of %d, want at least ts and events", n))
	}
	for i := range n {
		var err *BatchError
		switch i {
		case 0:
			err = d.timestamp()
		case 1:
			err = d.events()
		case 2:
			err = d.rank()
		default: // of later revisions
			err = d.cur.skip(depthBatchField)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// envelopeMap reads a batch in the form of a map, which only an unreleased
// branch of vLLM sent.
func (d *Decoder) envelopeMap() *BatchError {
	start := d.cur.pos
	n, err := d.lib.DecodeMapLen()
	if err != nil || 2*uint64(n) > uint64(d.cur.remaining()) {
		d.cur.pos = start
		return d.cur.fail(BatchTruncated, "the map is longer than the rest of the payload")
	}
	var ts, events, rank bool // seen
	once := func(seen *bool, reason BatchReason, read func() *BatchError) *BatchError {
		if *seen {
			return d.cur.fail(reason, "given twice")
		}
		*seen = true
		return read()
	}
	for range n {
		var err *BatchError
		key, ok := d.cur.str()
		if !ok {
			if err := d.cur.skip(depthBatchField); err != nil {
				return err
			}
		}
		switch string(key) {
		case "ts":
			err = once(&ts, BatchBadTS, d.timestamp)
		case "events":
			err = once(&events, BatchBadEvents, d.events)
		case "data_parallel_rank", "attn_dp_rank":
			err = once(&rank, BatchBadRank, d.rank)
		default:
			err = d.cur.skip(depthBatchField)
		}
		if err != nil {
			return err
		}
	}
	switch {
	case !ts && !events:
		return d.cur.fail(BatchNotABatch, "a map with neither ts nor events")
	case !ts:
		return d.cur.fail(BatchBadTS, "missing")
	case !events:
		return d.cur.fail(BatchBadEvents, "missing")
	}
	return nil
}

// reject rejects the batch because of the value at start, unless the value is
// no msgpack at all, which is then the reason.
func (d *Decoder) reject(start, depth int, reason BatchReason, detail string) *BatchError {
	d.cur.pos = start
	have := typeName(d.cur.peek())
	if err := d.cur.skip(depth); err != nil {
		return err
	}
	return &BatchError{Reason: reason, Offset: start, Size: len(d.cur.buf), Detail: detail + have}
}

func (d *Decoder) timestamp() *BatchError {
	start := d.cur.pos
	if name := typeName(d.cur.peek()); name == "float" || name == "integer" {
		ts, err := d.lib.DecodeFloat64()
		if err == nil {
			d.batch.Timestamp = ts
			return nil
		}
	}
	return d.reject(start, depthBatchField, BatchBadTS, "want a number as ts, have ")
}

func (d *Decoder) rank() *BatchError {
	start := d.cur.pos
	if d.cur.isNil() {
		return nil
	}
	rank, ok := d.cur.natural(maxRank)
	if !ok {
		return d.reject(start, depthBatchField, BatchBadRank, "want a rank of 0..2^31-1, have another ")
	}
	d.batch.Rank, d.batch.HasRank = rank, true
	return nil
}

func (d *Decoder) events() *BatchError {
	start := d.cur.pos
	if typeName(d.cur.peek()) != "array" {
		return d.reject(start, depthBatchField, BatchBadEvents, "want an array of events, have ")
	}
	n, err := d.lib.DecodeArrayLen()
	if err != nil || n > d.cur.remaining() {
		d.cur.pos = start
		return d.cur.fail(BatchTruncated, "the array of events is longer than the rest of the payload")
	}
	if n > d.limits.MaxEvents {
		return d.cur.fail(BatchTooLarge, fmt.Sprintf("%d events, want at most %d", n, d.limits.MaxEvents))
	}
	// At once rather than by doubling, but only as many good events as fit.
	d.batch.Events = slices.Grow(d.batch.Events, min(n, d.cur.remaining()/minEvent))
	for i := range n {
		if err := d.event(i); err != nil {
			return err
		}
	}
	return nil
}
