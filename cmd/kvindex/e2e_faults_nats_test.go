package main_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"syscall"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kvindex/kvindex/events/natssource"
)

// relayed starts an engine with a relay that publishes to NATS at url.
func (f *faultRun) relayed(id, url string, args ...string) *pod {
	f.Helper()
	p := f.pod(id, podOptions(f))
	p.model = "sim"
	relayProcess(f, url, id, p.Engine, args...)
	p.awaitSubscribers()
	f.did("a relay of %s", id)
	return p
}

// overNATS is kvindex that reads NATS at url.
func overNATS(url string) string { return fmt.Sprintf("nats: {url: %q}\n", url) }

// admin runs do with a connection of its own, as an operator would.
func (f *faultRun) admin(url string, do func(ctx context.Context, nc *nats.Conn, js jetstream.JetStream) error) {
	f.Helper()
	nc, err := nats.Connect(url)
	f.check(err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	f.check(err)
	ctx, cancel := context.WithTimeout(context.Background(), faultWait)
	defer cancel()
	f.check(do(ctx, nc, js))
}

// natsCluster is three servers that replicate what they keep.
type natsCluster []*natsServer

func startNATSCluster(f *faultRun) natsCluster {
	var c natsCluster
	var routes []*url.URL
	for range 3 {
		routes = append(routes, &url.URL{Scheme: "nats", Host: freeAddr(f)})
	}
	for i, route := range routes {
		opts := &natsd.Options{
			ServerName: fmt.Sprintf("n%d", i), Host: "127.0.0.1", Port: portOf(freeAddr(f)), JetStream: true, StoreDir: f.TempDir(), NoLog: true, NoSigs: true,
			Cluster: natsd.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: portOf(route.Host)}, Routes: routes,
		}
		n := &natsServer{t: f, opts: opts}
		n.start()
		f.Cleanup(n.stop)
		c = append(c, n)
	}
	f.until("the NATS cluster has no leader", func() bool {
		for _, n := range c {
			if n.srv.JetStreamIsLeader() {
				return len(n.srv.JetStreamClusterPeers()) == len(c)
			}
		}
		return false
	})
	return c
}

func (c natsCluster) url() string {
	var urls []string
	for _, n := range c {
		urls = append(urls, n.url())
	}
	return strings.Join(urls, ",")
}

// leader is the server that leads the stream, nil where none does.
func (c natsCluster) leader() *natsServer {
	for _, n := range c {
		if n.srv.Running() && n.srv.JetStreamIsStreamLeader("$G", natssource.DefaultStream) {
			return n
		}
	}
	return nil
}

// until waits for a condition that has no server to blame.
func (f *faultRun) until(wrong string, done func() bool) {
	f.Helper()
	for end := time.Now().Add(faultWait); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			f.Fatal(wrong)
		}
	}
}

func portOf(addr string) (port int) {
	_, text, _ := strings.Cut(addr, ":")
	_, _ = fmt.Sscan(text, &port)
	return port
}

// natsDown is fault 18: a leader steps down, a leader dies, and all are down.
func natsDown(f *faultRun) {
	c := startNATSCluster(f)
	p := f.relayed("pod-0", c.url(), "--stream-replicas", "3")
	p.work(10)
	s := f.serve(overNATS(c.url()))
	f.live(s, p)
	f.until("the stream has no leader", func() bool { return c.leader() != nil })

	f.inject("the stream's leader steps down")
	f.admin(c.url(), func(_ context.Context, nc *nats.Conn, _ jetstream.JetStream) error {
		_, err := nc.Request("$JS.API.STREAM.LEADER.STEPDOWN."+natssource.DefaultStream, nil, faultWait)
		return err
	})
	p.work(10)
	f.live(s, p)
	f.until("the stream has no leader", func() bool { return c.leader() != nil })
	f.inject("its server dies")
	dead := c.leader()
	dead.stop()
	p.work(10)
	f.live(s, p)
	f.see("live through both")

	f.inject("all servers are down, and start again")
	for _, n := range c {
		n.stop()
	}
	f.see("%s", p.is(s, "disconnected", ""))
	p.work(10)
	f.started = time.Now()
	for _, n := range c {
		n.start()
	}
	f.live(s, p)
	if st := p.status(s).Streams[0]; st.Lost > 0 || st.Incarnations != 1 {
		f.Errorf("%+v", st)
	}
	f.see("live, none lost")
}

// slowConsumer is fault 19: kvindex is not run while much is published, over
// NATS and over ZMQ.
func slowConsumer(f *faultRun) {
	n := &natsServer{t: f, opts: &natsd.Options{
		Host: "127.0.0.1", Port: portOf(freeAddr(f)), JetStream: true, StoreDir: f.TempDir(), NoLog: true, NoSigs: true,
		MaxPending: 1 << 20, MaxPayload: 256 << 10, WriteDeadline: time.Second,
	}}
	n.start()
	f.Cleanup(n.stop)
	over := f.relayed("over-nats", n.url())
	s := f.serve(overNATS(n.url()))
	o := podOptions(f)
	o.Stream.HWM, o.Stream.BufferSteps = 100, 50_000
	direct := f.pod("direct", o).follow(s)
	over.work(5)
	direct.work(5)
	f.live(s, over, direct)
	f.inject("kvindex is not run while 15,000 batches come over NATS and 30,000 over ZMQ with a high-water mark of 100")
	f.check(s.cmd.Process.Signal(syscall.SIGSTOP))
	f.check(over.Rank(0).Flood(15_000))
	for range 30 {
		f.check(direct.Rank(0).Flood(1000))
	}
	time.Sleep(3 * time.Second)
	f.started = time.Now()
	f.check(s.cmd.Process.Signal(syscall.SIGCONT))
	f.live(s, over, direct)
	a, b := over.status(s).Streams[0], direct.status(s).Streams[0]
	f.see("%d times cut off by NATS, else it waits; %d and %d replays, none lost", n.srv.NumSlowConsumers(), a.Replays, b.Replays)
	if a.Lost+b.Lost > 0 {
		f.Errorf("%+v, %+v", a, b)
	}
}

// streamPurged is fault 20: what kvindex has not read yet is purged.
func streamPurged(f *faultRun) {
	n := startNATS(f)
	p := f.relayed("pod-0", n.url())
	p.work(10)
	config, _ := f.snapshotsIn()
	config = overNATS(n.url()) + config
	s := f.serve(config)
	f.live(s, p)
	purge := func() {
		f.admin(n.url(), func(ctx context.Context, _ *nats.Conn, js jetstream.JetStream) error {
			st, err := js.Stream(ctx, natssource.DefaultStream)
			if err != nil {
				return err
			}
			f.until("the relay is behind", func() bool {
				info, err := st.Info(ctx)
				return err == nil && info.State.LastSeq >= p.Rank(0).Stream().Seq()
			})
			return st.Purge(ctx)
		})
	}
	f.inject("all is purged while kvindex is not run")
	f.check(s.cmd.Process.Signal(syscall.SIGSTOP))
	p.work(20)
	purge()
	f.check(s.cmd.Process.Signal(syscall.SIGCONT))
	f.live(s, p)
	f.see("live")
	f.awaitSnapshot(s, func() { p.work(1) })
	f.inject("... and while it is dead")
	s.kill(syscall.SIGKILL)
	p.work(20)
	purge()
	s = f.serve(config)
	f.live(s, p)
	st := p.status(s).Streams[0]
	f.see("live after %d replays from the relay", st.Replays)
	p.work(5)
	f.live(s, p)
}

// streamRecreated is fault 21.
func streamRecreated(f *faultRun) {
	n := startNATS(f)
	p := f.relayed("pod-0", n.url())
	p.work(10)
	s := f.serve(overNATS(n.url()))
	f.live(s, p)
	f.inject("the stream is deleted; its relay makes a new one")
	f.admin(n.url(), func(ctx context.Context, _ *nats.Conn, js jetstream.JetStream) error {
		return js.DeleteStream(ctx, natssource.DefaultStream)
	})
	p.work(10)
	f.live(s, p)
	s.within(faultWait, func() string {
		if n := s.metric(`kvindex_nats_surprises_total{what="recreated"}`); n != 1 {
			return fmt.Sprintf("%v re-creations are counted", n)
		}
		return ""
	})
	f.see("surprises_total{recreated} 1, live")
	p.work(5)
	f.live(s, p)
}
