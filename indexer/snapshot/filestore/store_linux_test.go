package filestore

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvindex/kvindex/indexer/snapshot"
)

func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=3m"); err != nil {
		t.Skipf("cannot mount a small file system: %v", err)
	}
	t.Cleanup(func() { ok(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	s := newStore(t, dir)
	_, err := s.Write(t.Context(), testMeta, text("old"))
	ok(t, err)
	_, err = s.Write(t.Context(), testMeta, func(w io.Writer) error { _, err := w.Write(make([]byte, 5<<20)); return err })
	if !errors.Is(err, syscall.ENOSPC) || snapshot.ReasonOf(err) != snapshot.ReasonFull || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("disk full: %v", err)
	}
	_, body, err := read(t, s, snapshot.ID{})
	ok(t, err)
	want(t, "body", body, "old")
	_, err = s.Write(t.Context(), testMeta, text("new")) // what the failed one took is free again
	ok(t, err)
}
