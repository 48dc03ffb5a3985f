package indexer

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// A snapshot is what an index holds, as bytes. It is for this package alone to
// read; where it is kept, and whether it arrives whole, is the business of
// package snapshot. All numbers are unsigned varints but for hashes, which are 8
// bytes, little-endian; strings have their length before them.
//
//	snapshot = version fingerprint n{model alias...} n{lora n{model}} n{table}
//	table    = model block_size bigram n{scope} n{stream} n{set} n{entry} n{parked} n{late}
//	stream   = instance rank flags n{since}
//	set      = n{stream tiers}
//	entry    = flags seq [pos scope [parent before]] [set] (name | n{name before set}) [n{name stream tier copies}]
//
// Streams and sets are numbered in their order, from 0; what was set apart as
// suspect (Holder.Doubt) has a number of its own, after that of its stream, for
// each time since when it is. Times are Unix milliseconds. Scopes from 1, for 0 is the
// default scope. The numbers of sets, entries and what follows them are of 4
// bytes, because they are known only afterwards. Entries are in
// the order of the arena, so that most are the child of the one before, which
// saves their place, and have its set, which saves that.

// SnapshotVersion is the version of what AppendSnapshot writes.
const SnapshotVersion = 2

// oldestVersion is the oldest that ReadSnapshot reads: 1 knew no suspects.
const oldestVersion = 1

// Flags of a stream.
const (
	streamPartial = 1 << iota
	streamUnsure
)

// Flags of an entry.
const (
	entryLinked  = 1 << iota // its parent is the entry before: place follows from that
	entrySameSet             // its set is that of the entry before
	entryMany                // it has several names
	entryExtra               // somebody has several copies
)

// ErrSnapshot is the root of errors about bytes that are no snapshot, or none
// that fits.
var ErrSnapshot = errors.New("the snapshot cannot be used")

// enc appends the parts of a snapshot.
type enc struct{ b []byte }

func (e *enc) num(n uint64)   { e.b = binary.AppendUvarint(e.b, n) }
func (e *enc) int(n int)      { e.num(uint64(n)) }
func (e *enc) hash(h uint64)  { e.b = binary.LittleEndian.AppendUint64(e.b, h) }
func (e *enc) str(s string)   { e.int(len(s)); e.b = append(e.b, s...) }
func (e *enc) bool(v bool)    { e.num(uint64(boolToInt(v))) }
func (e *enc) byte(v byte)    { e.b = append(e.b, v) }
func (e *enc) reserve() int   { e.b = append(e.b, 0, 0, 0, 0); return len(e.b) - 4 }
func (e *enc) fill(at, n int) { binary.LittleEndian.PutUint32(e.b[at:], uint32(n)) }

// dec reads the parts of a snapshot. After an error all are zero.
type dec struct {
	b       []byte
	at      int
	err     error
	version uint64 // of the snapshot
}

func (d *dec) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: at byte %d: %s", ErrSnapshot, d.at, fmt.Sprintf(format, args...))
	}
}

func (d *dec) num() uint64 {
	if d.err != nil {
		return 0
	}
	n, size := binary.Uvarint(d.b[d.at:])
	if size <= 0 {
		d.fail("a number is cut off or too long")
		return 0
	}
	d.at += size
	return n
}

// upTo reads a number that is below limit.
func (d *dec) upTo(limit uint64, what string) int {
	n := d.num()
	if n >= limit {
		d.fail("%s %d is not below %d", what, n, limit)
		return 0
	}
	return int(n)
}

// count reads how many of something follow that take at least size bytes each:
// there cannot be more than there are bytes for.
func (d *dec) count(size int, what string) int {
	return d.counted(d.num(), size, what)
}

func (d *dec) counted(n uint64, size int, what string) int {
	if d.err == nil && n > uint64(len(d.b)-d.at)/uint64(size) {
		d.fail("%d %s do not fit into %d bytes", n, what, len(d.b)-d.at)
		return 0
	}
	return int(n)
}

// fixed reads a number of 4 bytes.
func (d *dec) fixed() uint64 {
	if d.err != nil || len(d.b)-d.at < 4 {
		d.fail("a number is cut off")
		return 0
	}
	d.at += 4
	return uint64(binary.LittleEndian.Uint32(d.b[d.at-4:]))
}

func (d *dec) hash() uint64 {
	if d.err != nil || len(d.b)-d.at < 8 {
		d.fail("a hash is cut off")
		return 0
	}
	d.at += 8
	return binary.LittleEndian.Uint64(d.b[d.at-8:])
}

func (d *dec) byte() byte {
	if d.err != nil || d.at == len(d.b) {
		d.fail("a byte is missing")
		return 0
	}
	d.at++
	return d.b[d.at-1]
}

func (d *dec) str(what string) string {
	n := d.count(1, "bytes of "+what)
	if d.err != nil {
		return ""
	}
	d.at += n
	return string(d.b[d.at-n : d.at])
}

func (d *dec) bool(what string) bool { return d.upTo(2, what) == 1 }
