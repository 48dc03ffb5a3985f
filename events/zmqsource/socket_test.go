package zmqsource

import (
	"testing"
	"time"

	zmq "github.com/pebbe/zmq4"

	"github.com/kvindex/kvindex/events"
)

// TestPeerEndsWithUnreadMessages: a connection that ends takes nothing with it
// that has come over it, and least of all the process, although half a message
// may have been read.
func TestPeerEndsWithUnreadMessages(t *testing.T) {
	const n = 1000
	src, err := New(Options{})
	check(t, err)
	f := func(name string, kind zmq.Type, connect func(endpoint string) *socket, prefix ...any) {
		t.Run(name, func(t *testing.T) {
			peer, err := src.zctx.NewSocket(kind)
			check(t, err)
			check(t, firstError(peer.SetSndhwm(0), peer.SetLinger(time.Second), peer.Bind("tcp://127.0.0.1:*")))
			endpoint, err := peer.GetLastEndpoint()
			check(t, err)
			s := connect(endpoint)
			defer s.close()
			hello, err := peer.RecvMessageBytes(0) // a request or a subscription
			check(t, err)
			if kind == zmq.ROUTER {
				prefix = append([]any{hello[0]}, prefix...)
			}
			for range n {
				_, err := peer.SendMessage(append(prefix, "seq", "payload")...)
				check(t, err)
			}
			got := 0
			receive := func(most int) {
				for end := time.Now().Add(2 * time.Second); got < most && time.Now().Before(end); {
					if msg, ok := s.recv(); !ok {
						time.Sleep(time.Millisecond)
					} else if got++; len(msg) != 3 || string(msg[2]) != "payload" {
						t.Fatalf("message %d is %q", got, msg)
					}
				}
			}
			receive(7) // so that the rest can be read without a look at the connection
			check(t, peer.Close())
			time.Sleep(100 * time.Millisecond)
			if receive(n); got != n {
				t.Errorf("%d of %d messages came", got, n)
			}
		})
	}
	wake := make(chan struct{}, 1)
	f("replay", zmq.ROUTER, func(endpoint string) *socket {
		s, mon, err := src.newDealer(endpoint, wake)
		check(t, err)
		s.stopMonitor()
		mon.close()
		if !s.send(events.ReplayRequest(0)...) {
			t.Fatal("cannot send a request")
		}
		return s
	}, "")
	f("live", zmq.XPUB, func(endpoint string) *socket {
		s, err := src.newSub(events.StreamSpec{}, wake)
		check(t, err)
		check(t, s.connect(endpoint))
		return s
	}, "topic")
	check(t, src.Close())
}
