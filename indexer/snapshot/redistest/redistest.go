// Package redistest runs real Redis servers for tests: one, a Redis Cluster, or
// one behind a Sentinel. They listen on free ports of the loopback interface,
// keep nothing, and end with the test.
package redistest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// patience is how long a server may take to become ready.
const patience = 30 * time.Second

// Server is one redis-server process.
type Server struct {
	Addr string // HOST:PORT
	Dir  string // its working directory

	t    testing.TB
	args []string
	cmd  *exec.Cmd
	log  *bytes.Buffer
}

// Start starts a server with the given options, as redis-server takes them on
// its command line ("--requirepass", "secret"). Without a redis-server in PATH
// the test is skipped; with CI=true it fails.
func Start(t testing.TB, options ...string) *Server {
	t.Helper()
	need(t)
	s := &Server{t: t, Dir: t.TempDir()}
	s.Addr = FreeAddr(t)
	_, port, _ := net.SplitHostPort(s.Addr)
	s.args = append([]string{
		"--bind", "127.0.0.1", "--port", port, "--dir", s.Dir, "--save", "", "--appendonly", "no", "--daemonize", "no",
	}, options...)
	s.Restart()
	return s
}

func need(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("redis-server is missing; make setup installs it")
		}
		t.Skip("SKIPPED, NOT TESTED: redis-server is missing; make setup installs it")
	}
}

// FreeAddr returns an address on which nobody listens. Its port is below those
// that kernels give to whoever names none, so that it stays free while the
// server is down.
func FreeAddr(t testing.TB) string {
	t.Helper()
	for range 100 {
		lis, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(2_000)))
		if err == nil {
			addr := lis.Addr().String()
			_ = lis.Close()
			return addr
		}
	}
	t.Fatal("no port is free on 127.0.0.1")
	return ""
}

// Restart starts the server again, empty, after Stop.
func (s *Server) Restart() {
	s.t.Helper()
	s.log = &bytes.Buffer{}
	cmd := exec.Command("redis-server", s.args...)
	cmd.Stdout, cmd.Stderr = s.log, s.log
	if err := cmd.Start(); err != nil {
		s.t.Fatalf("cannot start %s: %v", cmd, err)
	}
	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }()
	stop := sync.OnceFunc(func() {
		_ = cmd.Process.Kill() // also ends a stopped process
		<-exited
	})
	s.cmd = cmd
	s.t.Cleanup(stop)
	deadline := time.Now().Add(patience)
	for {
		conn, err := net.DialTimeout("tcp", s.Addr, time.Second)
		if err == nil {
			conn.Close()
			return
		}
		select {
		case <-exited:
			s.t.Fatalf("%s ended at once:\n%s", cmd, s.log)
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			stop()
			s.t.Fatalf("%s does not listen after %v:\n%s", cmd, patience, s.log)
		}
	}
}

// Stop kills the server.
func (s *Server) Stop() {
	s.t.Helper()
	if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Fatal(err)
	}
	for { // until nobody listens
		conn, err := net.DialTimeout("tcp", s.Addr, time.Second)
		if err != nil {
			return
		}
		conn.Close()
		time.Sleep(time.Millisecond)
	}
}

// Pause stops the process as SIGSTOP does: connections stay, answers stop.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume ends Pause.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// StartCluster starts a Redis Cluster of n nodes without replicas and returns
// their addresses.
func StartCluster(t testing.TB, n int) []string {
	t.Helper()
	var nodes []*Server
	var addrs []string
	for range n {
		_, bus, _ := net.SplitHostPort(FreeAddr(t))
		s := Start(t, "--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-node-timeout", "2000")
		nodes, addrs = append(nodes, s), append(addrs, s.Addr)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for i, s := range nodes {
		on(s.Addr, func(c *redis.Client) { check(t, c.ClusterAddSlotsRange(ctx, i*16384/n, (i+1)*16384/n-1).Err()) })
		host, port, _ := net.SplitHostPort(s.Addr)
		on(nodes[0].Addr, func(c *redis.Client) {
			check(t, c.Do(ctx, "CLUSTER", "MEET", host, port, busPort(s)).Err())
		})
	}
	await(t, "the cluster is not complete", func() bool {
		complete := true
		for _, s := range nodes {
			on(s.Addr, func(c *redis.Client) {
				info, err := c.ClusterInfo(ctx).Result()
				complete = complete && err == nil && strings.Contains(info, "cluster_state:ok") &&
					strings.Contains(info, "cluster_known_nodes:"+strconv.Itoa(n))
			})
		}
		return complete
	})
	return addrs
}

func busPort(s *Server) string {
	for i, a := range s.args {
		if a == "--cluster-port" {
			return s.args[i+1]
		}
	}
	return ""
}

// Sentinel is a master with a replica, and a Sentinel that watches them.
type Sentinel struct {
	Addr            string // of the Sentinel
	MasterName      string
	Master, Replica *Server
}

// StartSentinel starts them. When the master is stopped, the replica takes its
// place within seconds.
func StartSentinel(t testing.TB) *Sentinel {
	t.Helper()
	s := &Sentinel{MasterName: "kv", Master: Start(t)}
	host, port, _ := net.SplitHostPort(s.Master.Addr)
	s.Replica = Start(t, "--replicaof", host+" "+port)
	conf := filepath.Join(t.TempDir(), "sentinel.conf") // it writes to it
	text := fmt.Sprintf("sentinel monitor kv %s %s 1\nsentinel down-after-milliseconds kv 500\nsentinel failover-timeout kv 3000\n", host, port)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w := &Server{t: t, Addr: FreeAddr(t)}
	_, port, _ = net.SplitHostPort(w.Addr)
	w.args = []string{conf, "--sentinel", "--bind", "127.0.0.1", "--port", port}
	w.Restart()
	s.Addr = w.Addr
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := redis.NewSentinelClient(&redis.Options{Addr: s.Addr})
	defer func() { _ = c.Close() }()
	await(t, "the Sentinel does not know the replica", func() bool {
		r, err := c.Replicas(ctx, s.MasterName).Result()
		return err == nil && len(r) == 1 && r[0]["master-link-status"] == "ok"
	})
	return s
}

// on calls f with a client of one server.
func on(addr string, f func(*redis.Client)) {
	c := redis.NewClient(&redis.Options{Addr: addr})
	f(c)
	_ = c.Close() // it has nothing to lose
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func await(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s after %v", what, patience)
		}
	}
}
