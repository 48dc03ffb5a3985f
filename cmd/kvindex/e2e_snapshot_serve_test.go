package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvindex/kvindex/events/enginesim"
	"github.com/kvindex/kvindex/indexer"
	"github.com/kvindex/kvindex/indexer/snapshot/redistest"
)

// followed starts an engine and registers it with s.
func (s *server) followed(t *testing.T, id string, o enginesim.EngineOptions) *enginesim.Engine {
	t.Helper()
	e, err := enginesim.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	body, err := json.Marshal(map[string]any{
		"instance_id": id, "model": "m", "endpoint": e.Endpoint(0), "replay_endpoint": e.ReplayEndpoint(0),
	})
	if err != nil {
		t.Fatal(err)
	}
	if code, answer := s.do(http.MethodPost, "/register", string(body)); code != http.StatusCreated {
		t.Fatalf("%d %s", code, answer)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := e.WaitSubscribers(ctx); err != nil {
		t.Fatal(err)
	}
	return e
}

// held is how many blocks each instance holds, as its pool and as s have it.
func (s *server) agrees(id string, e *enginesim.Engine) string {
	want := len(e.Rank(0).Truth(indexer.NewHasher(indexer.DefaultSeed)))
	in := s.instance(id)
	if in.State != "live" || in.blocks() != want {
		return fmt.Sprintf("%s is %s (%s) and holds %d blocks, want %d", id, in.State, in.Reason, in.blocks(), want)
	}
	return ""
}

func work(t *testing.T, r *rand.Rand, engines ...*enginesim.Engine) {
	t.Helper()
	for _, e := range engines {
		for range 5 {
			tokens := make([]uint32, 16*(1+r.IntN(12)))
			for i := range tokens {
				tokens[i] = uint32(r.IntN(32_000))
			}
			tokens[0] = uint32(r.IntN(4)) // some begin alike
			if _, err := e.Rank(0).Run(enginesim.Request{Tokens: tokens}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestE2ERestart: kvindex ends, by a signal or at once, engines go on or begin
// anew meanwhile, and it comes back from its snapshot: what the engines' replays
// no longer reach is there, nothing of a dead process is, and all is live.
func TestE2ERestart(t *testing.T) {
	server := redistest.Start(t)
	for _, where := range []string{"file", "redis"} {
		for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			t.Run(where+" "+signal.String(), func(t *testing.T) {
				config := "snapshot: {interval: 1s, cluster: " + strings.ReplaceAll(t.Name(), "/", "-") + ", "
				if where == "file" {
					config += "dir: " + filepath.Join(t.TempDir(), "data") + "}"
				} else {
					config += "redis: \"redis://" + server.Addr + "\"}"
				}
				config = strings.NewReplacer("TestE2ERestart-", "", "_", "-").Replace(config)
				r := rand.New(rand.NewPCG(1, uint64(signal)))
				s := serve(t, config)
				o := enginesim.EngineOptions{
					Pool: enginesim.PoolOptions{Blocks: 500, BlockSize: 16, Vocabulary: 32_000}, Ranks: 1,
					Stream: enginesim.StreamOptions{BufferSteps: 300}, // a replay does not reach far back
				}
				stays, begins := s.followed(t, "stays", o), s.followed(t, "begins", o)
				for range 80 {
					work(t, r, stays, begins)
				}
				for id, e := range map[string]*enginesim.Engine{"stays": stays, "begins": begins} {
					s.eventually(func() string { return s.agrees(id, e) })
				}
				if signal == syscall.SIGKILL { // of which it hears nothing
					begun := s.snapshotsWritten()
					s.eventually(func() string {
						work(t, r, stays) // else there is nothing to write
						if n := s.snapshotsWritten(); n < begun+2 {
							return fmt.Sprintf("%d snapshots, %d before", n, begun)
						}
						time.Sleep(300 * time.Millisecond)
						return ""
					})
				}
				s.kill(signal)
				work(t, r, stays)
				if err := begins.Restart(enginesim.RestartOptions{}); err != nil {
					t.Fatal(err)
				}
				if where == "file" && signal == syscall.SIGTERM {
					checkDump(t, config)
				}
				again := serve(t, config)
				again.eventually(func() string { return again.agrees("stays", stays) })
				again.eventually(func() string {
					if in := again.instance("begins"); in.blocks() != 0 {
						return fmt.Sprintf("%d blocks of a dead process", in.blocks())
					}
					return ""
				})
				work(t, r, stays, begins)
				for id, e := range map[string]*enginesim.Engine{"stays": stays, "begins": begins} {
					again.eventually(func() string { return again.agrees(id, e) })
				}
				if !strings.Contains(again.log.String(), "restored a snapshot") {
					t.Error("the log does not say that it was restored")
				}
			})
		}
	}
}

// TestE2EPeer: a replica that starts cold takes what another one has, and
// follows what that one follows.
func TestE2EPeer(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	first := serve(t, "")
	e := first.followed(t, "pod-0", enginesim.EngineOptions{
		Pool: enginesim.PoolOptions{Blocks: 500, BlockSize: 16, Vocabulary: 32_000}, Ranks: 1,
		Stream: enginesim.StreamOptions{BufferSteps: 10},
	})
	for range 10 {
		work(t, r, e)
	}
	first.eventually(func() string { return first.agrees("pod-0", e) })
	second := serve(t, fmt.Sprintf("snapshot: {peers: [%q]}", first.url))
	second.eventually(func() string { return second.agrees("pod-0", e) })
	work(t, r, e)
	for _, s := range []*server{first, second} {
		s.eventually(func() string { return s.agrees("pod-0", e) })
	}
	_, a := first.do(http.MethodGet, "/v1/dump", "")
	_, b := second.do(http.MethodGet, "/v1/dump", "")
	if sortedLines(a) != sortedLines(b) || a == "" {
		t.Errorf("the dumps differ: %d and %d bytes", len(a), len(b))
	}
}

// TestE2EBrokenSnapshot: a snapshot that is not whole is left alone, and said
// so; kvindex starts without.
func TestE2EBrokenSnapshot(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "01ARZ3NDEKTSV4RRFFQ69G5FAV.snapshot"), []byte("kvixsnap and no more"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, "snapshot: {dir: "+dir+"}")
	if log := s.log.String(); !strings.Contains(log, "a snapshot cannot be used") || !strings.Contains(log, "starting cold") {
		t.Error(log)
	}
	if code, _ := s.do(http.MethodGet, "/healthz", ""); code != http.StatusOK {
		t.Error(code)
	}
}

// checkDump holds the newest snapshot, as the command shows it, against what
// the process that wrote it held.
func checkDump(t *testing.T, config string) {
	t.Helper()
	dir := strings.TrimSuffix(config[strings.Index(config, "dir: ")+len("dir: "):], "}")
	stdout, stderr, code := output(t, nil, "snapshot", "dump", dir)
	if code != 0 || !strings.Contains(stdout, "stays") || !strings.Contains(stdout, "UNIQUE BLOCKS") {
		t.Errorf("exit status %d\n%s%s", code, stdout, stderr)
	}
	var d struct {
		Tables []struct {
			Blocks int `json:"unique_blocks"`
		} `json:"tables"`
		Streams []struct {
			Instance string `json:"instance"`
			Seq      uint64 `json:"seq"`
		} `json:"streams"`
	}
	stdout, _, _ = output(t, nil, "snapshot", "dump", dir, "--format", "json")
	if err := json.Unmarshal([]byte(stdout), &d); err != nil || len(d.Tables) != 1 || len(d.Streams) != 2 || d.Streams[0].Seq == 0 {
		t.Fatalf("%v: %s", err, stdout)
	}
	stdout, _, _ = output(t, nil, "snapshot", "dump", dir, "--blocks")
	if n := strings.Count(stdout, "\n"); n != d.Tables[0].Blocks || n == 0 || !strings.Contains(stdout, `"holders":[{"instance":"`) {
		t.Errorf("%d blocks are shown of %d", n, d.Tables[0].Blocks)
	}
}

// blocks is how many the instance holds on its GPUs.
func (in *instance) blocks() int {
	n := 0
	for _, st := range in.Streams {
		n += st.Blocks.GPU
	}
	return n
}

// snapshotsWritten is what the metrics say.
func (s *server) snapshotsWritten() (n int) {
	_, metrics := s.do(http.MethodGet, "/metrics", "")
	for line := range strings.Lines(metrics) {
		if rest, ok := strings.CutPrefix(line, "kvindex_snapshot_written_total{"); ok {
			_, value, _ := strings.Cut(rest, "} ")
			_, _ = fmt.Sscan(value, &n)
		}
	}
	return n
}

// kill ends the process by a signal and waits for it.
func (s *server) kill(signal syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(signal); err != nil {
		s.t.Fatal(err)
	}
	_ = s.cmd.Wait()
}

func sortedLines(s string) string {
	lines := strings.Split(s, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
