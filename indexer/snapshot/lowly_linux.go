package snapshot

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// onLowlyThread runs do on a thread of the lowest priority: where there is no
// idle processor, whoever else has something to do goes first.
//
// What do does must not keep others waiting, with a lock for instance.
func onLowlyThread(do func() error) error {
	done := make(chan error, 1)
	go func() {
		// It is never unlocked: the thread ends with the goroutine, for an ordinary
		// user cannot raise its priority again. A thread that cannot be made lowly
		// does as well.
		runtime.LockOSThread()
		_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 19)
		done <- do()
	}()
	return <-done
}
