package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// shelf is a Source in memory: the newest first.
type shelf struct {
	name  string
	items [][]byte
	err   error
	opens int
}

func (s *shelf) String() string { return s.name }

func (s *shelf) Open(ctx context.Context, before ID) (*Reader, error) {
	s.opens++
	if s.err != nil {
		return nil, s.err
	}
	for _, b := range s.items {
		r, err := NewReader(contextReader{ctx, bytes.NewReader(b)}, Limits{})
		if err != nil {
			return nil, err
		}
		if id := r.Header().ID; before == (ID{}) || id.Compare(before) < 0 {
			return r, nil
		}
	}
	return nil, fmt.Errorf("%w on the shelf", ErrNone)
}

// contextReader never answers if it has no bytes.
type contextReader struct {
	ctx context.Context
	r   *bytes.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if c.r.Len() == 0 && c.r.Size() == 0 {
		<-c.ctx.Done()
		return 0, c.ctx.Err()
	}
	return c.r.Read(p)
}

// numbered is a snapshot whose body is its number.
func numbered(t testing.TB, n int, change func(h *Header, b []byte) []byte) []byte {
	t.Helper()
	h := testHeader()
	h.ID = ID{15: byte(n)}
	change(&h, nil)
	b, _ := encode(t, h, []byte{byte(n)})
	if changed := change(&h, b); changed != nil {
		return changed
	}
	return b
}

func TestChain(t *testing.T) {
	whole := func(*Header, []byte) []byte { return nil }
	broken := func(_ *Header, b []byte) []byte {
		if b != nil {
			b[len(b)-1]++
		}
		return b
	}
	old := func(h *Header, b []byte) []byte { h.Version = 1; return b }
	f := func(what string, sources []Source, wantFrom string, wantBody int, wantFailed ...string) {
		t.Helper()
		got := 0
		res, err := Chain{Sources: sources, Patience: 20 * time.Millisecond}.Restore(t.Context(), testExpect(), func(_ Header, r io.Reader) (func(), error) {
			b, err := io.ReadAll(r)
			return func() { got = int(b[0]) }, err
		})
		if (wantFrom == "") != errors.Is(err, ErrNone) {
			t.Errorf("%s: %v", what, err)
		}
		var failed []string
		for _, a := range res.Failed {
			failed = append(failed, fmt.Sprintf("%s %d %s", a.Source, a.ID[15], a.Reason))
		}
		want(t, what+": source", res.Source, wantFrom)
		want(t, what+": body", got, wantBody)
		want(t, what+": failed", failed, wantFailed)
	}
	peer := &shelf{name: "peer", err: errors.New("connection refused")}
	stalled := &shelf{name: "stalled", items: [][]byte{{}}}
	a := &shelf{name: "a", items: [][]byte{numbered(t, 3, whole), numbered(t, 2, whole)}}
	b := &shelf{name: "b", items: [][]byte{numbered(t, 5, broken), numbered(t, 4, whole)}}
	c := &shelf{name: "c", items: [][]byte{numbered(t, 8, broken), numbered(t, 7, old), numbered(t, 6, whole)}}
	d := &shelf{name: "d", items: [][]byte{numbered(t, 9, broken)}}
	e := &shelf{name: "e", items: [][]byte{{1, 2, 3}}}
	none := &shelf{name: "none"}
	f("the latest", []Source{a, b}, "a", 3)
	f("the one before", []Source{b, a}, "b", 4, "b 5 crc")
	f("two are enough", []Source{c, a}, "a", 3, "c 8 crc", "c 7 version")
	f("none before", []Source{d, a}, "a", 3, "d 9 crc")
	f("not even an id", []Source{e, a}, "a", 3, "e 0 truncated")
	f("unreachable, stalled and empty", []Source{peer, stalled, none, a}, "a", 3, "peer 0 store", "stalled 0 timeout", "none 0 none")
	f("nothing", []Source{peer, none}, "", 0, "peer 0 store", "none 0 none")
	f("no source", nil, "", 0)
	peer.opens = 0
	f("unreachable", []Source{peer}, "", 0, "peer 0 store")
	want(t, "times asked", peer.opens, 1)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Chain{Sources: []Source{stalled, a}}.Restore(ctx, testExpect(), func(Header, io.Reader) (func(), error) { return nil, nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("after its context has ended: %v", err)
	}
}

// trickle is a Source whose snapshot comes in pieces, with a pause before each.
type trickle struct {
	pieces [][]byte
	pause  time.Duration
}

func (tr *trickle) String() string { return "trickle" }

func (tr *trickle) Open(ctx context.Context, _ ID) (*Reader, error) {
	pr, pw := io.Pipe()
	context.AfterFunc(ctx, func() { _ = pw.CloseWithError(ctx.Err()) })
	go func() {
		for _, p := range tr.pieces {
			select {
			case <-time.After(tr.pause):
			case <-ctx.Done():
				return
			}
			if _, err := pw.Write(p); err != nil {
				return
			}
		}
		_ = pw.Close()
	}()
	return NewReader(pr, Limits{})
}

// TestChainPatience: what goes on may take longer than what has stopped, and
// bytes that make no chunk are no progress.
func TestChainPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := bytes.Repeat([]byte{1}, 5*ChunkSize)
		whole, _ := encode(t, testHeader(), body)
		restore := func(s Source) ([]Progress, error) {
			var seen []Progress
			_, err := Chain{Sources: []Source{s}, Patience: time.Second, Progress: func(p Progress) { seen = append(seen, p) }}.Restore(
				t.Context(), testExpect(), func(_ Header, r io.Reader) (func(), error) {
					_, err := io.ReadAll(r)
					time.Sleep(time.Minute) // decoding takes its own time
					return func() {}, err
				})
			return seen, err
		}
		cut := len(whole) / 5
		s := &trickle{pause: 900 * time.Millisecond}
		for b := whole; len(b) > 0; b = b[min(len(b), cut):] {
			s.pieces = append(s.pieces, b[:min(len(b), cut)])
		}
		seen, err := restore(s)
		if err != nil {
			t.Error(err)
		}
		last := seen[len(seen)-1]
		want(t, "progress", []any{last.Source, last.Bytes, last.Whole}, []any{"trickle", int64(len(body)), true})

		s = &trickle{pause: 400 * time.Millisecond}
		for _, b := range whole[:len(whole)/2] {
			s.pieces = append(s.pieces, []byte{b})
		}
		if _, err = restore(s); !errors.Is(err, ErrNone) {
			t.Errorf("a byte now and then: %v", err)
		}
	})
}
