package snapshot

import (
	"encoding/binary"
	"io"
	"slices"
)

// ChunkSize is how many bytes of the body each chunk has, but the last.
const ChunkSize = 1 << 20

const (
	trailerHead = 4 + 4 + 8 + 4 // end marker, chunks, bytes, CRC
	trailerTail = 4 + 4         // length, CRC
)

// tally is what writer and reader count: the trailer says it.
type tally struct {
	bytes int64
	crc   uint32   // of the body
	crcs  []uint32 // of the chunks
}

// appendTrailer appends the trailer that belongs to the given header.
func appendTrailer(dst, header []byte, t tally) []byte {
	begin := len(dst)
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(t.crcs)))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(t.bytes))
	dst = binary.LittleEndian.AppendUint32(dst, t.crc)
	for _, c := range t.crcs {
		dst = binary.LittleEndian.AppendUint32(dst, c)
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(dst)-begin+4))
	return binary.LittleEndian.AppendUint32(dst, crcOfBoth(header, dst[begin:]))
}

func crcOfBoth(header, trailer []byte) uint32 {
	// Neither can be exchanged for that of another snapshot. (The header's own CRC
	// must stay out: with it the CRC of every header would be the same.)
	return updateCRC(checksum(header[:len(header)-4]), trailer)
}

// decodeTrailer reads a whole trailer, as appendTrailer writes it. The caller
// has bounded its length.
func decodeTrailer(b, header []byte) (tally, error) {
	var t tally
	if len(b) < trailerHead+trailerTail {
		return t, Reject(ReasonTruncated, "its trailer has %d bytes", len(b))
	}
	end := len(b) - 4
	if crcOfBoth(header, b[:end]) != binary.LittleEndian.Uint32(b[end:]) {
		return t, Reject(ReasonCRC, "in the manifest")
	}
	n := (len(b) - trailerHead - trailerTail) / 4
	bytes := binary.LittleEndian.Uint64(b[8:])
	if binary.LittleEndian.Uint32(b) != 0 || int64(binary.LittleEndian.Uint32(b[4:])) != int64(n) ||
		len(b) != trailerHead+4*n+trailerTail || int(binary.LittleEndian.Uint32(b[end-4:])) != end ||
		bytes > uint64(n)*ChunkSize || n > 0 && bytes <= uint64(n-1)*ChunkSize {
		return t, Reject(ReasonMalformed, "%d chunks for %d bytes, in a trailer of %d", binary.LittleEndian.Uint32(b[4:]), bytes, len(b))
	}
	t.bytes = int64(bytes)
	t.crc = binary.LittleEndian.Uint32(b[16:])
	t.crcs = make([]uint32, n)
	for i := range t.crcs {
		t.crcs[i] = binary.LittleEndian.Uint32(b[trailerHead+4*i:])
	}
	return t, nil
}

// readTrailer reads the trailer of a stream, but for the end marker, which the
// caller has read. What it must say is known: seen.
func readTrailer(r io.Reader, header []byte, seen tally) error {
	b := make([]byte, trailerHead, trailerHead+4*len(seen.crcs)+trailerTail)
	if err := readFull(r, b[4:]); err != nil {
		return err
	}
	if n := binary.LittleEndian.Uint32(b[4:]); int64(n) != int64(len(seen.crcs)) {
		return Reject(ReasonCount, "%d chunks are announced and %d are there", n, len(seen.crcs))
	}
	b = b[:cap(b)]
	if err := readFull(r, b[trailerHead:]); err != nil {
		return err
	}
	said, err := decodeTrailer(b, header)
	if err != nil {
		return err
	}
	return said.compare(seen)
}

// compare reports how what was read differs from what t says.
func (t tally) compare(seen tally) error {
	if len(t.crcs) != len(seen.crcs) {
		return Reject(ReasonCount, "%d chunks are announced and %d are there", len(t.crcs), len(seen.crcs))
	}
	if t.bytes != seen.bytes {
		return Reject(ReasonCount, "%d bytes are announced and %d are there", t.bytes, seen.bytes)
	}
	if i := firstDifference(t.crcs, seen.crcs); i >= 0 {
		return Reject(ReasonCRC, "chunk %d is not the one that was written", i)
	}
	if t.crc != seen.crc {
		return Reject(ReasonCRC, "of the whole body")
	}
	return nil
}

func firstDifference(a, b []uint32) int {
	if slices.Equal(a, b) {
		return -1
	}
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return len(a)
}
