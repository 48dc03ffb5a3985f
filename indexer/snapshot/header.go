package snapshot

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math"
	"slices"
	"time"
)

// Format is the version of the container format that this package writes. It
// reads this one and the one before.
const Format = 1

const magic = "kvixsnap"

// Bounds of a header.
const (
	maxHeader = 64 << 10 // bytes
	maxText   = 4 << 10  // bytes of a name, a key or a value
	maxParams = 256
	preamble  = len(magic) + 2 + 4 // what comes before the part of variable length
)

// Meta is what the writer of a snapshot says about it.
type Meta struct {
	Cluster string            // fleet that it is about
	Kind    string            // of the body
	Version uint32            // of the body's encoding
	Params  map[string]string // what the body depends on

	// Complete is how much the writer knows for sure: of how many streams nothing
	// is missing. It is no part of the snapshot: where several write to one place,
	// those that know less do not replace what is by one that knows more. 0 for
	// all: the newest counts.
	Complete int
}

// Header is what a snapshot begins with.
type Header struct {
	Format  uint16
	ID      ID
	Created time.Time // by the writer's clock
	Meta
}

// Info describes a snapshot.
type Info struct {
	Header
	Chunks int
	Bytes  int64  // of the body
	CRC    uint32 // CRC-32C of the body

	// Err is set by List if the header or the trailer cannot be used; then only
	// ID is certain. That chunks are whole shows only when they are read.
	Err error
}

// Expect is what a reader can use. Format versions are checked anyway.
type Expect struct {
	Cluster    string // "": any
	Kind       string
	MinVersion uint32 // of the body
	MaxVersion uint32

	// Params must be the snapshot's, all of them and no others.
	Params map[string]string
}

// Check returns a *RejectedError that names both values if h is not what e
// expects.
func (e Expect) Check(h Header) error {
	differs := func(what, have, want string) error {
		r := Reject(ReasonMismatch, "its %s is %q, not %q", what, have, want)
		r.ID = h.ID
		return r
	}
	if e.Cluster != "" && h.Cluster != e.Cluster {
		return differs("cluster", h.Cluster, e.Cluster)
	}
	if h.Kind != e.Kind {
		return differs("kind", h.Kind, e.Kind)
	}
	if h.Version < e.MinVersion || h.Version > e.MaxVersion {
		r := Reject(ReasonVersion, "its body is version %d of %s, and this program reads %d to %d", h.Version, h.Kind, e.MinVersion, e.MaxVersion)
		r.ID = h.ID
		return r
	}
	for _, k := range slices.Sorted(maps.Keys(e.Params)) {
		if have, ok := h.Params[k]; !ok || have != e.Params[k] {
			return differs("parameter "+k, have, e.Params[k])
		}
	}
	for _, k := range slices.Sorted(maps.Keys(h.Params)) {
		if _, ok := e.Params[k]; !ok {
			r := Reject(ReasonMismatch, "its parameter %s (%q) is not known here", k, h.Params[k])
			r.ID = h.ID
			return r
		}
	}
	return nil
}

// readable says whether a program that writes newest can read format.
func readable(format, newest uint16) bool {
	return format >= 1 && format <= newest && newest-format <= 1
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// encodeHeader returns the bytes of h, with the CRC.
func encodeHeader(h Header) ([]byte, error) {
	b := append(make([]byte, 0, 256), magic...)
	b = binary.LittleEndian.AppendUint16(b, h.Format)
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = append(b, h.ID[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(h.Created.UnixNano()))
	if len(h.Params) > maxParams {
		return nil, fmt.Errorf("cannot write a snapshot with %d parameters: at most %d", len(h.Params), maxParams)
	}
	var long string
	text := func(s string) {
		if len(s) > maxText {
			long = s
			return
		}
		b = binary.LittleEndian.AppendUint16(b, uint16(len(s)))
		b = append(b, s...)
	}
	text(h.Cluster)
	text(h.Kind)
	b = binary.LittleEndian.AppendUint32(b, h.Version)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(h.Params)))
	for _, k := range slices.Sorted(maps.Keys(h.Params)) {
		text(k)
		text(h.Params[k])
	}
	if long != "" {
		return nil, fmt.Errorf("cannot write a snapshot: a name or parameter has %d bytes, at most %d (%.20q...)", len(long), maxText, long)
	}
	if len(b) > maxHeader {
		return nil, fmt.Errorf("cannot write a snapshot: its header has %d bytes, at most %d", len(b), maxHeader)
	}
	binary.LittleEndian.PutUint32(b[preamble-4:], uint32(len(b)-preamble))
	return binary.LittleEndian.AppendUint32(b, checksum(b)), nil
}

// readHeader reads a header and returns its bytes, too.
func readHeader(r io.Reader) (Header, []byte, error) {
	b := make([]byte, preamble, 256)
	if err := readFull(r, b); err != nil {
		return Header{}, nil, err
	}
	if string(b[:len(magic)]) != magic {
		return Header{}, nil, Reject(ReasonMagic, "it begins with %q", b[:len(magic)])
	}
	format := binary.LittleEndian.Uint16(b[len(magic):])
	n := int64(binary.LittleEndian.Uint32(b[preamble-4:]))
	if !readable(format, Format) {
		return Header{}, nil, Reject(ReasonVersion, "it has format %d, and this program reads up to %d", format, Format)
	}
	if n > maxHeader {
		return Header{}, nil, Reject(ReasonMalformed, "its header has %d bytes", n)
	}
	b = slices.Grow(b, int(n)+4)[:preamble+int(n)+4]
	if err := readFull(r, b[preamble:]); err != nil {
		return Header{}, nil, err
	}
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if checksum(body) != sum {
		return Header{}, nil, Reject(ReasonCRC, "in the header")
	}
	h, err := decodeHeader(body[preamble:])
	if err != nil {
		return Header{}, nil, err
	}
	h.Format = format
	return h, b, nil
}

// decodeHeader reads what follows the preamble. It accepts only what
// encodeHeader writes.
func decodeHeader(b []byte) (Header, error) {
	var h Header
	ok := true
	take := func(n int) []byte {
		if len(b) < n {
			ok, b = false, nil
			return make([]byte, min(n, 16)) // of zeros; texts are not taken then
		}
		p := b[:n]
		b = b[n:]
		return p
	}
	text := func() string {
		n := int(binary.LittleEndian.Uint16(take(2)))
		if n > maxText || n > len(b) {
			ok, b = false, nil
			return ""
		}
		return string(take(n))
	}
	copy(h.ID[:], take(16))
	if created := binary.LittleEndian.Uint64(take(8)); created <= math.MaxInt64 {
		h.Created = time.Unix(0, int64(created)).UTC()
	} else {
		ok = false
	}
	h.Cluster, h.Kind = text(), text()
	h.Version = binary.LittleEndian.Uint32(take(4))
	n := int(binary.LittleEndian.Uint16(take(2)))
	if !ok || n > maxParams {
		return h, Reject(ReasonMalformed, "in the header")
	}
	h.Params = make(map[string]string, n)
	for last, i := "", 0; i < n && ok; i++ {
		k, v := text(), text()
		if i > 0 && k <= last {
			return h, Reject(ReasonMalformed, "parameters are not sorted: %q after %q", k, last)
		}
		h.Params[k], last = v, k
	}
	if !ok || len(b) > 0 {
		return h, Reject(ReasonMalformed, "in the header")
	}
	return h, nil
}

// readFull fills b; an early end is a rejection, any other error is the
// reader's.
func readFull(r io.Reader, b []byte) error {
	n, err := io.ReadFull(r, b)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return Reject(ReasonTruncated, "%d bytes of %d are there", n, len(b))
	}
	return err
}

func updateCRC(crc uint32, b []byte) uint32 { return crc32.Update(crc, castagnoli, b) }
