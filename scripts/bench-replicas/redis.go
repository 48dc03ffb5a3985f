package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// redisServer is a Redis of this run, which keeps nothing on disk.
type redisServer struct {
	cmd  *exec.Cmd
	addr string
}

// startRedis starts a redis-server on a free port of the loopback interface.
func startRedis(ctx context.Context, dir string) (*redisServer, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("cannot start Redis: %w: make setup installs it", err)
	}
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, "--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "no", "--loglevel", "warning")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start Redis: %w", err)
	}
	s := &redisServer{cmd, addr}
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr)
		if err == nil {
			return s, conn.Close()
		}
		if ctx.Err() != nil || time.Now().After(until) {
			s.stop()
			return nil, fmt.Errorf("cannot reach the Redis at %s: %w", addr, err)
		}
	}
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("cannot find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func (s *redisServer) stop() {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err == nil {
		_ = s.cmd.Wait() // it was told to end; how it does is of no interest
	}
}
