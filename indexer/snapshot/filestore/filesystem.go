package filestore

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// tryLock locks f against other processes, and other openings of the file in
// this one, until it is closed. The lock ends with the process, however it ends.
func tryLock(f *os.File) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// syncDir makes a renamed file's name survive a power failure.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
