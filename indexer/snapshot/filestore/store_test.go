package filestore

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/kvindex/kvindex/indexer/snapshot"
)

// writerEnv makes this test binary a process that writes snapshots to a
// directory: see TestMain.
const writerEnv = "KVINDEX_TEST_WRITER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerEnv); dir != "" {
		writeForever(dir)
	}
	goleak.VerifyTestMain(m)
}

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

func newStore(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := New(Options{Dir: dir})
	ok(t, err)
	return s
}

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }
}

// read reads the newest snapshot before an id.
func read(t testing.TB, s *Store, before snapshot.ID) (snapshot.Info, string, error) {
	t.Helper()
	r, err := s.Open(t.Context(), before)
	if err != nil {
		return snapshot.Info{}, "", err
	}
	body, err := io.ReadAll(r)
	err = errors.Join(err, r.Close())
	return r.Info(), string(body), err
}

func names(t testing.TB, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	ok(t, err)
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func TestStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "dir")
	s := newStore(t, dir)
	_, _, err := read(t, s, snapshot.ID{})
	want(t, "none", errors.Is(err, snapshot.ErrNone), true)
	infos, err := s.List(t.Context())
	ok(t, err)
	want(t, "listed", len(infos), 0)
	var written []snapshot.Info
	for i := range 4 {
		info, err := s.Write(t.Context(), testMeta, text(fmt.Sprint("body ", i)))
		ok(t, err)
		written = append(written, info)
	}
	infos, err = s.List(t.Context())
	ok(t, err)
	for i := range written {
		written[i].Created = written[i].Created.UTC().Round(0)
	}
	want(t, "listed", infos, []snapshot.Info{written[3], written[2]})
	info, body, err := read(t, s, snapshot.ID{})
	ok(t, err)
	want(t, "latest", []any{info, body}, []any{written[3], "body 3"})
	info, body, err = read(t, s, info.ID)
	ok(t, err)
	want(t, "previous", []any{info, body}, []any{written[2], "body 2"})
	_, _, err = read(t, s, info.ID)
	want(t, "none before", errors.Is(err, snapshot.ErrNone), true)
	want(t, "files", names(t, dir), []string{written[2].ID.String() + ".snapshot", written[3].ID.String() + ".snapshot", "lock"})
	st, err := os.Stat(filepath.Join(dir, written[3].ID.String()+".snapshot"))
	ok(t, err)
	want(t, "mode", st.Mode(), fs0600)
}

const fs0600 = os.FileMode(0o600)

func TestFailedWriteKeepsTheOld(t *testing.T) {
	s := newStore(t, t.TempDir())
	_, err := s.Write(t.Context(), testMeta, text("old"))
	ok(t, err)
	f := func(what string, ctx context.Context, write func(io.Writer) error, wantErr error) {
		t.Helper()
		_, err := s.Write(ctx, testMeta, write)
		if !errors.Is(err, wantErr) {
			t.Errorf("%s: %v", what, err)
		}
		_, body, err := read(t, s, snapshot.ID{})
		ok(t, err)
		want(t, what, body, "old")
		want(t, "files", len(names(t, s.o.Dir)), 2) // and the lock
	}
	broken := errors.New("broken")
	f("failed", t.Context(), func(w io.Writer) error { _, _ = w.Write(make([]byte, 5<<20)); return broken }, broken)
	ctx, cancel := context.WithCancel(t.Context())
	f("cancelled", ctx, func(w io.Writer) error {
		_, _ = w.Write(make([]byte, 5<<20))
		cancel()
		_, err := w.Write([]byte{1})
		return err
	}, context.Canceled)
}

// TestDamagedFiles: flipped bytes and truncations are rejected, by List too as
// far as it reads, and the one before can be had.
func TestDamagedFiles(t *testing.T) {
	s := newStore(t, t.TempDir())
	for _, body := range []string{"old", "new"} {
		_, err := s.Write(t.Context(), testMeta, text(body))
		ok(t, err)
	}
	ids, err := s.stored()
	ok(t, err)
	whole, err := os.ReadFile(s.path(ids[0]))
	ok(t, err)
	f := func(what string, b []byte, listed bool) {
		t.Helper()
		ok(t, os.WriteFile(s.path(ids[0]), b, 0o600))
		_, _, err := read(t, s, snapshot.ID{})
		r := (*snapshot.RejectedError)(nil)
		if !errors.As(err, &r) || r.ID != ids[0] {
			t.Fatalf("%s: %v", what, err)
		}
		_, body, err := read(t, s, r.ID)
		ok(t, err)
		want(t, "the one before", body, "old")
		infos, err := s.List(t.Context())
		ok(t, err)
		want(t, "listed", []snapshot.ID{infos[0].ID, infos[1].ID}, ids)
		if listed && infos[0].Err == nil || infos[1].Err != nil {
			t.Errorf("%s: listed with %v, %v", what, infos[0].Err, infos[1].Err)
		}
	}
	for i := range whole {
		b := bytes.Clone(whole)
		b[i] ^= 0xff
		f(fmt.Sprint("flipped ", i), b, false)
		f(fmt.Sprint("truncated to ", i), whole[:i], true)
	}
	old, err := os.ReadFile(s.path(ids[1]))
	ok(t, err)
	f("another's file", old, true)
}

func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir)
	dead := filepath.Join(dir, tempPrefix+"01HF7YAT00000000000000000")
	ok(t, os.WriteFile(dead, []byte("half"), 0o600), os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o600))
	_, err := s.Write(t.Context(), testMeta, func(w io.Writer) error {
		// Another writer that comes meanwhile leaves this one's file alone.
		_, err := s.Write(t.Context(), testMeta, text("inner"))
		return errors.Join(err, text("outer")(w))
	})
	ok(t, err)
	if _, err := os.Stat(dead); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a dead writer's file is still there: %v", err)
	}
	want(t, "files", len(names(t, dir)), 4)
	_, body, err := read(t, s, snapshot.ID{})
	ok(t, err)
	want(t, "begun last", body, "inner")
}

func TestSuperseded(t *testing.T) {
	s := newStore(t, t.TempDir())
	_, err := s.Write(t.Context(), testMeta, func(w io.Writer) error {
		for range 2 {
			if _, err := s.Write(t.Context(), testMeta, text("newer")); err != nil {
				return err
			}
		}
		return text("older")(w)
	})
	want(t, "superseded", errors.Is(err, snapshot.ErrSuperseded), true)
}

func TestLockedByAnother(t *testing.T) {
	s, err := New(Options{Dir: t.TempDir(), LockTimeout: 50 * time.Millisecond})
	ok(t, err)
	unlock, err := s.lock(t.Context())
	ok(t, err)
	defer unlock()
	_, err = s.Write(t.Context(), testMeta, text("x"))
	if !errors.Is(err, snapshot.ErrBusy) || snapshot.ReasonOf(err) != snapshot.ReasonTimeout {
		t.Errorf("locked: %v", err)
	}
}

func TestUnreadable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	ok(t, os.WriteFile(file, nil, 0o600))
	s := newStore(t, file)
	_, err := s.Write(t.Context(), testMeta, text("x"))
	_, rerr := s.Open(t.Context(), snapshot.ID{})
	_, lerr := s.List(t.Context())
	for _, err := range []error{err, rerr, lerr} {
		if snapshot.ReasonOf(err) != snapshot.ReasonStore || !strings.Contains(err.Error(), file) {
			t.Errorf("not a directory: %v", err)
		}
	}
	for _, o := range []Options{{}, {Dir: "x", Keep: -1}} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

// repeated is a body that says whether it is whole: one number again and again.
func repeated(n, size int) []byte { return bytes.Repeat(fmt.Appendf(nil, "%08d\n", n), size) }

func checkRepeated(body string) error {
	if len(body) < 9 || body != strings.Repeat(body[:9], len(body)/9) {
		return fmt.Errorf("a body of %d bytes is mixed", len(body))
	}
	return nil
}

// TestWritersAndReaders: two writers; a reader always gets a whole one, and
// newer ones as time goes by.
func TestWritersAndReaders(t *testing.T) {
	dir := t.TempDir()
	_, err := newStore(t, dir).Write(t.Context(), testMeta, text("00000000\n"))
	ok(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var writers, readers sync.WaitGroup
	for w := range 2 {
		s := newStore(t, dir)
		writers.Go(func() {
			for i := range 150 {
				body := repeated(2*i+w, 1+rand.IntN(1000))
				_, err := s.Write(ctx, testMeta, func(out io.Writer) error { _, err := out.Write(body); return err })
				if err != nil && !errors.Is(err, snapshot.ErrSuperseded) {
					t.Errorf("round %d: %v", i, err)
					return
				}
			}
		})
	}
	reads := 0
	readers.Go(func() {
		s := newStore(t, dir)
		last := snapshot.ID{}
		for ctx.Err() == nil {
			info, body, err := read(t, s, snapshot.ID{})
			if err = errors.Join(err, checkRepeated(body)); err != nil {
				t.Errorf("after %d reads: %v", reads, err)
				return
			}
			if info.ID.Compare(last) < 0 {
				t.Errorf("%s is older than %s", info.ID, last)
			}
			last = info.ID
			reads++
		}
	})
	writers.Wait()
	cancel()
	readers.Wait()
	t.Logf("%d reads", reads)
	want(t, "files", len(names(t, dir)), 3)
}

// writeForever is a process that writes until it is killed.
func writeForever(dir string) {
	s, err := New(Options{Dir: dir})
	for i := 0; err == nil; i++ {
		_, err = s.Write(context.Background(), testMeta, func(w io.Writer) error {
			_, err := w.Write(repeated(i, 300_000))
			return err
		})
		fmt.Println(i)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// TestKilledWriters: processes that are killed while they write leave nothing
// broken, and nothing at all once another has written.
func TestKilledWriters(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir)
	for range 12 {
		var cmds []*exec.Cmd
		for range 2 {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), writerEnv+"="+dir)
			out, err := cmd.StdoutPipe()
			ok(t, err, cmd.Start())
			_, err = bufio.NewReader(out).ReadString('\n') // it has written one
			ok(t, err)
			cmds = append(cmds, cmd)
		}
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
		for _, cmd := range cmds {
			ok(t, cmd.Process.Kill())
			_ = cmd.Wait() // it says that it was killed
		}
		_, body, err := read(t, s, snapshot.ID{})
		ok(t, err, checkRepeated(body))
	}
	_, err := s.Write(t.Context(), testMeta, text("00000000\n"))
	ok(t, err)
	want(t, "files", len(names(t, dir)), 3)
}

func BenchmarkStore(b *testing.B) {
	s := newStore(b, b.TempDir())
	body := make([]byte, 100<<20)
	rand.NewChaCha8([32]byte{}).Read(body)
	b.Run("write", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		for b.Loop() {
			_, err := s.Write(b.Context(), testMeta, func(w io.Writer) error { _, err := w.Write(body); return err })
			ok(b, err)
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
