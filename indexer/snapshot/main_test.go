package snapshot

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func want[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func ok(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// testMeta is what most tests write.
func testMeta() Meta {
	return Meta{Cluster: "blue", Kind: "index", Version: 3, Params: map[string]string{"seed": "1337", "duplicates": "refcount"}}
}

func testExpect() Expect {
	m := testMeta()
	return Expect{Cluster: m.Cluster, Kind: m.Kind, MinVersion: 2, MaxVersion: 3, Params: m.Params}
}

func testHeader() Header {
	var id ID
	copy(id[:], "0123456789abcdef")
	return NewHeader(id, time.Unix(1_700_000_000, 123).UTC(), testMeta())
}

// noise is n bytes that do not compress.
func noise(n int) []byte {
	b := make([]byte, n)
	var seed [32]byte
	_, _ = rand.NewChaCha8(seed).Read(b)
	return b
}

// encode writes body as a stream.
func encode(t testing.TB, h Header, body []byte) ([]byte, Info) {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, h)
	ok(t, err)
	_, err = w.Write(body)
	ok(t, err)
	info, _, err := w.Finish()
	ok(t, err)
	return b.Bytes(), info
}

// parts is a snapshot whose chunks are apart.
type parts struct {
	manifest []byte
	chunks   [][]byte
}

func encodeApart(t testing.TB, h Header, body []byte) parts {
	t.Helper()
	var p parts
	w, err := NewChunkWriter(h, func(n int, chunk []byte) error {
		want(t, "number of the chunk", n, len(p.chunks))
		p.chunks = append(p.chunks, bytes.Clone(chunk))
		return nil
	})
	ok(t, err)
	_, err = w.Write(body)
	ok(t, err)
	_, p.manifest, err = w.Finish()
	ok(t, err)
	return p
}

func (p parts) read(l Limits) ([]byte, error) {
	r, err := NewChunkReader(p.manifest, l, func(n, _ int) ([]byte, error) {
		if n >= len(p.chunks) {
			return nil, Reject(ReasonMissing, "chunk %d", n)
		}
		return p.chunks[n], nil
	})
	return readAll(r, err)
}

func decode(b []byte, l Limits) ([]byte, error) {
	r, err := NewReader(bytes.NewReader(b), l)
	return readAll(r, err)
}

func readAll(r *Reader, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(r)
	return body, errors.Join(err, r.Close())
}

// wantReason checks why something was rejected; "" is: at all.
func wantReason(t testing.TB, what string, err error, reason Reason) {
	t.Helper()
	var r *RejectedError
	switch {
	case !errors.As(err, &r):
		t.Errorf("%s: %v is no rejection", what, err)
	case reason != "" && r.Reason != reason:
		t.Errorf("%s: %v, want reason %s", what, err, reason)
	case r.Reason == "" || r.Error() == "":
		t.Errorf("%s: no reason", what)
	}
}
