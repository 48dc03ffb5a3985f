package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// logText is what a process says, for when it fails.
type logText struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// process is the real program as a replica or a relay.
type process struct {
	cmd   *exec.Cmd
	log   logText
	ended chan struct{}
}

func startProcess(binary string, env []string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(binary, args...), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = &p.log
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", binary, err)
	}
	go func() {
		_ = p.cmd.Wait() // its log says why
		close(p.ended)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// end sends a signal and waits for the end.
func (p *process) end(s syscall.Signal) {
	_ = p.cmd.Process.Signal(s) // fails only where it has ended
	select {
	case <-p.ended:
	case <-time.After(20 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// buildProgram makes the program in dir.
func buildProgram(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "kvindex")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/kvindex/kvindex/cmd/kvindex").CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build kvindex: %w\n%s", err, out)
	}
	return path, nil
}

// replica is a running `kvindex serve`.
type replica struct {
	*process
	addr   string
	client *http.Client
}

// startReplica starts one that reads NATS and keeps its snapshots in Redis. It
// does not wait for anything.
func startReplica(binary, dir string, nats *natsServer, redis *redisServer) (*replica, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "kvindex.yaml")
	config := fmt.Sprintf("nats: {url: %q}\nsnapshot: {redis: \"redis://%s\", cluster: bench, interval: %v}\napi: {drain_time: 0s}\n", nats.url, redis.addr, snapshotEvery)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, fmt.Errorf("cannot write the configuration: %w", err)
	}
	p, err := startProcess(binary, nil, "serve", "--listen", addr, "--config", file, "--log-format", "json")
	if err != nil {
		return nil, err
	}
	return &replica{p, addr, &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 16}}}, nil
}

// ask sends a request; any status but 200 is an error.
func (r *replica) ask(method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequest(method, "http://"+r.addr+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: status %d: %.300s", path, resp.StatusCode, b)
	}
	return b, nil
}

// ready reports what /readyz says.
func (r *replica) ready() bool {
	_, err := r.ask(http.MethodGet, "/readyz", nil)
	return err == nil
}

// answer is what is read of POST /v1/query.
type answer struct {
	State     string `json:"state"`
	Instances map[string]struct {
		Matched int    `json:"matched_blocks"`
		State   string `json:"state"`
	} `json:"instances"`
}

func (r *replica) query(body []byte) (a answer, err error) {
	b, err := r.ask(http.MethodPost, "/v1/query", body)
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(b, &a)
}

// live is how many instances are live.
func (r *replica) live() (n int, err error) {
	var list struct {
		Instances []struct {
			State string `json:"state"`
		} `json:"instances"`
	}
	b, err := r.ask(http.MethodGet, "/v1/instances", nil)
	if err != nil {
		return 0, err
	}
	if err := json.Unmarshal(b, &list); err != nil {
		return 0, err
	}
	for _, in := range list.Instances {
		if in.State == "live" {
			n++
		}
	}
	return n, nil
}

// metric is the sum of the lines of /metrics that begin so.
func (r *replica) metric(prefix string) (sum float64, err error) {
	b, err := r.ask(http.MethodGet, "/metrics", nil)
	if err != nil {
		return 0, err
	}
	return sumMetric(string(b), prefix)
}

func sumMetric(text, prefix string) (sum float64, err error) {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, prefix) {
			continue
		}
		fields := strings.Fields(line)
		v, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			return 0, fmt.Errorf("cannot read the metric %s: %w", prefix, err)
		}
		sum += v
	}
	return sum, nil
}

// until calls check until it returns nil, for as long as limit.
func (r *replica) until(ctx context.Context, limit time.Duration, check func() error) error {
	for end := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		err := check()
		if err == nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		select {
		case <-r.ended:
			return fmt.Errorf("kvindex has ended: %w\n%s", err, r.log.String())
		default:
		}
		if time.Now().After(end) {
			return fmt.Errorf("after %v: %w\n%s", limit, err, r.log.String())
		}
	}
}

// allLive waits until every engine is live.
func (r *replica) allLive(ctx context.Context, engines int) error {
	return r.until(ctx, time.Minute, func() error {
		n, err := r.live()
		if err == nil && n != engines {
			err = fmt.Errorf("%d of %d instances are live", n, engines)
		}
		return err
	})
}

// startRelays starts a relay beside each engine and waits until all follow.
func startRelays(ctx context.Context, binary string, f *fleet, nats *natsServer) (relays []*process, err error) {
	for _, e := range f.engines {
		p, err := startProcess(binary, nil, "relay", "--nats-url", nats.url, "--instance", e.id, "--model", model,
			"--endpoint", e.Endpoint(0), "--replay-endpoint", e.ReplayEndpoint(0), "--listen", "", "--log-level", "warn")
		if err != nil {
			return relays, err
		}
		relays = append(relays, p)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for i, e := range f.engines {
		if err := e.WaitSubscribers(ctx); err != nil {
			return relays, fmt.Errorf("the relay of %s does not follow it: %w\n%s", e.id, err, relays[i].log.String())
		}
	}
	return relays, nil
}

func pids(list []*process) (out []int) {
	for _, p := range list {
		out = append(out, p.pid())
	}
	return out
}

func percentile(ds []time.Duration, p float64) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(ds))
	return s[min(len(s)-1, int(p*float64(len(s))))]
}
