package main_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kvindex/kvindex/events/enginesim"
	"github.com/kvindex/kvindex/indexer/snapshot"
	"github.com/kvindex/kvindex/indexer/snapshot/redisstore"
	"github.com/kvindex/kvindex/indexer/snapshot/redistest"
)

// shortReplay is an engine whose old blocks only a snapshot knows.
func shortReplay(f *faultRun) enginesim.EngineOptions {
	o := podOptions(f)
	o.Stream.BufferSteps = 20
	return o
}

// inRedis is a configuration with snapshots in Redis at an address.
func inRedis(addr string) string {
	return "snapshot: {interval: 1s, redis: \"redis://" + addr + "\"}"
}

// redisDownAtStart is fault 12.
func redisDownAtStart(f *faultRun) {
	server := redistest.Start(f)
	server.Stop()
	f.inject("no Redis at start")
	begin := time.Now()
	s := f.serve(inRedis(server.Addr))
	f.logged(s, "starting cold")
	p := f.pod("pod-0", podOptions(f)).follow(s)
	p.work(10)
	f.live(s, p)
	f.see("cold and live in %.1f s", time.Since(begin).Seconds())
	s.within(faultWait, func() string {
		p.work(1)
		if s.metric("kvindex_snapshot_failed_total") == 0 {
			return "no failed snapshot is counted"
		}
		return ""
	})
	f.see("snapshot_failed_total %v", s.metric("kvindex_snapshot_failed_total"))
	f.started = time.Now()
	server.Restart()
	f.awaitSnapshot(s, func() { p.work(1) })
	f.live(s, p)
	f.see("written again")
}

// redisStalled is fault 13: Redis stops in the middle, queries do not notice.
func redisStalled(f *faultRun) {
	server := redistest.Start(f)
	s := f.serve(inRedis(server.Addr))
	p := f.pod("pod-0", enginesim.EngineOptions{Pool: enginesim.PoolOptions{Blocks: 20_000}, Seed: f.rand.Uint64()}).follow(s)
	prompt := p.work(2000)
	f.live(s, p)
	f.awaitSnapshot(s, func() { p.work(1) })
	ask := func(d time.Duration) time.Duration {
		var took []time.Duration
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
			begin := time.Now()
			p.matched(s, prompt)
			took = append(took, time.Since(begin))
		}
		f.did("queries took %s", percentiles(took)) // sorts
		return took[len(took)*99/100]
	}
	before := ask(3 * time.Second)
	f.inject("Redis stops (SIGSTOP) while snapshots are written")
	server.Pause()
	failed := s.metric("kvindex_snapshot_failed_total")
	p.work(1)
	during := ask(3 * time.Second)
	s.within(faultWait, func() string {
		if s.metric("kvindex_snapshot_failed_total") == failed {
			p.work(1)
			return "no failed snapshot is counted"
		}
		return ""
	})
	f.see("failed, counted; query p99 %.2f times as before", float64(during)/float64(before))
	f.started = time.Now()
	server.Resume()
	f.awaitSnapshot(s, func() { p.work(1) })
	f.live(s, p)
	f.see("written again")
}

// smallSnapshot is a real one, as a replica sends it.
func smallSnapshot(f *faultRun) []byte {
	s := f.serve("")
	o := podOptions(f)
	o.Pool.Blocks = 30
	p := f.pod("pod-0", o).follow(s)
	p.work(5)
	f.live(s, p)
	_, b := s.do(http.MethodGet, "/v1/snapshot", "")
	if len(b) < 500 || !strings.HasPrefix(b, "kvixsnap") {
		f.Fatalf("%d bytes of a snapshot", len(b))
	}
	return []byte(b)
}

// flippedBytes is fault 14: a replica starts whose peers each offer it a snapshot
// with another byte flipped, and as many that end early.
func flippedBytes(f *faultRun) {
	whole := smallSnapshot(f)
	n := len(whole)
	peer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at, _ := strconv.Atoi(strings.Split(r.URL.Path, "/")[1])
		b := bytes.Clone(whole)
		if at < n {
			b[at] ^= byte(1 + at%255)
		} else {
			b = b[:at-n]
		}
		w.Header().Set("Content-Type", "application/vnd.kvindex.snapshot")
		_, _ = w.Write(b) // a client may have seen enough
	}))
	f.Cleanup(peer.Close)
	var config strings.Builder
	config.WriteString("events: {warmup_timeout: 10m}\nsnapshot:\n  peers:\n")
	offers := n + n/10
	for i := range offers {
		at := i
		if i >= n {
			at = n + (i-n)*10
		}
		fmt.Fprintf(&config, "  - %s/%d\n", peer.URL, at)
	}
	f.inject("%d snapshots of %d bytes, in each another byte flipped, and %d cut short", n, n, offers-n)
	s := f.serve(config.String())
	f.logged(s, "starting cold")
	rejected := strings.Count(s.log.String(), "a snapshot cannot be used")
	if rejected != offers {
		f.Errorf("%d of %d are rejected with a reason", rejected, offers)
	}
	if _, dump := s.do(http.MethodGet, "/v1/dump", ""); dump != "" {
		f.row.Wrong = strings.Count(dump, "\n")
	}
	f.recovered()
	f.see("%d rejected with a reason, cold start", rejected)
	reasons := map[string]int{}
	for part := range strings.SplitSeq(s.log.String(), `"reason":"`) {
		reason, _, _ := strings.Cut(part, `"`)
		if len(reason) < 20 && reason != "" && !strings.HasPrefix(reason, "{") {
			reasons[reason]++
		}
	}
	f.see("%v", reasons)
	s.kill(syscall.SIGTERM)
	good := f.serve(fmt.Sprintf("snapshot: {peers: [%q]}", peer.URL+"/"+strconv.Itoa(2*n)))
	f.logged(good, "restored a snapshot") // the offer that is whole, or all this would prove nothing
}

// chunkEvicted is fault 15: Redis has let go of a part of the newest snapshot.
func chunkEvicted(f *faultRun) {
	server := redistest.Start(f)
	s := f.serve(inRedis(server.Addr))
	p := f.pod("pod-0", shortReplay(f)).follow(s)
	p.work(40)
	f.live(s, p)
	f.awaitSnapshot(s, func() { p.work(1) })
	f.live(s, p)
	f.awaitSnapshot(s, func() { p.work(1) })
	s.kill(syscall.SIGKILL)
	client, err := redisstore.Connect(redisstore.Connection{Addrs: []string{server.Addr}})
	f.check(err)
	defer client.Close()
	store, err := redisstore.New(redisstore.Options{Client: client, Cluster: "default"})
	f.check(err)
	list, err := store.List(f.Context())
	f.check(err)
	if len(list) < 2 {
		f.Fatalf("%d snapshots in Redis", len(list))
	}
	f.inject("a chunk of the newest snapshot is evicted")
	f.check(client.Del(f.Context(), "kvindex:{default}:snap:"+list[0].ID.String()+":0").Err())
	again := f.serve(inRedis(server.Addr))
	f.logged(again, `"reason":"missing"`)
	f.logged(again, "restored a snapshot")
	f.live(again, p)
	f.see("missing; the one before is used")
	again.kill(syscall.SIGKILL)
	f.inject("chunks of all are")
	keys, err := client.Keys(f.Context(), "kvindex:{default}:snap:*:0").Result()
	f.check(err)
	f.check(client.Del(f.Context(), keys...).Err())
	again = f.serve(inRedis(server.Addr))
	f.logged(again, "starting cold")
	p.follow(again)
	f.marked(again, "history", p)
	f.see("cold, %s", p.is(again, "degraded", "history"))
	f.check(p.Rank(0).Clear())
	p.work(2)
	f.live(again, p)
}

// twoWriters is fault 16: replicas and others write to one place at a time.
func twoWriters(f *faultRun) {
	const rounds = 1000
	server := redistest.Start(f)
	a, b := f.serve(inRedis(server.Addr)), f.serve(inRedis(server.Addr))
	p := f.pod("pod-0", shortReplay(f)).follow(a)
	p.registerAt(b, "", p.ReplayEndpoint(0))
	f.live(b, p)
	p.work(40)
	f.live(a, p)
	f.live(b, p)
	f.inject("2 replicas and 2 writers, %d rounds, chunks of 1 MiB", rounds)
	client, err := redisstore.Connect(redisstore.Connection{Addrs: []string{server.Addr}})
	f.check(err)
	defer client.Close()
	var wg sync.WaitGroup
	var superseded, written int
	var mu sync.Mutex
	first := make(chan struct{}) // closed when there is something to read
	for w := range 2 {
		store, err := redisstore.New(redisstore.Options{Client: client, Cluster: "default", Grace: 10 * time.Second})
		f.check(err)
		wg.Go(func() {
			body := bytes.Repeat([]byte{byte(w)}, 1000)
			for i := range rounds / 2 {
				if i%100 == 0 {
					body = bytes.Repeat([]byte{byte(w)}, 1_500_000)
				}
				_, err := store.Write(f.Context(), snapshot.Meta{Cluster: "default", Kind: "other", Version: 1, Complete: 1}, func(out io.Writer) error {
					_, err := out.Write(body)
					return err
				})
				mu.Lock()
				switch {
				case err == nil:
					if written++; written == 1 {
						close(first)
					}
				case errors.Is(err, snapshot.ErrSuperseded):
					superseded++
				default:
					f.Errorf("writer %d, round %d: %v", w, i, err)
				}
				mu.Unlock()
				body = body[:1000]
			}
		})
	}
	select {
	case <-first:
	case <-time.After(faultWait):
		f.Fatal("nothing is written")
	}
	for range 5 { // a reader finds what it finds whole
		stdout, stderr, code := output(f, nil, "snapshot", "verify", "redis://"+server.Addr)
		if code != 0 && !strings.Contains(stdout+stderr, "missing") { // replaced while it was read
			f.Errorf("exit status %d: %s%s", code, stdout, stderr)
		}
	}
	wg.Wait()
	f.awaitSnapshot(a, func() { p.work(1) })
	f.awaitSnapshot(b, func() { p.work(1) })
	stdout, stderr, code := output(f, nil, "snapshot", "verify", "redis://"+server.Addr)
	if code != 0 {
		f.Errorf("exit status %d: %s%s", code, stdout, stderr)
	}
	f.see("%d written, %d superseded, what is there is whole", written, superseded)
	a.kill(syscall.SIGKILL)
	b.kill(syscall.SIGKILL)
	again := f.serve(inRedis(server.Addr))
	f.logged(again, "restored a snapshot")
	f.live(again, p)
}

// otherVersions is fault 17: the newest snapshot is by a newer or older program,
// or about something else.
func otherVersions(f *faultRun) {
	config, dir := f.snapshotsIn()
	s := f.serve(config)
	p := f.pod("pod-0", shortReplay(f)).follow(s)
	p.work(40)
	f.live(s, p)
	f.awaitSnapshot(s, func() { p.work(1) })
	f.inject("newer ones: format 0, 2 and 9, body version 0 and 3, other parameters, another kind, another fleet")
	reasons := map[string]int{}
	for _, x := range []struct {
		change func(*snapshot.Meta)
		format byte
		reason string
	}{
		{func(*snapshot.Meta) {}, 0, "version"},
		{func(*snapshot.Meta) {}, 2, "version"},
		{func(*snapshot.Meta) {}, 9, "version"},
		{func(m *snapshot.Meta) { m.Version = 0 }, 1, "version"},
		{func(m *snapshot.Meta) { m.Version = 3 }, 1, "version"},
		{func(m *snapshot.Meta) { m.Params = map[string]string{"duplicates": "set"} }, 1, "mismatch"},
		{func(m *snapshot.Meta) { m.Kind = "other" }, 1, "mismatch"},
		{func(m *snapshot.Meta) { m.Cluster = "other" }, 1, "mismatch"},
		{func(*snapshot.Meta) {}, 1, "body"},
	} {
		s.kill(syscall.SIGKILL)
		m := snapshot.Meta{Cluster: "default", Kind: "kvindex", Version: 2, Params: map[string]string{"duplicates": "refcount"}}
		x.change(&m)
		file := f.snapshotFile(dir, time.Now().Add(time.Hour), m, []byte("whatever"))
		b, err := os.ReadFile(file)
		f.check(err)
		b[8] = x.format // little-endian, after the magic
		f.check(os.WriteFile(file, b, 0o600))
		s = f.serve(config)
		f.logged(s, `"reason":"`+x.reason+`"`)
		f.logged(s, "restored a snapshot")
		f.live(s, p)
		reasons[x.reason]++
		f.check(os.Remove(file))
	}
	f.see("%v; the one before is used", reasons)
}

// snapshotFile writes a snapshot as if at another time and returns its name.
func (f *faultRun) snapshotFile(dir string, at time.Time, m snapshot.Meta, body []byte) string {
	f.Helper()
	var ids snapshot.IDs
	h := snapshot.NewHeader(ids.Next(at, snapshot.ID{}), at, m)
	var b bytes.Buffer
	w, err := snapshot.NewWriter(&b, h)
	f.check(err)
	_, err = w.Write(body)
	f.check(err)
	_, _, err = w.Finish()
	f.check(err)
	file := filepath.Join(dir, h.ID.String()+".snapshot")
	f.check(os.WriteFile(file, b.Bytes(), 0o600))
	return file
}
