//go:build unix

package hub

import (
	"errors"
	"os"
	"syscall"
)

// tryLock takes the lock that huggingface_hub takes too (flock). held says that
// another process has it; an error, that there are no locks here.
func tryLock(f *os.File) (held bool, err error) {
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
		return true, nil
	}
	return false, err
}
