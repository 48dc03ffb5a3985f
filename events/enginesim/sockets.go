package enginesim

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/pebbe/zmq4"
)

// sockets are the two sockets of a process that is up.
type sockets struct {
	pub, router           *zmq4.Socket // router is nil without a replay endpoint
	watchPub, watchRouter *watch
}

func (s *sockets) pubReady() <-chan struct{} { return s.watchPub.ready }

func (s *sockets) routerReady() <-chan struct{} {
	if s.watchRouter == nil {
		return nil
	}
	return s.watchRouter.ready
}

// open binds both sockets, trying again for wait while their ports are taken.
func (s *Stream) open(wait time.Duration) error {
	k := &sockets{}
	bind := func(kind zmq4.Type, endpoint *string, hwm int) (*zmq4.Socket, *watch, error) {
		soc, err := s.newSocket(kind, hwm)
		if err != nil {
			return nil, nil, err
		}
		if err := s.bind(soc, *endpoint, time.Now().Add(wait)); err != nil {
			soc.Close()
			return nil, nil, err
		}
		bound, err := soc.GetLastEndpoint()
		if err != nil {
			soc.Close()
			return nil, nil, err
		}
		w, err := watchSocket(soc)
		if err != nil {
			soc.Close()
			return nil, nil, err
		}
		s.mu.Lock()
		*endpoint = bound
		s.mu.Unlock()
		return soc, w, nil
	}
	var err error
	if k.pub, k.watchPub, err = bind(zmq4.XPUB, &s.pub, s.o.HWM); err != nil {
		return fmt.Errorf("cannot bind the publisher at %q: %w", s.pub, err)
	}
	if !s.o.NoReplay {
		if k.router, k.watchRouter, err = bind(zmq4.ROUTER, &s.router, max(s.o.ReplayHWM, 0)); err != nil {
			k.close()
			return fmt.Errorf("cannot bind the replay socket at %q: %w", s.router, err)
		}
	}
	s.sockets = k
	return nil
}

func (s *Stream) newSocket(kind zmq4.Type, hwm int) (*zmq4.Socket, error) {
	create := zmq4.NewSocket
	if s.o.Context != nil {
		create = s.o.Context.NewSocket
	}
	soc, err := create(kind)
	if err != nil {
		return nil, err
	}
	err = errors.Join(soc.SetLinger(0), soc.SetSndhwm(hwm))
	if kind == zmq4.XPUB {
		err = errors.Join(err, soc.SetXpubVerboser(1)) // tell of every subscription and of its end
	}
	if err != nil {
		soc.Close()
		return nil, err
	}
	return soc, nil
}

// bind tries until deadline: ZMQ gives up a port some time after the socket
// that had it was closed.
func (s *Stream) bind(soc *zmq4.Socket, endpoint string, deadline time.Time) error {
	for {
		err := soc.Bind(endpoint)
		if err == nil || zmq4.AsErrno(err) != zmq4.Errno(syscall.EADDRINUSE) || time.Now().After(deadline) {
			return err
		}
		if !s.sleep(5 * time.Millisecond) {
			return ErrClosed
		}
	}
}

// close closes the sockets, if there are any; their subscribers are gone.
func (s *Stream) close() {
	if s.sockets == nil {
		return
	}
	s.sockets.close()
	s.sockets = nil
	s.asked = false
	s.addSubscribers(-s.Subscribers())
}

func (s *sockets) close() {
	s.watchPub.close()
	s.pub.Close()
	if s.router != nil {
		s.watchRouter.close()
		s.router.Close()
	}
}

// readSubscriptions reads what subscribers sent and returns how many
// subscriptions came, less those that ended.
func (s *sockets) readSubscriptions() (d int) {
	for {
		b, err := s.pub.RecvBytes(zmq4.DONTWAIT)
		if err != nil {
			return d
		}
		if len(b) > 0 && b[0] == 1 {
			d++
		} else if len(b) > 0 && b[0] == 0 {
			d--
		}
	}
}

// sendAll sends one message. It does not wait.
func sendAll(soc *zmq4.Socket, frames ...[]byte) error {
	for i, f := range frames {
		flags := zmq4.DONTWAIT
		if i < len(frames)-1 {
			flags |= zmq4.SNDMORE
		}
		if _, err := soc.SendBytes(f, flags); err != nil {
			return err
		}
	}
	return nil
}

// watch tells when a socket may have something to read, without a thread that
// waits in ZMQ: Go's poller watches a copy of the socket's descriptor. A tell
// may be for nothing, and the descriptor tells only once, so the owner has to
// read until there is nothing left.
type watch struct {
	ready chan struct{}
	file  *os.File
	done  chan struct{}
}

func watchSocket(soc *zmq4.Socket) (*watch, error) {
	fd, err := soc.GetFd()
	if err != nil {
		return nil, fmt.Errorf("cannot get the socket's descriptor: %w", err)
	}
	syscall.ForkLock.RLock()
	own, err := syscall.Dup(fd)
	if err == nil {
		syscall.CloseOnExec(own)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, fmt.Errorf("cannot copy the socket's descriptor: %w", err)
	}
	w := &watch{ready: make(chan struct{}, 1), file: os.NewFile(uintptr(own), "zmq"), done: make(chan struct{})}
	conn, err := w.file.SyscallConn()
	// A file that Go's poller does not watch has no deadlines.
	if err := errors.Join(err, w.file.SetReadDeadline(time.Time{})); err != nil {
		w.file.Close()
		return nil, fmt.Errorf("cannot watch the socket's descriptor: %w", err)
	}
	go func() {
		defer close(w.done)
		// Never true, so that it is one wait without end: between two, an edge
		// could go unseen.
		_ = conn.Read(func(uintptr) bool {
			select {
			case w.ready <- struct{}{}:
			default:
			}
			return false
		})
	}()
	return w, nil
}

// close ends the watch and waits for it. The socket is still open.
func (w *watch) close() {
	w.file.Close()
	<-w.done
}
