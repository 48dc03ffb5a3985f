package redisstore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvindex/kvindex/indexer/snapshot"
)

func TestStore(t *testing.T) {
	_, s := started(t)
	_, err := s.Open(t.Context(), snapshot.ID{})
	want(t, "none", errors.Is(err, snapshot.ErrNone), true)
	infos, err := s.List(t.Context())
	ok(t, err)
	want(t, "listed", len(infos), 0)
	var written []snapshot.Info
	sizes := []int{0, 1, 1 << 20, 9<<20 + 9}
	for i, n := range sizes {
		written = append(written, write(t, s, repeated(i, n/9)))
		wantBody(t, s, snapshot.ID{}, repeated(i, n/9))
	}
	infos, err = s.List(t.Context())
	ok(t, err)
	want(t, "listed", infos, []snapshot.Info{written[3], written[2]})
	wantBody(t, s, written[3].ID, repeated(2, sizes[2]/9))
	_, err = s.Open(t.Context(), written[2].ID)
	want(t, "none before", errors.Is(err, snapshot.ErrNone), true)
	other, err := New(Options{Client: s.o.Client, Cluster: "red"})
	ok(t, err)
	_, err = other.Open(t.Context(), snapshot.ID{})
	want(t, "another cluster's", errors.Is(err, snapshot.ErrNone), true)

	for _, key := range keys(t, s) {
		ttl, err := s.o.Client.PTTL(t.Context(), key).Result()
		ok(t, err)
		kept := false
		for _, info := range written[2:] {
			kept = kept || bytes.Contains([]byte(key), []byte(info.ID.String()))
		}
		if limit := map[bool]time.Duration{true: s.o.TTL, false: s.o.Grace}[kept || key == s.latest() || key == s.previous()]; ttl <= limit-time.Minute || ttl > limit {
			t.Errorf("%s lives for %v, want %v", key, ttl, limit)
		}
	}
}

// TestDamage: whatever happens to the keys of a snapshot, it is rejected with a
// reason, and the one before is there.
func TestDamage(t *testing.T) {
	_, s := started(t)
	ctx, c := t.Context(), s.o.Client
	old := []byte("old")
	f := func(what string, reason snapshot.Reason, damage func(info snapshot.Info) error) {
		t.Helper()
		ok(t, c.FlushDB(ctx).Err())
		write(t, s, old)
		info := write(t, s, repeated(1, 600_000)) // 6 chunks
		ok(t, damage(info))
		_, _, err := read(ctx, s, snapshot.ID{})
		wantReason(t, what, err, reason)
		if r := (*snapshot.RejectedError)(nil); errors.As(err, &r) {
			want(t, what+": id", r.ID, info.ID)
		}
		wantBody(t, s, info.ID, old)
	}
	set := func(key string, value any) error { return c.Set(ctx, key, value, 0).Err() }
	chunk := make([]byte, snapshot.ChunkSize)
	f("no manifest", snapshot.ReasonMissing, func(i snapshot.Info) error { return c.Del(ctx, s.manifest(i.ID)).Err() })
	f("another manifest", snapshot.ReasonMagic, func(i snapshot.Info) error { return set(s.manifest(i.ID), "no manifest at all") })
	f("manifest of the one before", snapshot.ReasonMismatch, func(i snapshot.Info) error {
		ids, err := s.pointers(ctx)
		m := c.Get(ctx, s.manifest(ids[1])).Val()
		return errors.Join(err, set(s.manifest(i.ID), m))
	})
	f("evicted chunk", snapshot.ReasonMissing, func(i snapshot.Info) error { return c.Del(ctx, s.chunk(i.ID, 5)).Err() })
	f("other chunk", snapshot.ReasonCRC, func(i snapshot.Info) error { return set(s.chunk(i.ID, 0), chunk) })
	f("flipped byte", snapshot.ReasonCRC, func(i snapshot.Info) error { return c.SetRange(ctx, s.chunk(i.ID, 3), 77, "x").Err() })
	f("short chunk", snapshot.ReasonCount, func(i snapshot.Info) error { return set(s.chunk(i.ID, 0), chunk[1:]) })
	f("long chunk", snapshot.ReasonCount, func(i snapshot.Info) error { return c.SetRange(ctx, s.chunk(i.ID, 0), 200<<20, "x").Err() })
	f("no string", snapshot.ReasonMalformed, func(i snapshot.Info) error {
		return errors.Join(c.Del(ctx, s.chunk(i.ID, 1)).Err(), c.LPush(ctx, s.chunk(i.ID, 1), "x").Err())
	})

	// Pointers that are no ids stop nobody.
	ok(t, set(s.latest(), "ZZZZZZZZZZZZZZZZZZZZZZZZZZ"))
	_, err := s.Open(ctx, snapshot.ID{})
	ok(t, err) // previous
	write(t, s, []byte("new"))
	wantBody(t, s, snapshot.ID{}, []byte("new"))
}

// TestChunksGoneWhileWriting: what Redis evicts before the end is no snapshot.
func TestChunksGoneWhileWriting(t *testing.T) {
	_, s := started(t)
	write(t, s, []byte("old"))
	_, err := s.Write(t.Context(), testMeta, func(w io.Writer) error {
		if _, err := w.Write(make([]byte, 8<<20)); err != nil {
			return err
		}
		for _, key := range keys(t, s) {
			if key[len(key)-2:] == ":2" {
				return s.o.Client.Del(t.Context(), key).Err()
			}
		}
		return errors.New("no such chunk")
	})
	wantReason(t, "evicted", err, snapshot.ReasonMissing, "1 of 8 chunks")
	wantBody(t, s, snapshot.ID{}, []byte("old"))
	want(t, "keys", len(keys(t, s)), 4)
}

func TestFailedWriteKeepsTheOld(t *testing.T) {
	_, s := started(t)
	write(t, s, []byte("old"))
	broken := errors.New("broken")
	_, err := s.Write(t.Context(), testMeta, func(w io.Writer) error { _, _ = w.Write(make([]byte, 9<<20)); return broken })
	want(t, "the body's error", errors.Is(err, broken), true)
	ctx, cancel := context.WithCancel(t.Context())
	_, err = s.Write(ctx, testMeta, func(w io.Writer) error {
		_, _ = w.Write(make([]byte, 9<<20))
		cancel()
		_, err := w.Write([]byte{1})
		return err
	})
	want(t, "cancelled", errors.Is(err, context.Canceled), true)
	wantBody(t, s, snapshot.ID{}, []byte("old"))
	want(t, "keys", len(keys(t, s)), 4) // nothing of theirs is left
}

func TestOutOfMemory(t *testing.T) {
	_, s := started(t, "--maxmemory", "12mb", "--maxmemory-policy", "noeviction")
	write(t, s, []byte("old"))
	_, err := s.Write(t.Context(), testMeta, bytesOf(make([]byte, 30<<20)))
	wantReason(t, "full", err, snapshot.ReasonFull, "the store is full", "OOM")
	wantBody(t, s, snapshot.ID{}, []byte("old"))
	want(t, "keys", len(keys(t, s)), 4)
	write(t, s, []byte("new"))
}

// TestNewerWins: a writer that began earlier and ends later does not replace
// what is newer, whatever its clock says.
func TestNewerWins(t *testing.T) {
	_, s := started(t)
	f := func(meanwhile int, latest string) error {
		ok(t, s.o.Client.FlushDB(t.Context()).Err())
		_, err := s.Write(t.Context(), testMeta, func(w io.Writer) error {
			for range meanwhile {
				write(t, s, []byte("begun later"))
			}
			_, err := io.WriteString(w, "begun earlier")
			return err
		})
		wantBody(t, s, snapshot.ID{}, []byte(latest))
		return err
	}
	ok(t, f(0, "begun earlier"), f(1, "begun later"))
	ids, err := s.pointers(t.Context())
	ok(t, err)
	wantBody(t, s, ids[0], []byte("begun earlier")) // it is the one before
	want(t, "superseded", errors.Is(f(2, "begun later"), snapshot.ErrSuperseded), true)
	want(t, "superseded", errors.Is(f(5, "begun later"), snapshot.ErrSuperseded), true)

	// Another replica's clock is a day ahead.
	var ids2 snapshot.IDs
	ahead := &uploader{s: s, id: ids2.Next(time.Now().Add(24*time.Hour), snapshot.ID{})}
	_, err = ahead.write(t.Context(), snapshot.NewHeader(ahead.id, time.Now(), testMeta), bytesOf([]byte("ahead")))
	ok(t, err)
	wantBody(t, s, snapshot.ID{}, []byte("ahead"))
	write(t, s, []byte("after that"))
	wantBody(t, s, snapshot.ID{}, []byte("after that"))
}

// TestTwoWriters: 1,000 rounds of two writers each; a reader always gets a whole
// snapshot, and newer ones as time goes by.
func TestTwoWriters(t *testing.T) {
	srv, s := started(t)
	write(t, s, repeated(0, 1))
	var writers, readers sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range 2 {
		w := newStore(t, connect(t, Connection{Addrs: []string{srv.Addr}}), Options{})
		writers.Go(func() {
			for round := range 1000 {
				n := 1 + rand.IntN(2000)
				if round%50 == 0 {
					n = 300_000 // 3 chunks
				}
				_, err := w.Write(ctx, testMeta, bytesOf(repeated(2*round+i, n)))
				if err != nil && !errors.Is(err, snapshot.ErrSuperseded) {
					t.Errorf("round %d: %v", round, err)
					return
				}
			}
		})
	}
	reads := 0
	readers.Go(func() {
		var last snapshot.ID
		for ctx.Err() == nil {
			info, body, err := read(t.Context(), s, snapshot.ID{})
			if err != nil || len(body) == 0 || !bytes.Equal(body, bytes.Repeat(body[:9], len(body)/9)) {
				t.Errorf("after %d reads: %d bytes, %v", reads, len(body), err)
				return
			}
			if info.ID.Compare(last) < 0 {
				t.Errorf("%s follows %s", info.ID, last)
			}
			last = info.ID
			reads++
		}
	})
	writers.Wait()
	cancel()
	readers.Wait()
	t.Logf("%d reads", reads)
}

// TestStalled: a Redis that does not answer costs a bounded time, and is named.
func TestStalled(t *testing.T) {
	srv, s := started(t)
	write(t, s, repeated(1, 10))
	bounded := func(what string, limit time.Duration, do func() error, reason snapshot.Reason) {
		t.Helper()
		begin := time.Now()
		err := do()
		wantReason(t, what, err, reason, "redis")
		if took := time.Since(begin); took > limit {
			t.Errorf("%s took %v", what, took)
		}
	}
	// The timeout is half a second. It may come twice for each attempt, and the
	// machine may be busy.
	const limit = 8 * time.Second
	all := func(reason snapshot.Reason) {
		t.Helper()
		bounded("write", limit, func() error { _, err := s.Write(t.Context(), testMeta, bytesOf(make([]byte, 5<<20))); return err }, reason)
		bounded("open", limit, func() error { _, err := s.Open(t.Context(), snapshot.ID{}); return err }, reason)
		bounded("list", limit, func() error { _, err := s.List(t.Context()); return err }, reason)
	}
	srv.Pause()
	all(snapshot.ReasonTimeout)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	bounded("open with a deadline", 2*time.Second, func() error { _, err := s.Open(ctx, snapshot.ID{}); return err }, snapshot.ReasonTimeout)
	cancel()
	srv.Resume()
	wantBody(t, s, snapshot.ID{}, repeated(1, 10))

	r, err := s.Open(t.Context(), snapshot.ID{}) // stalled in the middle of reading
	ok(t, err)
	srv.Pause()
	bounded("read", limit, func() error { _, err := io.ReadAll(r); r.Close(); return err }, snapshot.ReasonTimeout)
	srv.Resume()

	_, err = s.Write(t.Context(), testMeta, func(w io.Writer) error { // ... and of writing
		if _, err := w.Write(make([]byte, 4<<20)); err != nil {
			return err
		}
		srv.Pause()
		defer srv.Resume()
		_, err := w.Write(make([]byte, 4<<20))
		return err
	})
	wantReason(t, "stalled while writing", err, snapshot.ReasonTimeout, "redis")
	wantBody(t, s, snapshot.ID{}, repeated(1, 10))

	srv.Stop()
	all(snapshot.ReasonStore)
	_, err = s.Open(t.Context(), snapshot.ID{})
	wantReason(t, "down", err, snapshot.ReasonStore, "connection refused")
	srv.Restart()
	for deadline := time.Now().Add(10 * time.Second); !errors.Is(err, snapshot.ErrNone); { // the client tries again every second
		if _, err = s.Open(t.Context(), snapshot.ID{}); time.Now().After(deadline) {
			t.Fatalf("long after its restart: %v", err)
		}
	}
	write(t, s, repeated(2, 10))
}

func TestOptions(t *testing.T) {
	_, s := started(t)
	for _, cluster := range []string{"", "a{b", "a}b", "a b", "a:b", "é"} {
		if _, err := New(Options{Client: s.o.Client, Cluster: cluster}); err == nil {
			t.Errorf("cluster %q is accepted", cluster)
		}
	}
	if _, err := New(Options{Cluster: "x"}); err == nil {
		t.Error("no client is accepted")
	}
}

func BenchmarkStore(b *testing.B) {
	_, s := started(b)
	body := make([]byte, 100<<20)
	rand.NewChaCha8([32]byte{}).Read(body)
	b.Run("write", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		for b.Loop() {
			_, err := s.Write(b.Context(), testMeta, bytesOf(body))
			ok(b, err)
			b.StopTimer()
			ids, err := s.pointers(b.Context())
			ok(b, err)
			for _, key := range keys(b, s) { // those that were replaced
				if strings.Contains(key, ":snap:") && !strings.Contains(key, ids[0].String()) {
					ok(b, s.o.Client.Del(b.Context(), key).Err())
				}
			}
			b.StartTimer()
		}
	})
	b.Run("read", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		for b.Loop() {
			r, err := s.Open(b.Context(), snapshot.ID{})
			ok(b, err)
			_, err = io.Copy(io.Discard, r)
			ok(b, err, r.Close())
		}
	})
}
