// Package filestore keeps snapshots in a directory, a file each.
package filestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kvindex/kvindex/indexer/snapshot"
)

// Options are the settings of a Store. Dir is needed.
type Options struct {
	Dir         string          // made by the first Write if it is missing
	Keep        int             // how many snapshots stay; 0: 2
	Limits      snapshot.Limits // of what is read
	LockTimeout time.Duration   // how long to wait for other processes; 0: 5 s
}

// Validate reports the first setting that cannot be used.
func (o Options) Validate() error {
	if o.Dir == "" {
		return errors.New("cannot keep snapshots in a directory without a name")
	}
	if o.Keep < 0 {
		return fmt.Errorf("cannot keep %d snapshots", o.Keep)
	}
	return nil
}

func (o Options) withDefaults() Options {
	if o.Keep == 0 {
		o.Keep = 2
	}
	if o.LockTimeout == 0 {
		o.LockTimeout = 5 * time.Second
	}
	return o
}

// Store keeps snapshots in a directory, a file each: <id>.snapshot, the stream
// that the package's documentation describes.
//
// It is safe for concurrent use, and so is the directory: several processes may
// write to it and read from it at once. A file gets its name when it is whole
// and on disk; until then it has another one, and is locked by its writer.
// Whoever comes next removes what writers left that have died. A reader that has
// opened a file keeps it, even when it is removed meanwhile.
type Store struct {
	o   Options
	ids snapshot.IDs
}

const (
	fileSuffix = ".snapshot"
	tempPrefix = "writing-"
	lockName   = "lock"
)

// New returns a store. It touches nothing yet.
func New(o Options) (*Store, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &Store{o: o.withDefaults()}, nil
}

// String names the store in logs.
func (s *Store) String() string { return "file " + s.o.Dir }

// Write stores a snapshot whose body write produces, and removes those beyond
// the newest Keep. If it fails, what was there before stays. ErrSuperseded means
// that so many newer ones are there that this one was removed at once.
func (s *Store) Write(ctx context.Context, m snapshot.Meta, write func(io.Writer) error) (snapshot.Info, error) {
	info, err := s.write(ctx, m, write)
	if err != nil {
		hint := ""
		if snapshot.ReasonOf(err) == snapshot.ReasonFull {
			hint = " (the disk is full; earlier snapshots are still there)"
		}
		return info, fmt.Errorf("cannot write a snapshot to %q%s: %w", s.o.Dir, hint, err)
	}
	return info, nil
}

func (s *Store) write(ctx context.Context, m snapshot.Meta, write func(io.Writer) error) (info snapshot.Info, err error) {
	tmp, h, err := s.begin(ctx, m)
	if err != nil {
		return snapshot.Info{}, err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name()) // gone already if it got its name
		}
		_ = tmp.Close() // gives the lock up
	}()
	w, err := snapshot.NewWriter(tmp, h)
	if err != nil {
		return snapshot.Info{}, err
	}
	if info, _, err = w.Fill(ctx, write); err != nil {
		return snapshot.Info{}, err
	}
	if err := tmp.Sync(); err != nil {
		return snapshot.Info{}, err
	}
	return info, s.commit(ctx, tmp.Name(), h.ID)
}

// begin makes the temporary file, locked, and an id newer than all others.
func (s *Store) begin(ctx context.Context, m snapshot.Meta) (*os.File, snapshot.Header, error) {
	if err := os.MkdirAll(s.o.Dir, 0o700); err != nil {
		return nil, snapshot.Header{}, err
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return nil, snapshot.Header{}, err
	}
	defer unlock()
	s.removeLeftovers()
	ids, err := s.stored()
	if err != nil {
		return nil, snapshot.Header{}, err
	}
	var newest snapshot.ID
	if len(ids) > 0 {
		newest = ids[0]
	}
	now := time.Now()
	h := snapshot.NewHeader(s.ids.Next(now, newest), now, m)
	tmp, err := os.OpenFile(filepath.Join(s.o.Dir, tempPrefix+h.ID.String()), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, snapshot.Header{}, err
	}
	if ok, err := tryLock(tmp); !ok || err != nil {
		_ = tmp.Close()
		return nil, snapshot.Header{}, fmt.Errorf("cannot lock %q: %w", tmp.Name(), errors.Join(err, snapshot.ErrBusy))
	}
	return tmp, h, nil
}

// commit gives the file its name and removes the oldest ones.
func (s *Store) commit(ctx context.Context, tmp string, id snapshot.ID) error {
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := os.Rename(tmp, s.path(id)); err != nil {
		return err
	}
	if err := syncDir(s.o.Dir); err != nil {
		return err
	}
	ids, err := s.stored()
	if err != nil {
		return err
	}
	for _, old := range ids[min(s.o.Keep, len(ids)):] {
		if err := os.Remove(s.path(old)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if old == id {
			return snapshot.ErrSuperseded
		}
	}
	return nil
}

func (s *Store) path(id snapshot.ID) string { return filepath.Join(s.o.Dir, id.String()+fileSuffix) }

// lock waits until no other writer changes names in the directory. It is held
// for moments only, not while a body is written.
func (s *Store) lock(ctx context.Context) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.LockTimeout)
	defer cancel()
	file, err := os.OpenFile(filepath.Join(s.o.Dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		ok, err := tryLock(file)
		if ok {
			return func() { _ = file.Close() }, nil
		}
		if err == nil {
			select {
			case <-ctx.Done():
				err = fmt.Errorf("%w: %q is locked after %v (%w)", snapshot.ErrBusy, file.Name(), s.o.LockTimeout, ctx.Err())
			case <-time.After(2 * time.Millisecond):
				continue
			}
		}
		_ = file.Close()
		return nil, err
	}
}

// removeLeftovers removes the temporary files of writers that have died: those
// of living ones are locked.
func (s *Store) removeLeftovers() {
	names, err := filepath.Glob(filepath.Join(globEscape(s.o.Dir), tempPrefix+"*"))
	if err != nil {
		return
	}
	for _, name := range names {
		file, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if ok, err := tryLock(file); ok && err == nil {
			_ = os.Remove(name) // if it cannot be removed, it is tried again next time
		}
		_ = file.Close()
	}
}

func globEscape(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(s)
}

// stored returns the ids of the files, the newest first.
func (s *Store) stored() ([]snapshot.ID, error) {
	entries, err := os.ReadDir(s.o.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var ids []snapshot.ID
	for _, e := range entries {
		if text, ok := strings.CutSuffix(e.Name(), fileSuffix); ok {
			if id, err := snapshot.ParseID(text); err == nil {
				ids = append(ids, id)
			}
		}
	}
	slices.SortFunc(ids, func(a, b snapshot.ID) int { return b.Compare(a) })
	return ids, nil
}

// Open opens the newest snapshot that is older than before; zero is no bound.
// ErrNone means that there is none. Even a reader that comes while snapshots
// are replaced gets one, if there is one all the time.
func (s *Store) Open(ctx context.Context, before snapshot.ID) (*snapshot.Reader, error) {
	for ctx.Err() == nil {
		ids, err := s.stored()
		if err != nil {
			return nil, fmt.Errorf("cannot look for snapshots in %q: %w", s.o.Dir, err)
		}
		i := slices.IndexFunc(ids, func(id snapshot.ID) bool { return before == snapshot.ID{} || id.Compare(before) < 0 })
		if i < 0 {
			return nil, fmt.Errorf("%w in %q", snapshot.ErrNone, s.o.Dir)
		}
		r, err := s.open(ids[i])
		if !errors.Is(err, fs.ErrNotExist) {
			return r, err
		}
		// It was removed between ReadDir and Open: newer ones are there.
	}
	return nil, ctx.Err()
}

func (s *Store) open(id snapshot.ID) (*snapshot.Reader, error) {
	file, err := os.Open(s.path(id))
	if err != nil {
		return nil, err
	}
	r, err := snapshot.NewReader(file, s.o.Limits)
	if err == nil && r.Header().ID != id {
		err = misnamed(r.Header().ID)
	}
	if err != nil {
		_ = file.Close()
		return nil, snapshot.WithID(err, id)
	}
	if st, err := file.Stat(); err == nil {
		r.Announce(st.Size())
	}
	return r, nil
}

// List describes the snapshots, the newest first. It reads their beginnings and
// ends only.
func (s *Store) List(_ context.Context) ([]snapshot.Info, error) {
	ids, err := s.stored()
	if err != nil {
		return nil, fmt.Errorf("cannot list snapshots in %q: %w", s.o.Dir, err)
	}
	infos := make([]snapshot.Info, 0, len(ids))
	for _, id := range ids {
		info, err := s.describe(id)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		info.ID, info.Err = id, snapshot.WithID(err, id)
		infos = append(infos, info)
	}
	return infos, nil
}

func (s *Store) describe(id snapshot.ID) (snapshot.Info, error) {
	f, err := os.Open(s.path(id))
	if err != nil {
		return snapshot.Info{}, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return snapshot.Info{}, err
	}
	info, err := snapshot.Describe(f, st.Size(), s.o.Limits)
	if err == nil && info.ID != id {
		err = misnamed(info.ID)
	}
	return info, err
}

func misnamed(id snapshot.ID) error {
	return snapshot.Reject(snapshot.ReasonMismatch, "the file of that name holds snapshot %s", id)
}
