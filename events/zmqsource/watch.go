package zmqsource

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// watcher tells when the descriptor of a ZMQ socket becomes readable, without
// a thread: Go's poller waits for it. libzmq makes it readable when the socket
// may have something to do, and keeps it so until the socket has been called
// and found nothing; so after a report the owner empties the socket and then
// calls rearm.
type watcher struct {
	file  *os.File
	armed chan struct{} // cap 1: a report is asked for
	done  chan struct{}
}

// watch reports on fd by a send on wake that never waits. The descriptor
// stays libzmq's: a duplicate of it is watched.
func watch(fd int, wake chan<- struct{}) (*watcher, error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot watch a ZMQ socket: %w", err)
	}
	// libzmq's descriptor does not block, so the duplicate can be polled.
	w := &watcher{
		file:  os.NewFile(uintptr(dup), "zmq"),
		armed: make(chan struct{}, 1),
		done:  make(chan struct{}),
	}
	conn, err := w.file.SyscallConn()
	if err != nil {
		_ = w.file.Close()
		return nil, fmt.Errorf("cannot watch a ZMQ socket: %w", err)
	}
	go w.run(conn, wake)
	return w, nil
}

func (w *watcher) run(conn syscall.RawConn, wake chan<- struct{}) {
	defer close(w.done)
	for range w.armed {
		// Read calls readable first and after every edge, so that a descriptor
		// that was readable before the wait began is not missed.
		if err := conn.Read(readable); err != nil {
			return // closed
		}
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

func (w *watcher) rearm() {
	select {
	case w.armed <- struct{}{}:
	default:
	}
}

// close ends the watch and waits for its goroutine.
func (w *watcher) close() {
	close(w.armed)
	_ = w.file.Close() // wakes a pending Read
	<-w.done
}

func readable(fd uintptr) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(p, 0)
		if err != unix.EINTR {
			return n > 0 || err != nil
		}
	}
}
