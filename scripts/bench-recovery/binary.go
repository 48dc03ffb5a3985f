package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/kvindex/kvindex/events/enginesim"
)

// The real program follows so many engines, which hold a million blocks.
const (
	numEngines   = 8
	engineBlocks = 125_000
)

// measureRestart starts the real program again and again on a snapshot of a
// million blocks.
func measureRestart(ctx context.Context, o options, t *table) error {
	dir, err := os.MkdirTemp("", "bench-recovery-")
	if err != nil {
		return fmt.Errorf("cannot make a directory for the program: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // it is in the folder for such
	p := &program{path: filepath.Join(dir, "kvindex"), dir: dir}
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", p.path, "./cmd/kvindex").CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build kvindex: %w\n%s", err, out)
	}
	engines, err := startEngines()
	if err != nil {
		return err
	}
	defer func() {
		for _, e := range engines {
			_ = e.Close() // the process ends
		}
	}()
	if err := p.configure(ctx, engines); err != nil {
		return err
	}
	held, err := p.learn(ctx, engines)
	if err != nil {
		return err
	}
	var listens, first, exact []time.Duration
	for range o.rounds {
		s, err := p.restart(ctx, held)
		if err != nil {
			return err
		}
		listens, first, exact = append(listens, s.listens), append(first, s.knows), append(exact, s.exact)
	}
	if err := p.measureQueries(ctx, o, held, t); err != nil {
		return err
	}
	t.add("process start to an answer, that nothing is known yet", ms(median(listens)), "ms", 0)
	t.add("process start to an answer from the snapshot", ms(median(first)), "ms", 0)
	t.add("process start to an exact answer", ms(median(exact)), "ms", 5000)
	return nil
}

func startEngines() ([]*enginesim.Engine, error) {
	var engines []*enginesim.Engine
	for i := range numEngines {
		e, err := enginesim.Start(enginesim.EngineOptions{
			Pool: enginesim.PoolOptions{Blocks: engineBlocks + 2, BlockSize: blockSize, Vocabulary: 150_000}, Ranks: 1,
			Stream: enginesim.StreamOptions{BufferSteps: 100}, // most of it only a snapshot knows
			Seed:   uint64(i),
		})
		if err != nil {
			return nil, err
		}
		engines = append(engines, e)
	}
	return engines, nil
}

// program is the real program and its configuration.
type program struct {
	path, dir, config, url string
	cmd                    *exec.Cmd
	log                    bytes.Buffer
}

func (p *program) configure(ctx context.Context, engines []*enginesim.Engine) error {
	lis, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	addr := lis.Addr().String()
	if err := lis.Close(); err != nil {
		return err
	}
	p.url = "http://" + addr
	b := fmt.Appendf(nil, "listen: %s\nsnapshot: {dir: %s}\napi: {drain_time: 0s}\ninstances:\n", addr, filepath.Join(p.dir, "data"))
	for i, e := range engines {
		b = fmt.Appendf(b, "  - {id: pod-%d, model: %s, endpoint: %q, replay_endpoint: %q}\n", i, model, e.Endpoint(0), e.ReplayEndpoint(0))
	}
	p.config = filepath.Join(p.dir, "kvindex.yaml")
	return os.WriteFile(p.config, b, 0o600)
}

func (p *program) start() error {
	p.log.Reset()
	p.cmd = exec.Command(p.path, "serve", "--config", p.config)
	p.cmd.Stderr = &p.log
	return p.cmd.Start()
}

func (p *program) end(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return err
	}
	err := p.cmd.Wait()
	if _, exited := errors.AsType[*exec.ExitError](err); exited && s == syscall.SIGKILL {
		return nil
	}
	if err != nil {
		return fmt.Errorf("kvindex: %w\n%s", err, p.log.Bytes())
	}
	return nil
}

// learn has the program hear of a million blocks and end with a snapshot, and
// returns a prompt that is held.
func (p *program) learn(ctx context.Context, engines []*enginesim.Engine) (held []uint32, err error) {
	if err := p.start(); err != nil {
		return nil, err
	}
	begin := time.Now()
	for i, e := range engines {
		wctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		err := e.WaitSubscribers(wctx)
		cancel()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("kvindex does not subscribe: %w\n%s", err, p.log.Bytes()), p.end(syscall.SIGKILL))
		}
		pool, err := enginesim.NewPool(enginesim.PoolOptions{Vocabulary: 150_000, Seed: uint64(begin.UnixNano()) + uint64(i)})
		if err != nil {
			return nil, err
		}
		for range engineBlocks / docBlocks {
			held = pool.RandomTokens(docBlocks * blockSize)
			if _, err := e.Rank(0).Run(enginesim.Request{Tokens: held}); err != nil {
				return nil, err
			}
		}
	}
	for {
		n, err := p.blocks(ctx)
		if err != nil {
			return nil, errors.Join(err, p.end(syscall.SIGKILL))
		}
		if n == numEngines*engineBlocks {
			break
		}
		if time.Since(begin) > 2*time.Minute {
			return nil, errors.Join(fmt.Errorf("kvindex holds %d blocks\n%s", n, p.log.Bytes()), p.end(syscall.SIGKILL))
		}
		time.Sleep(100 * time.Millisecond)
	}
	log.Printf("kvindex heard of %d blocks in %.0f s", numEngines*engineBlocks, time.Since(begin).Seconds())
	return held, p.end(syscall.SIGTERM)
}

// blocks are how many the program holds.
func (p *program) blocks(ctx context.Context) (n int, err error) {
	var list struct {
		Instances []struct {
			Streams []struct {
				Blocks struct {
					GPU int `json:"gpu"`
				} `json:"blocks"`
			} `json:"streams"`
		} `json:"instances"`
	}
	if err := p.call(ctx, http.MethodGet, "/v1/instances", "", &list); err != nil {
		return 0, err
	}
	for _, in := range list.Instances {
		for _, s := range in.Streams {
			n += s.Blocks.GPU
		}
	}
	return n, nil
}

// measureQueries asks the program for a document while another replica reads
// snapshots of it, and while none does.
func (p *program) measureQueries(ctx context.Context, o options, held []uint32, t *table) error {
	if err := p.start(); err != nil {
		return err
	}
	defer func() { _ = p.end(syscall.SIGKILL) }() // it has no more to do
	if _, err := p.untilExact(ctx, held, time.Now()); err != nil {
		return err
	}
	query := queryOf(held)
	ask := func() (time.Duration, error) {
		begin := time.Now()
		var a json.RawMessage
		err := p.call(ctx, http.MethodPost, "/v1/query", query, &a)
		return time.Since(begin), err
	}
	other, err := startReplica(p.url + "/v1/snapshot")
	if err != nil {
		return fmt.Errorf("cannot start another replica: %w", err)
	}
	defer other.stop()
	read := func() error { return other.read(numEngines * engineBlocks) }
	return compare(o, t, "query over HTTP", "snapshots to a replica", ask, read)
}

func queryOf(held []uint32) string {
	raw := make([]byte, 0, 4*len(held))
	for _, tok := range held {
		raw = binary.LittleEndian.AppendUint32(raw, tok)
	}
	return fmt.Sprintf(`{"model":%q,"token_ids_b64":%q}`, model, base64.StdEncoding.EncodeToString(raw))
}

// startTimes are how long after its start the program answered at all, with what
// the snapshot holds, and exactly.
type startTimes struct{ listens, knows, exact time.Duration }

// restart starts the program, asks until the answer is exact, and kills it.
func (p *program) restart(ctx context.Context, held []uint32) (startTimes, error) {
	begin := time.Now()
	if err := p.start(); err != nil {
		return startTimes{}, err
	}
	s, err := p.untilExact(ctx, held, begin)
	return s, errors.Join(err, p.end(syscall.SIGKILL))
}

// untilExact asks until the answer is exact.
func (p *program) untilExact(ctx context.Context, held []uint32, begin time.Time) (s startTimes, err error) {
	query := queryOf(held)
	for ; ; time.Sleep(500 * time.Microsecond) {
		var a struct {
			State     string `json:"state"`
			Reason    string `json:"reason"`
			Instances map[string]struct {
				Matched int `json:"matched_blocks"`
			} `json:"instances"`
		}
		err := p.call(ctx, http.MethodPost, "/v1/query", query, &a)
		if err == nil && s.listens == 0 {
			s.listens = time.Since(begin)
		}
		if err == nil && s.knows == 0 && a.State != "cold" {
			s.knows = time.Since(begin)
		}
		if err == nil && a.State == "exact" {
			s.exact = time.Since(begin)
			if n := a.Instances[fmt.Sprint("pod-", numEngines-1)].Matched; n != docBlocks {
				err = fmt.Errorf("the answer is called exact and has %d blocks, not %d", n, docBlocks)
			}
			return s, err
		}
		if time.Since(begin) > time.Minute || ctx.Err() != nil {
			return s, errors.Join(err, fmt.Errorf("no exact answer after %v: %q: %s\n%s", time.Since(begin), a.State, a.Reason, p.log.Bytes()))
		}
	}
}

func (p *program) call(ctx context.Context, method, path, body string, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, p.url+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, b)
	}
	return json.Unmarshal(b, into)
}
