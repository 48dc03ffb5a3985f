package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// redisServer is a Redis of this run, which keeps nothing on disk.
type redisServer struct {
	client *redis.Client
	cmd    *exec.Cmd
	dir    string
}

// startRedis starts a redis-server on a free port of the loopback interface.
func startRedis(ctx context.Context) (*redisServer, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("cannot start Redis: %w: make setup installs it", err)
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bench-recovery-redis-")
	if err != nil {
		return nil, fmt.Errorf("cannot start Redis: %w", err)
	}
	cmd := lowly(path, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir,
		"--save", "", "--appendonly", "no", "--loglevel", "warning")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		_ = os.RemoveAll(dir) // it is empty
		return nil, fmt.Errorf("cannot start Redis: %w", err)
	}
	s := &redisServer{cmd: cmd, dir: dir, client: redis.NewClient(&redis.Options{
		Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), ReadTimeout: time.Minute, WriteTimeout: time.Minute, MaxRetries: -1,
	})}
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if err = s.client.Ping(ctx).Err(); err == nil {
			return s, nil
		}
		if ctx.Err() != nil || time.Now().After(until) {
			s.stop()
			return nil, fmt.Errorf("cannot reach the Redis on port %d: %w", port, err)
		}
	}
}

// lowly is a command of the lowest priority. It is for those who receive
// snapshots: in a fleet they are on other machines, and what they do takes no
// processor from those who answer queries. Here they get what is left over.
func lowly(name string, args ...string) *exec.Cmd {
	return exec.Command("nice", append([]string{"-n", "19", name}, args...)...)
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("cannot find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func (s *redisServer) stop() {
	_ = s.client.Close() // its connections end with the server in any case
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err == nil {
		_ = s.cmd.Wait() // it was told to end; how it does is of no interest
	}
	_ = os.RemoveAll(s.dir) // nothing is in it, and it is in the folder for such
}
