package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// server is a running kvindex.
type server struct {
	cmd   *exec.Cmd
	url   *url.URL
	log   bytes.Buffer // complete when ended is closed
	ended chan struct{}
}

// build makes the program in dir.
func build(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "kvindex")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/kvindex/kvindex/cmd/kvindex").CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build kvindex: %w\n%s", err, out)
	}
	return path, nil
}

// startServer starts kvindex with a configuration and waits until it answers.
func startServer(ctx context.Context, binary, dir, config string) (*server, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "kvindex.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, fmt.Errorf("cannot write the configuration: %w", err)
	}
	s := &server{
		cmd:   exec.Command(binary, "serve", "--listen", addr, "--config", file),
		url:   &url.URL{Scheme: "http", Host: addr, Path: "/v1/query"},
		ended: make(chan struct{}),
	}
	s.cmd.Env = append(os.Environ(), "KVINDEX_API_DRAIN_TIME=0s")
	s.cmd.Stderr = &s.log
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", binary, err)
	}
	go func() {
		_ = s.cmd.Wait() // its log says why
		close(s.ended)
	}()
	if err := s.until(ctx, 20*time.Second, func() error { return s.call(http.MethodGet, "/healthz", nil, nil) }); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func freeAddr() (string, error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("cannot find a free port: %w", err)
	}
	defer lis.Close()
	return lis.Addr().String(), nil
}

// stop ends kvindex and waits for it.
func (s *server) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(20 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
}

// until calls check until it returns nil, for as long as limit.
func (s *server) until(ctx context.Context, limit time.Duration, check func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-s.ended:
			return fmt.Errorf("kvindex has ended: %w\n%s", err, s.log.Bytes())
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// call sends a request and decodes the answer, if into is not nil.
func (s *server) call(method, path string, body []byte, into any) error {
	req, err := http.NewRequest(method, "http://"+s.url.Host+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Timeout: time.Minute}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: status %d: %.300s", path, resp.StatusCode, b)
	}
	if p, ok := into.(*[]byte); ok {
		*p = b
		return nil
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("cannot read what %s answers: %w", path, err)
	}
	return nil
}

// metric is the sum of a metric over the lines whose labels contain label.
func (s *server) metric(name, label string) (float64, error) {
	var text []byte
	if err := s.call(http.MethodGet, "/metrics", nil, &text); err != nil {
		return 0, err
	}
	return sumMetric(string(text), name, label)
}

func sumMetric(text, name, label string) (sum float64, err error) {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || (rest[0] != '{' && rest[0] != ' ') || !strings.Contains(rest, label) {
			continue
		}
		fields := strings.Fields(rest)
		v, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			return 0, fmt.Errorf("cannot read the metric %s: %w", name, err)
		}
		sum += v
	}
	return sum, nil
}

// cpu is the processor time of kvindex so far, 0 where the system does not
// tell.
func (s *server) cpu() time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	d, err := parseStat(string(b))
	if err != nil {
		return 0
	}
	return d
}

// userHZ is the unit of times in /proc: 100 a second on every Linux.
const userHZ = 100

// parseStat returns utime + stime of a line of /proc/PID/stat: fields 14 and
// 15 (proc(5)). The second is a name that may hold anything.
func parseStat(line string) (time.Duration, error) {
	i := strings.LastIndexByte(line, ')')
	fields := strings.Fields(line[i+1:])
	if i < 0 || len(fields) < 13 {
		return 0, errors.New("cannot read /proc/PID/stat: it has too few fields")
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("cannot read /proc/PID/stat: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / userHZ, nil
}
