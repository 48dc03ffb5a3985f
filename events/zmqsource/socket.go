package zmqsource

import (
	"fmt"
	"time"

	"github.com/kvindex/kvindex/events"
	zmq "github.com/pebbe/zmq4"
)

// maxFrames is more than any message of the protocol has.
const maxFrames = 8

// socket is a ZMQ socket that is never waited for. It belongs to one
// goroutine.
type socket struct {
	z *zmq.Socket
	w *watcher
}

func (s *Source) newSocket(t zmq.Type, wake chan<- struct{}, set func(*zmq.Socket) error) (*socket, error) {
	z, err := s.zctx.NewSocket(t)
	if err != nil {
		return nil, fmt.Errorf("cannot create a ZMQ %v socket: %w", t, err)
	}
	if err := set(z); err != nil {
		return nil, closing(z, fmt.Errorf("cannot set up a ZMQ %v socket: %w", t, err))
	}
	fd, err := z.GetFd()
	if err != nil {
		return nil, closing(z, fmt.Errorf("cannot get the descriptor of a ZMQ %v socket: %w", t, err))
	}
	w, err := watch(fd, wake)
	if err != nil {
		return nil, closing(z, err)
	}
	return &socket{z: z, w: w}, nil
}

// closing closes z on the way out with err.
func closing(z *zmq.Socket, err error) error {
	_ = z.Close()
	return err
}

// newSub makes the socket for live batches.
func (s *Source) newSub(spec events.StreamSpec, wake chan<- struct{}) (*socket, error) {
	return s.newSocket(zmq.SUB, wake, func(z *zmq.Socket) error {
		return firstError(
			s.harden(z),
			z.SetRcvhwm(s.opts.ReceiveQueue),
			z.SetReconnectIvl(100*time.Millisecond),
			z.SetReconnectIvlMax(time.Second),
			// Silent death (no FIN, a vanished node) shows as a disconnect.
			z.SetHeartbeatIvl(5*time.Second),
			z.SetHeartbeatTimeout(15*time.Second),
			z.SetSubscribe(spec.Topic),
		)
	})
}

// newDealer makes a socket for one replay, begins to connect it, and a socket
// that reports of its connection.
func (s *Source) newDealer(endpoint string, wake chan<- struct{}) (dealer, mon *socket, err error) {
	dealer, err = s.newSocket(zmq.DEALER, wake, func(z *zmq.Socket) error {
		return firstError(
			s.harden(z),
			// The engine's ROUTER drops silently when its queue to us is full:
			// never be the reason.
			z.SetRcvhwm(0),
			z.SetReconnectIvl(50*time.Millisecond),
			// Not ZMQ_IMMEDIATE, which would tell a connection without a monitor:
			// when the connection ends, it drops what has not been read yet, and
			// where that is the rest of a message libzmq aborts the process.
		)
	})
	if err != nil {
		return nil, nil, err
	}
	if mon, err = s.newMonitor(dealer, wake); err != nil {
		dealer.close()
		return nil, nil, err
	}
	if err := dealer.connect(endpoint); err != nil {
		dealer.stopMonitor()
		mon.close()
		dealer.close()
		return nil, nil, err
	}
	return dealer, mon, nil
}

func (s *Source) harden(z *zmq.Socket) error {
	return firstError(
		z.SetLinger(0),
		z.SetMaxmsgsize(s.opts.MaxFrame),
		z.SetTcpKeepalive(1),
		z.SetTcpKeepaliveIdle(30),
		z.SetTcpKeepaliveIntvl(10),
		z.SetTcpKeepaliveCnt(3),
		z.SetIpv6(true),
	)
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// monitored are the events of a connection that matter.
const monitored = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | zmq.EVENT_CONNECT_RETRIED |
	zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH

// newMonitor makes the socket that reports of the connection of another:
// libzmq reconnects without a word otherwise.
func (s *Source) newMonitor(other *socket, wake chan<- struct{}) (*socket, error) {
	addr := fmt.Sprintf("inproc://monitor-%d", s.names.Add(1))
	if err := other.z.Monitor(addr, monitored); err != nil {
		return nil, fmt.Errorf("cannot monitor a ZMQ socket: %w", err)
	}
	m, err := s.newSocket(zmq.PAIR, wake, func(z *zmq.Socket) error { return z.SetLinger(0) })
	if err != nil {
		return nil, err
	}
	if err := m.connect(addr); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

func (s *socket) connect(endpoint string) error {
	if err := s.z.Connect(endpoint); err != nil {
		return fmt.Errorf("cannot connect to %q: %w", endpoint, err)
	}
	return nil
}

// redial connects again where libzmq may have given up.
func (s *socket) redial(endpoint string) error {
	_ = s.z.Disconnect(endpoint) // fails if it has given up
	return s.connect(endpoint)
}

func (s *socket) rearm() { s.w.rearm() }

func (s *socket) close() {
	s.w.close()
	_ = s.z.Close() // nothing to do about it: the socket is gone either way
}

// stopMonitor ends the reports of newMonitor.
func (s *socket) stopMonitor() {
	_ = s.z.Monitor("", 0) // as above
}

// recv returns the next message, if one is there. The frames are the
// caller's. Of a message with too many frames only the first few are kept:
// it fails the parser either way.
func (s *socket) recv() ([][]byte, bool) {
	var frames [][]byte
	for {
		f, err := s.z.RecvBytes(zmq.DONTWAIT)
		if err != nil {
			return nil, false
		}
		if frames == nil {
			frames = make([][]byte, 0, 4)
		}
		if len(frames) <= maxFrames {
			frames = append(frames, f)
		}
		if more, err := s.z.GetRcvmore(); err != nil || !more {
			return frames, true
		}
	}
}

// send sends a message if the socket takes it now.
func (s *socket) send(frames ...[]byte) bool {
	for i, f := range frames {
		flags := zmq.DONTWAIT
		if i < len(frames)-1 {
			flags |= zmq.SNDMORE
		}
		if _, err := s.z.SendBytes(f, flags); err != nil {
			return false
		}
	}
	return true
}

// events returns what a monitor socket has to report.
func (s *socket) events() []zmq.Event {
	var news []zmq.Event
	for {
		e, _, _, err := s.z.RecvEvent(zmq.DONTWAIT)
		if err != nil {
			return news
		}
		news = append(news, e)
	}
}
