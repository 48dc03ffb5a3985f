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
	dir, err := os.MkdirTemp("", "bench-tokenizer-redis-")
	if err != nil {
		return nil, fmt.Errorf("cannot start Redis: %w", err)
	}
	cmd := exec.Command(path, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir,
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

// blockKey is the key of a block in kthena's index: a hash of pod.namespace to
// the Unix time at which it was stored.
func blockKey(hash uint64) string {
	return "matrix:kv:block:" + chatModel + "@" + strconv.FormatUint(hash, 10)
}

// store says of every pod that it holds the blocks.
func (s *redisServer) store(ctx context.Context, hashes []uint64) error {
	values := make([]any, 0, 2*len(pods))
	for _, p := range pods {
		values = append(values, p, strconv.FormatInt(time.Now().Unix(), 10))
	}
	const batch = 1000
	for len(hashes) > 0 {
		n := min(batch, len(hashes))
		_, err := s.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, h := range hashes[:n] {
				pipe.HSet(ctx, blockKey(h), values...)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("cannot fill Redis: %w", err)
		}
		hashes = hashes[n:]
	}
	return nil
}

// match asks for all blocks in one pipeline, and counts how many leading ones
// each pod holds.
func (s *redisServer) match(ctx context.Context, hashes []uint64) (map[string]int, error) {
	pipe := s.client.Pipeline()
	cmds := make([]*redis.MapStringStringCmd, len(hashes))
	for i, h := range hashes {
		cmds[i] = pipe.HGetAll(ctx, blockKey(h))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("cannot ask Redis for %d blocks: %w", len(hashes), err)
	}
	scores := map[string]int{}
	for i, cmd := range cmds {
		alive := false
		for pod := range cmd.Val() {
			if scores[pod] == i {
				scores[pod] = i + 1
				alive = true
			}
		}
		if !alive {
			break
		}
	}
	return scores, nil
}
