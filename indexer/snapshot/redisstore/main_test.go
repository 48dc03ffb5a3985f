package redisstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/kvindex/kvindex/indexer/snapshot"
	"github.com/kvindex/kvindex/indexer/snapshot/redistest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{})
	goleak.VerifyTestMain(m)
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func ok(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func want[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

var testMeta = snapshot.Meta{Cluster: "blue", Kind: "test", Version: 1, Params: map[string]string{"seed": "1337"}}

func connect(t testing.TB, c Connection) redis.UniversalClient {
	t.Helper()
	client, err := Connect(c)
	ok(t, err)
	t.Cleanup(func() { ok(t, client.Close()) })
	return client
}

func newStore(t testing.TB, client redis.UniversalClient, o Options) *Store {
	t.Helper()
	o.Client, o.Cluster = client, "blue"
	s, err := New(o)
	ok(t, err)
	return s
}

// started is a server, and a store on it.
func started(t testing.TB, options ...string) (*redistest.Server, *Store) {
	t.Helper()
	srv := redistest.Start(t, options...)
	return srv, newStore(t, connect(t, Connection{Addrs: []string{srv.Addr}, DialTimeout: time.Second, Timeout: 500 * time.Millisecond}), Options{})
}

func bytesOf(b []byte) func(io.Writer) error {
	return func(w io.Writer) error { _, err := w.Write(b); return err }
}

func write(t testing.TB, s *Store, body []byte) snapshot.Info {
	t.Helper()
	info, err := s.Write(t.Context(), testMeta, bytesOf(body))
	ok(t, err)
	info.Created = info.Created.UTC().Round(0)
	return info
}

func read(ctx context.Context, s *Store, before snapshot.ID) (snapshot.Info, []byte, error) {
	r, err := s.Open(ctx, before)
	if err != nil {
		return snapshot.Info{}, nil, err
	}
	body, err := io.ReadAll(r)
	return r.Info(), body, errors.Join(err, r.Close())
}

// wantBody checks what the newest snapshot before an id holds.
func wantBody(t testing.TB, s *Store, before snapshot.ID, body []byte) {
	t.Helper()
	_, got, err := read(t.Context(), s, before)
	ok(t, err)
	if !bytes.Equal(got, body) {
		t.Errorf("%d bytes come back as %d others (%.20q)", len(body), len(got), got)
	}
}

func wantReason(t testing.TB, what string, err error, reason snapshot.Reason, texts ...string) {
	t.Helper()
	if got := snapshot.ReasonOf(err); got != reason {
		t.Errorf("%s: %v is %q, want %q", what, err, got, reason)
	}
	for _, text := range texts {
		if err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %q lacks %q", what, err, text)
		}
	}
}

func keys(t testing.TB, s *Store) []string {
	t.Helper()
	all, err := s.o.Client.Keys(t.Context(), "*").Result()
	ok(t, err)
	return all
}

func repeated(n, times int) []byte { return bytes.Repeat(fmt.Appendf(nil, "%08d\n", n), times) }
