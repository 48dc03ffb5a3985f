package snapshot

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// Writer turns a body into chunks. It needs memory for one chunk. It is used by
// one goroutine at a time.
type Writer struct {
	header  []byte
	info    Info
	put     func(n int, chunk []byte, crc uint32) error
	trailer func([]byte) error
	buf     []byte // the chunk that is being filled
	seen    tally
	err     error // the first one; it stays
}

var errFinished = errors.New("cannot write to a finished snapshot")

// NewHeader returns the header of a snapshot that begins now.
func NewHeader(id ID, now time.Time, m Meta) Header {
	return Header{Format: Format, ID: id, Created: now, Meta: m}
}

// NewWriter writes a snapshot to w as a stream. The header is written at once.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	all := func(b []byte) error {
		n, err := w.Write(b)
		if err == nil && n < len(b) {
			err = io.ErrShortWrite
		}
		return err
	}
	sw, err := newWriter(h)
	if err != nil {
		return nil, err
	}
	sw.put = func(_ int, chunk []byte, crc uint32) error {
		var frame [8]byte
		binary.LittleEndian.PutUint32(frame[:], uint32(len(chunk)))
		binary.LittleEndian.PutUint32(frame[4:], crc)
		if err := all(frame[:]); err != nil {
			return err
		}
		return all(chunk)
	}
	sw.trailer = all
	return sw, all(sw.header)
}

// NewChunkWriter passes each chunk to put, numbered from 0, for stores that keep
// chunks apart. The bytes are valid during the call only. What Finish returns is
// to be stored after them.
func NewChunkWriter(h Header, put func(n int, chunk []byte) error) (*Writer, error) {
	w, err := newWriter(h)
	if err != nil {
		return nil, err
	}
	w.put = func(n int, chunk []byte, _ uint32) error { return put(n, chunk) }
	w.trailer = func([]byte) error { return nil }
	return w, nil
}

func newWriter(h Header) (*Writer, error) {
	b, err := encodeHeader(h)
	return &Writer{header: b, info: Info{Header: h}}, err
}

// Write implements io.Writer. After an error, every further call returns it.
func (w *Writer) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 && w.err == nil {
		if len(w.buf) == 0 && len(p) >= ChunkSize {
			w.chunk(p[:ChunkSize])
			p = p[ChunkSize:]
			continue
		}
		if w.buf == nil {
			w.buf = make([]byte, 0, ChunkSize)
		}
		k := min(len(p), ChunkSize-len(w.buf))
		w.buf = append(w.buf, p[:k]...)
		p = p[k:]
		if len(w.buf) == ChunkSize {
			w.chunk(w.buf)
			w.buf = w.buf[:0]
		}
	}
	return n - len(p), w.err
}

func (w *Writer) chunk(b []byte) {
	crc := checksum(b)
	if w.err = w.put(len(w.seen.crcs), b, crc); w.err == nil {
		w.seen.add(b, crc)
	}
}

func (t *tally) add(chunk []byte, crc uint32) {
	t.bytes += int64(len(chunk))
	t.crc = updateCRC(t.crc, chunk)
	t.crcs = append(t.crcs, crc)
}

// Finish writes what is left and returns the description of the snapshot and
// its manifest. A snapshot that was not finished is rejected by every reader.
func (w *Writer) Finish() (Info, []byte, error) {
	if w.err == nil && len(w.buf) > 0 {
		w.chunk(w.buf)
	}
	if w.err != nil {
		return Info{}, nil, w.err
	}
	m := appendTrailer(w.header, w.header, w.seen)
	if w.err = w.trailer(m[len(w.header):]); w.err != nil {
		return Info{}, nil, w.err
	}
	w.err = errFinished
	w.info.Chunks, w.info.Bytes, w.info.CRC = len(w.seen.crcs), w.seen.bytes, w.seen.crc
	return w.info, m, nil
}

// Fill writes the body with write, finishes, and returns what Finish returns. It
// fails when ctx ends.
func (w *Writer) Fill(ctx context.Context, write func(io.Writer) error) (Info, []byte, error) {
	if err := write(contextWriter{ctx, w}); err != nil {
		if w.err == nil && ctx.Err() == nil { // it is the body's own
			err = fmt.Errorf("cannot make the snapshot's body: %w", err)
		}
		return Info{}, nil, err
	}
	return w.Finish()
}

// contextWriter ends writing when its context ends.
type contextWriter struct {
	ctx context.Context // of one call to Fill: io.Writer has no place for it
	w   io.Writer
}

func (c contextWriter) Write(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.w.Write(p)
}
