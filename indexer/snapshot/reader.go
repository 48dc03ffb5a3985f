package snapshot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
)

// Limits bound what a reader accepts.
type Limits struct {
	MaxBytes int64 // of the body; 0: DefaultMaxBytes
}

// DefaultMaxBytes is how large a body may be if Limits say nothing.
const DefaultMaxBytes = 64 << 30

func (l Limits) chunks() int64 {
	return (l.bytes() + ChunkSize - 1) / ChunkSize
}

func (l Limits) bytes() int64 {
	if l.MaxBytes <= 0 {
		return DefaultMaxBytes
	}
	return l.MaxBytes
}

// MaxManifest is how many bytes a manifest has at most.
func (l Limits) MaxManifest() int64 {
	return int64(preamble) + maxHeader + 4 + trailerHead + 4*l.chunks() + trailerTail
}

// Reader reads the body of one snapshot. It hands out only bytes of chunks that
// have been verified, but whether the snapshot is whole is known only when Close
// has returned nil: until then what was read must not be put to use. It is used
// by one goroutine at a time and needs memory for one chunk.
type Reader struct {
	header Header
	source chunkSource
	limit  int64
	size   int64  // of the body, about, if it is known
	chunk  []byte // what is left of the current one
	seen   tally
	done   bool  // the end has been verified
	err    error // the first one; it stays
	close  func() error
}

// chunkSource is where chunks come from.
type chunkSource interface {
	// next returns chunk n and its announced CRC, or io.EOF.
	next(n int) (chunk []byte, crc uint32, err error)
	// end compares what was seen with what was announced.
	end(seen tally) error
}

// NewReader reads a snapshot from a stream, the header at once. If r is an
// io.Closer, Close closes it; if NewReader fails, the caller does.
func NewReader(r io.Reader, l Limits) (*Reader, error) {
	h, raw, err := readHeader(r)
	if err != nil {
		return nil, err
	}
	sr := &Reader{header: h, limit: l.bytes(), source: &stream{r: r, header: raw}}
	if c, ok := r.(io.Closer); ok {
		sr.close = c.Close
	}
	return sr, nil
}

// NewChunkReader reads a snapshot whose chunks are apart. get returns chunk n,
// which must have size bytes (a store may return fewer, or one more, to show
// that it has not); what it returns need be valid only until the next call.
func NewChunkReader(manifest []byte, l Limits, get func(n, size int) ([]byte, error)) (*Reader, error) {
	h, t, err := decodeManifest(manifest, l)
	if err != nil {
		return nil, err
	}
	return &Reader{header: h, limit: l.bytes(), size: t.bytes, source: &apart{said: t, get: get}}, nil
}

func decodeManifest(b []byte, l Limits) (Header, tally, error) {
	if int64(len(b)) > l.MaxManifest() {
		return Header{}, tally{}, Reject(ReasonTooLarge, "its manifest has %d bytes", len(b))
	}
	r := bytes.NewReader(b)
	h, raw, err := readHeader(r)
	if err != nil {
		return Header{}, tally{}, err
	}
	t, err := decodeTrailer(b[len(raw):], raw)
	if err == nil && t.bytes > l.bytes() {
		err = tooLarge(t.bytes, l.bytes())
	}
	return h, t, WithID(err, h.ID)
}

// DecodeManifest returns what a manifest says.
func DecodeManifest(b []byte, l Limits) (Info, error) {
	h, t, err := decodeManifest(b, l)
	return Info{Header: h, Chunks: len(t.crcs), Bytes: t.bytes, CRC: t.crc}, err
}

func tooLarge(have, limit int64) error {
	return Reject(ReasonTooLarge, "its body has %d bytes or more, and the limit is %d", have, limit)
}

// Size returns how many bytes the body has, about; 0 if that is not known. It is
// for people who wait.
func (r *Reader) Size() int64 { return r.size }

// Announce sets what Size returns, for a store that knows it.
func (r *Reader) Announce(bytes int64) { r.size = bytes }

// Header returns what the snapshot begins with.
func (r *Reader) Header() Header { return r.header }

// Info returns what is known of the snapshot; of a stream, sizes are known
// after Close.
func (r *Reader) Info() Info {
	return Info{Header: r.header, Chunks: len(r.seen.crcs), Bytes: r.seen.bytes, CRC: r.seen.crc}
}

// Read implements io.Reader. It returns io.EOF only when the whole has been
// verified, and a *RejectedError or the store's error otherwise.
func (r *Reader) Read(p []byte) (int, error) {
	for len(r.chunk) == 0 {
		if r.done {
			return 0, io.EOF
		}
		if r.err != nil {
			return 0, r.err
		}
		if len(p) == 0 {
			return 0, nil
		}
		r.advance()
	}
	n := copy(p, r.chunk)
	r.chunk = r.chunk[n:]
	return n, nil
}

// advance brings the next chunk, or finds the end.
func (r *Reader) advance() {
	n := len(r.seen.crcs)
	chunk, crc, err := r.source.next(n)
	switch {
	case err == io.EOF: //nolint:errorlint // a source's own end, never wrapped
		err = r.source.end(r.seen)
		r.done = err == nil
	case err != nil:
	case r.seen.bytes != int64(n)*ChunkSize:
		err = Reject(ReasonMalformed, "chunk %d follows a short one", n)
	case r.seen.bytes+int64(len(chunk)) > r.limit:
		err = tooLarge(r.seen.bytes+int64(len(chunk)), r.limit)
	case checksum(chunk) != crc:
		err = Reject(ReasonCRC, "of chunk %d", n)
	default:
		r.seen.add(chunk, crc)
		r.chunk = chunk
		return
	}
	r.err = WithID(err, r.header.ID)
}

// Close ends reading. It returns nil only if the whole body has been read and
// verified; bytes that were not read are an error. It may be called more than
// once.
func (r *Reader) Close() error {
	if !r.done && r.err == nil && len(r.chunk) == 0 {
		r.advance() // a decoder that knows its end has not seen ours
	}
	if len(r.chunk) > 0 && r.err == nil {
		r.err = WithID(Reject(ReasonUnread, "%d bytes of chunk %d, at least", len(r.chunk), len(r.seen.crcs)-1), r.header.ID)
	}
	r.chunk = nil
	if r.close != nil {
		err := r.close()
		r.close = nil
		if r.err == nil && err != nil {
			r.err, r.done = err, false
		}
	}
	return r.err
}

// stream is the chunks of a stream.
type stream struct {
	r      io.Reader
	header []byte
	buf    []byte
}

func (s *stream) next(n int) ([]byte, uint32, error) {
	var frame [8]byte
	if err := readFull(s.r, frame[:4]); err != nil {
		return nil, 0, err
	}
	size := binary.LittleEndian.Uint32(frame[:])
	if size == 0 {
		return nil, 0, io.EOF
	}
	if size > ChunkSize {
		return nil, 0, Reject(ReasonMalformed, "chunk %d has %d bytes", n, size)
	}
	if err := readFull(s.r, frame[4:]); err != nil {
		return nil, 0, err
	}
	if s.buf == nil {
		s.buf = make([]byte, ChunkSize)
	}
	b := s.buf[:size]
	return b, binary.LittleEndian.Uint32(frame[4:]), readFull(s.r, b)
}

func (s *stream) end(seen tally) error {
	if err := readTrailer(s.r, s.header, seen); err != nil {
		return err
	}
	var more [1]byte
	switch _, err := io.ReadFull(s.r, more[:]); {
	case err == nil:
		return Reject(ReasonTrailing, "after its trailer")
	case errors.Is(err, io.EOF):
		return nil
	default:
		return err
	}
}

// apart is chunks that are announced by a manifest.
type apart struct {
	said tally
	get  func(n, size int) ([]byte, error)
}

func (a *apart) next(n int) ([]byte, uint32, error) {
	if n >= len(a.said.crcs) {
		return nil, 0, io.EOF
	}
	size := int(min(ChunkSize, a.said.bytes-int64(n)*ChunkSize))
	chunk, err := a.get(n, size)
	if err == nil && len(chunk) != size {
		err = Reject(ReasonCount, "chunk %d has %d bytes and not %d", n, len(chunk), size)
	}
	return chunk, a.said.crcs[n], err
}

func (a *apart) end(seen tally) error { return a.said.compare(seen) }

// Decode reads a body and builds aside what it says. It must change nothing that
// others see: that is for commit, which is called only if the snapshot proves to
// be whole. It reads to the end of the body, or at least all of it.
type Decode func(h Header, body io.Reader) (commit func(), err error)

// Restore reads r, if it is as expected, with decode, closes it, and commits if
// it was whole. After an error nothing has been changed.
func Restore(r *Reader, want Expect, decode Decode) (Info, error) {
	if err := want.Check(r.header); err != nil {
		r.err = err // so that Close reads nothing more
		return r.Info(), r.Close()
	}
	commit, err := decode(r.header, r)
	if err != nil && r.err == nil { // else the reader's error is behind it
		r.err = &RejectedError{Reason: ReasonBody, ID: r.header.ID, Err: err}
	}
	if err := r.Close(); err != nil {
		return r.Info(), err
	}
	if commit != nil {
		commit()
	}
	return r.Info(), nil
}
