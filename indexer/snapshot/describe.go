package snapshot

import (
	"encoding/binary"
	"io"
)

// Describe reads header and trailer of a snapshot that is kept as a stream of
// size bytes, and nothing of its chunks: that those are whole shows only when
// they are read. After an error, Info has what is known nevertheless.
func Describe(f io.ReaderAt, size int64, l Limits) (Info, error) {
	h, raw, err := readHeader(io.NewSectionReader(f, 0, size))
	info := Info{Header: h}
	if err != nil {
		return info, err
	}
	trailer, err := readLastTrailer(f, size, int64(len(raw)), l)
	if err != nil {
		return info, WithID(err, h.ID)
	}
	t, err := decodeTrailer(trailer, raw)
	if err != nil {
		return info, WithID(err, h.ID)
	}
	info.Chunks, info.Bytes, info.CRC = len(t.crcs), t.bytes, t.crc
	if want := int64(len(raw)) + 8*int64(len(t.crcs)) + t.bytes + int64(len(trailer)); size != want {
		return info, WithID(Reject(ReasonCount, "it has %d bytes and not %d", size, want), h.ID)
	}
	return info, nil
}

// readLastTrailer finds the trailer by the length at its end.
func readLastTrailer(f io.ReaderAt, size, header int64, l Limits) ([]byte, error) {
	var tail [trailerTail]byte
	if size < header+trailerHead+trailerTail {
		return nil, Reject(ReasonTruncated, "it has %d bytes", size)
	}
	if err := readFull(io.NewSectionReader(f, size-trailerTail, trailerTail), tail[:]); err != nil {
		return nil, err
	}
	n := int64(binary.LittleEndian.Uint32(tail[:])) + 4
	if n < trailerHead+trailerTail || n > size-header || n > l.MaxManifest() {
		return nil, Reject(ReasonTruncated, "it does not end with a trailer")
	}
	b := make([]byte, n)
	return b, readFull(io.NewSectionReader(f, size-n, n), b)
}
