package snapshot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
)

func TestRoundTrip(t *testing.T) {
	for _, n := range []int{0, 1, 1000, ChunkSize - 1, ChunkSize, ChunkSize + 1, 3*ChunkSize + 17} {
		body := noise(n)
		b, info := encode(t, testHeader(), body)
		want(t, "info", info, Info{Header: testHeader(), Chunks: (n + ChunkSize - 1) / ChunkSize, Bytes: int64(n), CRC: checksum(body)})
		got, err := decode(b, Limits{})
		ok(t, err)
		if !bytes.Equal(got, body) {
			t.Errorf("%d bytes come back as %d others", n, len(got))
		}
		described, err := Describe(bytes.NewReader(b), int64(len(b)), Limits{})
		ok(t, err)
		want(t, "description", described, info)

		p := encodeApart(t, testHeader(), body)
		got, err = p.read(Limits{})
		ok(t, err)
		if !bytes.Equal(got, body) {
			t.Errorf("%d bytes come back as %d others", n, len(got))
		}
		described, err = DecodeManifest(p.manifest, Limits{})
		ok(t, err)
		want(t, "description", described, info)
	}
}

// TestSmallWritesAndReads: how the body is cut does not show.
func TestSmallWritesAndReads(t *testing.T) {
	body := noise(2*ChunkSize + 5000)
	whole, _ := encode(t, testHeader(), body)
	var b bytes.Buffer
	w, err := NewWriter(&b, testHeader())
	ok(t, err)
	for rest := body; len(rest) > 0; {
		n := min(len(rest), 777)
		_, err := w.Write(rest[:n])
		ok(t, err)
		rest = rest[n:]
	}
	_, _, err = w.Finish()
	ok(t, err)
	if !bytes.Equal(b.Bytes(), whole) {
		t.Error("the snapshot depends on how its body was written")
	}
	if _, err := w.Write([]byte{1}); !errors.Is(err, errFinished) {
		t.Errorf("written after its end: %v", err)
	}
	r, err := NewReader(iotest.HalfReader(&b), Limits{})
	ok(t, err)
	got, err := io.ReadAll(iotest.DataErrReader(iotest.HalfReader(r)))
	ok(t, err, r.Close())
	if !bytes.Equal(got, body) {
		t.Error("another body comes back")
	}
}

// TestGolden: a snapshot that an earlier version wrote can be read, and
// nothing changes the format unnoticed.
func TestGolden(t *testing.T) {
	const file = "testdata/format-1.snapshot"
	body := []byte("a body, in one chunk")
	b, _ := encode(t, testHeader(), body)
	if os.Getenv("KVINDEX_GOLDEN") != "" {
		ok(t, os.MkdirAll("testdata", 0o755), os.WriteFile(file, b, 0o600))
	}
	kept, err := os.ReadFile(file)
	ok(t, err)
	if !bytes.Equal(b, kept) {
		t.Errorf("written now:\n%q\nkept:\n%q", b, kept)
	}
	got, err := decode(kept, Limits{})
	ok(t, err)
	want(t, "body", string(got), string(body))
}

// TestFlippedBytes: every byte of a small snapshot that has changed is noticed,
// with a reason.
func TestFlippedBytes(t *testing.T) {
	body := noise(300)
	b, _ := encode(t, testHeader(), body)
	p := encodeApart(t, testHeader(), body)
	reasons := map[Reason]int{}
	f := func(what string, i int, read func() ([]byte, error)) {
		t.Helper()
		_, err := read()
		wantReason(t, fmt.Sprintf("byte %d of the %s", i, what), err, "")
		reasons[ReasonOf(err)]++
	}
	each := func(what string, b []byte, read func() ([]byte, error)) {
		for i := range b {
			for _, flip := range []byte{1, 2, 4, 8, 16, 32, 64, 128, 255} {
				b[i] ^= flip
				f(what, i, read)
				b[i] ^= flip
			}
		}
		_, err := read()
		ok(t, err)
	}
	each("stream", b, func() ([]byte, error) { return decode(b, Limits{}) })
	each("manifest", p.manifest, func() ([]byte, error) { return p.read(Limits{}) })
	each("chunk", p.chunks[0], func() ([]byte, error) { return p.read(Limits{}) })
	t.Log(reasons)
}

func TestTruncated(t *testing.T) {
	b, _ := encode(t, testHeader(), noise(300))
	for i := range b {
		_, err := decode(b[:i], Limits{})
		wantReason(t, fmt.Sprintf("%d bytes of %d", i, len(b)), err, ReasonTruncated)
		_, err = Describe(bytes.NewReader(b[:i]), int64(i), Limits{})
		wantReason(t, fmt.Sprintf("%d bytes of %d, described", i, len(b)), err, "")
	}
	p := encodeApart(t, testHeader(), noise(300))
	for i := range p.manifest {
		_, err := parts{p.manifest[:i], p.chunks}.read(Limits{})
		wantReason(t, fmt.Sprintf("%d bytes of a manifest of %d", i, len(p.manifest)), err, "")
	}
}

func TestRejections(t *testing.T) {
	body := noise(2*ChunkSize + 10)
	stream := func(change func([]byte) []byte) error {
		b, _ := encode(t, testHeader(), body)
		_, err := decode(change(b), Limits{})
		return err
	}
	apart := func(change func(*parts)) error {
		p := encodeApart(t, testHeader(), body)
		change(&p)
		_, err := p.read(Limits{})
		return err
	}
	other := encodeApart(t, testHeader(), noise(3*ChunkSize))
	f := func(what string, err error, reason Reason) { t.Helper(); wantReason(t, what, err, reason) }
	f("text", stream(func([]byte) []byte { return []byte("<!doctype html><html></html>") }), ReasonMagic)
	f("newer", stream(func(b []byte) []byte { b[len(magic)]++; return b }), ReasonVersion)
	f("trailing", stream(func(b []byte) []byte { return append(b, 0) }), ReasonTrailing)
	f("huge header", stream(func(b []byte) []byte { binary.LittleEndian.PutUint32(b[preamble-4:], 1<<31); return b }), ReasonMalformed)
	f("missing chunk", apart(func(p *parts) { p.chunks = p.chunks[:2] }), ReasonMissing)
	f("short chunk", apart(func(p *parts) { p.chunks[1] = p.chunks[1][1:] }), ReasonCount)
	f("long chunk", apart(func(p *parts) { p.chunks[2] = append(p.chunks[2], 0) }), ReasonCount)
	f("exchanged chunks", apart(func(p *parts) { p.chunks[0], p.chunks[1] = p.chunks[1], p.chunks[0] }), ReasonCRC)
	f("chunk of another", apart(func(p *parts) { p.chunks[1] = noise(ChunkSize) }), ReasonCRC)
	f("manifest of another", apart(func(p *parts) { p.manifest = other.manifest }), ReasonCount)
	f("trailer of another", apart(func(p *parts) {
		head := len(p.manifest) - trailerHead - 3*4 - trailerTail
		h2 := testHeader()
		h2.Cluster = "red"
		o := encodeApart(t, h2, body)
		p.manifest = append(p.manifest[:head], o.manifest[len(o.manifest)-trailerHead-3*4-trailerTail:]...)
	}), ReasonCRC)
	b, _ := encode(t, testHeader(), body)
	_, err := decode(b, Limits{MaxBytes: ChunkSize})
	f("large stream", err, ReasonTooLarge)
	_, err = encodeApart(t, testHeader(), body).read(Limits{MaxBytes: 2 * ChunkSize})
	f("large manifest", err, ReasonTooLarge)
}

func TestReadableFormats(t *testing.T) {
	f := func(format, newest uint16, ok bool) {
		t.Helper()
		want(t, fmt.Sprintf("format %d for a reader of %d", format, newest), readable(format, newest), ok)
	}
	f(0, 1, false)
	f(1, 1, true)
	f(2, 1, false)
	f(1, 2, true)
	f(2, 2, true)
	f(1, 3, false)
	f(65535, 1, false)
}

func TestExpect(t *testing.T) {
	f := func(change func(*Header), reason Reason, values ...string) {
		t.Helper()
		h := testHeader()
		change(&h)
		err := testExpect().Check(h)
		if reason == "" {
			ok(t, err)
			return
		}
		wantReason(t, "header", err, reason)
		for _, v := range values {
			if err != nil && !strings.Contains(err.Error(), v) {
				t.Errorf("%q does not name %s", err, v)
			}
		}
	}
	f(func(*Header) {}, "")
	f(func(h *Header) { h.Version = 2 }, "")
	f(func(h *Header) { h.Version = 1 }, ReasonVersion, "version 1", "2 to 3")
	f(func(h *Header) { h.Version = 4 }, ReasonVersion)
	f(func(h *Header) { h.Kind = "other" }, ReasonMismatch, `"other"`, `"index"`)
	f(func(h *Header) { h.Cluster = "red" }, ReasonMismatch, `"red"`, `"blue"`)
	f(func(h *Header) { h.Params["seed"] = "42" }, ReasonMismatch, "seed", `"42"`, `"1337"`)
	f(func(h *Header) { delete(h.Params, "seed") }, ReasonMismatch, "seed", `"1337"`)
	f(func(h *Header) { h.Params["more"] = "x" }, ReasonMismatch, "more", `"x"`)
}

func TestHeaderBounds(t *testing.T) {
	f := func(m Meta) {
		t.Helper()
		if _, err := NewWriter(io.Discard, NewHeader(ID{}, testHeader().Created, m)); err == nil {
			t.Error("a header beyond the bounds is written")
		}
	}
	f(Meta{Cluster: strings.Repeat("x", maxText+1)})
	many := map[string]string{}
	for i := range maxParams + 1 {
		many[fmt.Sprint(i)] = ""
	}
	f(Meta{Params: many})
	large := map[string]string{}
	for i := range 20 {
		large[fmt.Sprint(i)] = strings.Repeat("x", maxText)
	}
	f(Meta{Params: large})
}

func TestRestore(t *testing.T) {
	body := noise(ChunkSize + 10)
	b, _ := encode(t, testHeader(), body)
	f := func(change func([]byte), want Expect, decode func(io.Reader) error) (committed bool, err error) {
		b := bytes.Clone(b)
		change(b)
		r, err := NewReader(bytes.NewReader(b), Limits{})
		ok(t, err)
		_, err = Restore(r, want, func(_ Header, body io.Reader) (func(), error) {
			return func() { committed = true }, decode(body)
		})
		return committed, err
	}
	unchanged := func([]byte) {}
	all := func(r io.Reader) error { _, err := io.Copy(io.Discard, r); return err }
	exactly := func(r io.Reader) error { _, err := io.ReadFull(r, make([]byte, len(body))); return err }
	some := func(r io.Reader) error { _, err := io.ReadFull(r, make([]byte, 10)); return err }
	forgetful := func(r io.Reader) error { _, _ = io.Copy(io.Discard, r); return nil }
	check := func(what string, committed bool, err error, reason Reason) {
		t.Helper()
		want(t, what+" committed", committed, reason == "")
		if reason != "" {
			wantReason(t, what, err, reason)
		} else {
			ok(t, err)
		}
	}
	got, err := f(unchanged, testExpect(), all)
	check("whole", got, err, "")
	got, err = f(unchanged, testExpect(), exactly)
	check("whole, without its EOF", got, err, "")
	got, err = f(unchanged, testExpect(), some)
	check("a part", got, err, ReasonUnread)
	got, err = f(unchanged, testExpect(), func(io.Reader) error { return errors.New("no such record") })
	check("not decoded", got, err, ReasonBody)
	got, err = f(unchanged, Expect{Kind: "other"}, all)
	check("not expected", got, err, ReasonMismatch)
	for _, decode := range []func(io.Reader) error{all, exactly, forgetful} {
		got, err = f(func(b []byte) { b[len(b)-1]++ }, testExpect(), decode)
		check("with another end", got, err, ReasonCRC)
	}
	got, err = f(func(b []byte) { b[len(b)-500]++ }, testExpect(), all)
	check("truncated at its end", got, err, ReasonCRC)
}

// TestMemoryAllocs: neither side needs memory in proportion to the body.
func TestMemoryAllocs(t *testing.T) {
	piece := noise(100_000)
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	go func() {
		w, err := NewWriter(pw, testHeader())
		for i := 0; i < 640 && err == nil; i++ {
			_, err = w.Write(piece)
		}
		_, _, ferr := w.Finish()
		done <- errors.Join(err, ferr, pw.Close())
	}()
	r, err := NewReader(pr, Limits{})
	ok(t, err)
	n, err := io.Copy(io.Discard, r)
	ok(t, err, r.Close(), <-done)
	runtime.ReadMemStats(&after)
	want(t, "bytes", n, int64(640*len(piece)))
	if used := after.TotalAlloc - before.TotalAlloc; used > 4<<20 {
		t.Errorf("%d bytes allocated for %d", used, n)
	}
}

func BenchmarkWriter(b *testing.B) {
	piece := noise(64 << 10)
	b.SetBytes(100 << 20)
	for b.Loop() {
		w, err := NewWriter(io.Discard, testHeader())
		ok(b, err)
		for range 1600 {
			_, _ = w.Write(piece)
		}
		_, _, err = w.Finish()
		ok(b, err)
	}
}

func BenchmarkReader(b *testing.B) {
	stream, _ := encode(b, testHeader(), noise(100<<20))
	b.SetBytes(100 << 20)
	for b.Loop() {
		r, err := NewReader(bytes.NewReader(stream), Limits{})
		ok(b, err)
		_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, r, make([]byte, 64<<10))
		ok(b, err, r.Close())
	}
}
