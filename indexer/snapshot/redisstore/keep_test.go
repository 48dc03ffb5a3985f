package redisstore

import (
	"errors"
	"testing"
	"time"

	"github.com/kvindex/kvindex/indexer/snapshot"
	"github.com/kvindex/kvindex/indexer/snapshot/redistest"
)

// knowing is testMeta of a writer that knows so many streams whole.
func knowing(complete int) snapshot.Meta {
	m := testMeta
	m.Complete = complete
	return m
}

// writers are stores of several replicas on one server.
func writers(t *testing.T, srv *redistest.Server, stands time.Duration) (full, poor *Store) {
	t.Helper()
	c := connect(t, Connection{Addrs: []string{srv.Addr}})
	return newStore(t, c, Options{Stands: stands}), newStore(t, c, Options{Stands: stands})
}

// TestFullerStays: who knows less does not replace what is by one that knows more
// and is at work, whoever comes first, and however far its clock is ahead.
func TestFullerStays(t *testing.T) {
	srv, _ := started(t)
	full, poor := writers(t, srv, time.Hour)
	store := func(s *Store, complete int, body string, wantErr error) {
		t.Helper()
		_, err := s.Write(t.Context(), knowing(complete), bytesOf([]byte(body)))
		if !errors.Is(err, wantErr) {
			t.Errorf("%s: %v, want %v", body, err, wantErr)
		}
	}
	store(poor, 2, "poor first", nil)
	store(full, 8, "full", nil)
	before := len(keys(t, full))
	store(poor, 2, "poor", snapshot.ErrFuller)
	store(poor, 7, "nearly as full", snapshot.ErrFuller)
	wantBody(t, full, snapshot.ID{}, []byte("full"))
	want(t, "nothing is left of it", len(keys(t, full)), before)

	// What is decided when all has been written, too: the check in advance only
	// saves work.
	var ids snapshot.IDs
	ahead := &uploader{s: poor, id: ids.Next(time.Now().Add(24*time.Hour), snapshot.ID{}), complete: 7}
	_, err := ahead.write(t.Context(), snapshot.NewHeader(ahead.id, time.Now(), testMeta), bytesOf([]byte("ahead")))
	wantReason(t, "ahead", err, snapshot.ReasonFuller, "knows more")
	want(t, "superseded, too", errors.Is(err, snapshot.ErrSuperseded), true)
	wantBody(t, full, snapshot.ID{}, []byte("full"))

	store(poor, 8, "as full", nil) // among equals the newest counts
	store(full, 8, "full again", nil)
	store(full, 3, "its own, though it lost streams", nil)
	store(poor, 7, "fuller now", nil)
	wantBody(t, full, snapshot.ID{}, []byte("fuller now"))
	store(full, 0, "lost all", snapshot.ErrFuller)
}

// TestNobodyKnowsAll: in a fleet whose replicas all lack something of each stream
// the newest counts.
func TestNobodyKnowsAll(t *testing.T) {
	srv, _ := started(t)
	a, b := writers(t, srv, time.Hour)
	for i := range 6 {
		write(t, []*Store{a, b}[i%2], repeated(i, 3))
		wantBody(t, a, snapshot.ID{}, repeated(i, 3))
	}
}

// TestFullerIsGone: when it has not written for long enough by Redis's clock, the
// one that knows less is taken; until then it says from time to time that
// nothing has changed.
func TestFullerIsGone(t *testing.T) {
	srv, _ := started(t)
	full, poor := writers(t, srv, time.Hour)
	kept := func(s *Store, complete int, wantKept bool) {
		t.Helper()
		got, err := s.Keep(t.Context(), knowing(complete))
		ok(t, err)
		want(t, "kept", got, wantKept)
	}
	kept(full, 8, false) // nothing is there
	_, err := full.Write(t.Context(), knowing(8), bytesOf([]byte("full")))
	ok(t, err)
	kept(poor, 2, true)
	kept(poor, 9, false)
	full.o.Stands = 2 * time.Hour
	kept(full, 8, true)
	if ttl := full.o.Client.PTTL(t.Context(), full.writerKey()).Val(); ttl < 90*time.Minute {
		t.Errorf("it stands for %v", ttl)
	}
	full.o.Stands = 50 * time.Millisecond
	kept(full, 8, true)
	for end := time.Now().Add(10 * time.Second); ; {
		_, err := poor.Write(t.Context(), knowing(2), bytesOf([]byte("poor")))
		if err == nil {
			break
		}
		if !errors.Is(err, snapshot.ErrFuller) || time.Now().After(end) {
			t.Fatal(err)
		}
	}
	wantBody(t, full, snapshot.ID{}, []byte("poor"))
	kept(full, 8, false) // it is back, and must write although nothing has changed
	_, err = full.Write(t.Context(), knowing(8), bytesOf([]byte("full")))
	ok(t, err)
	wantBody(t, full, snapshot.ID{}, []byte("full"))

	// One that does not know of all this has replaced it: nothing stands.
	ids, err := full.pointers(t.Context())
	ok(t, err)
	ok(t, full.o.Client.Set(t.Context(), full.latest(), ids[1].String(), 0).Err())
	kept(full, 8, false)
	_, err = poor.Write(t.Context(), knowing(1), bytesOf([]byte("newest")))
	ok(t, err)
	wantBody(t, full, snapshot.ID{}, []byte("newest"))

	// Nor does what nobody wrote.
	ok(t, full.o.Client.Set(t.Context(), full.writerKey(), "what is this", 0).Err())
	kept(full, 8, false)
	_, err = poor.Write(t.Context(), knowing(1), bytesOf([]byte("newer")))
	ok(t, err)
	wantBody(t, full, snapshot.ID{}, []byte("newer"))
}
