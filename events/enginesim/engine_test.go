package enginesim

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvindex/kvindex/indexer"
)

func startEngine(t testing.TB, o EngineOptions) *Engine {
	t.Helper()
	e, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// follow applies every batch that sub has received to index, until the stream's
// last one.
func follow(t testing.TB, s *Stream, sub *subscriber, index *naive) {
	t.Helper()
	for last := s.Seq() - 1; ; {
		m := sub.next()
		b := decodeBatch(t, m.payload)
		if b.Rank != index.rank && !b.NoRank {
			t.Fatalf("rank %d publishes as %d", index.rank, b.Rank)
		}
		if err := index.apply(b.Events, false); err != nil {
			t.Fatal(err)
		}
		if m.seq == last {
			return
		}
	}
}

// TestEngineWire follows two ranks through real sockets: what arrives adds up
// to the truth, in every encoding that carries what the pool does.
func TestEngineWire(t *testing.T) {
	f := func(e Encoding, mode HashMode) {
		t.Helper()
		eng := startEngine(t, EngineOptions{
			Ranks: 2, FirstRank: 4, Encoding: e, Seed: uint64(e), PrivateHashes: true,
			Pool: PoolOptions{Blocks: 40, Hash: mode, Tenant: "acme", CPUBlocks: 30, ChunkTokens: 32},
		})
		var subs []*subscriber
		var indexes []*naive
		for i := range eng.Ranks() {
			subs = append(subs, subscribe(t, eng.Rank(i).Stream(), ""))
			indexes = append(indexes, newNaive(hash1337, "acme", 4+i))
		}
		ok(t, eng.WaitSubscribers(withTimeout(t)))
		total := 0
		for i := range 60 {
			r := eng.Rank(i % 2)
			req := Request{Tokens: upTo(100*(i%7), 100*(i%7)+40+i), Generate: i % 30}
			if i%5 == 0 && (e == R9 || e == R8) {
				req.LoRA = "ada"
			}
			cached, err := r.Run(req)
			ok(t, err)
			total += cached
			if i == 40 {
				ok(t, r.Clear())
			}
		}
		if total == 0 {
			t.Error("nothing was cached")
		}
		want := Truth{}
		for i, index := range indexes {
			follow(t, eng.Rank(i).Stream(), subs[i], index)
			for k, v := range index.held {
				want[k] = v
			}
			diff(t, eng.Rank(i).Truth(hash1337), index.held)
		}
		diff(t, eng.Truth(hash1337), want)
	}
	f(R8, HashUint64)
	f(R9, HashUint64)
	f(R9, HashBytes)
}

// TestSharedHashes: engines share a hash space, unless they are told not to.
func TestSharedHashes(t *testing.T) {
	hashes := func(o EngineOptions) map[indexer.EngineHash]bool {
		o.Ranks = 2
		e := startEngine(t, o)
		got := map[indexer.EngineHash]bool{}
		for range 2 {
			for i := range 2 {
				_, err := e.Rank(i).Run(Request{Tokens: upTo(0, 16)})
				ok(t, err)
			}
			for _, s := range e.Truth(hash1337) {
				got[s.Engine] = true
			}
			ok(t, e.Restart(RestartOptions{}))
		}
		return got
	}
	if n := len(hashes(EngineOptions{})); n != 1 {
		t.Errorf("%d hashes, want 1", n)
	}
	if n := len(hashes(EngineOptions{PrivateHashes: true})); n != 4 {
		t.Errorf("%d hashes, want 4", n)
	}
}

// TestSchedulesRepeat: the same seed and clock give the same bytes.
func TestSchedulesRepeat(t *testing.T) {
	run := func(seed uint64) []byte {
		clock := 0.0
		e := startEngine(t, EngineOptions{Seed: seed, Clock: func() float64 { clock++; return clock }})
		s := e.Rank(0).Stream()
		_, err := e.Rank(0).Run(Request{Tokens: upTo(0, 100), Generate: 50})
		ok(t, err, s.Reorder(5), e.Rank(0).Flood(10))
		_, err = s.Poison(BadPayload, nil)
		ok(t, err)
		all, _ := dialReplay(t, s).replay(0, 5*time.Second)
		var b []byte
		for _, m := range all {
			b = append(binary.BigEndian.AppendUint64(b, m.seq), m.payload...)
		}
		return b
	}
	a, b, c := run(1), run(1), run(2)
	if !bytes.Equal(a, b) || bytes.Equal(a, c) {
		t.Errorf("%d, %d and %d bytes; equal %v and %v", len(a), len(b), len(c), bytes.Equal(a, b), bytes.Equal(a, c))
	}
}

func TestEngineRestarts(t *testing.T) {
	e := startEngine(t, EngineOptions{})
	r := e.Rank(0)
	sub, c := subscribe(t, r.Stream(), ""), dialReplay(t, r.Stream())
	_, err := r.Run(Request{Tokens: upTo(0, 16)})
	ok(t, err, r.Flood(4))
	j, err := r.Begin(Request{Tokens: upTo(0, 40), Generate: 9})
	ok(t, err, r.Step())
	sub.seqs(6)
	endpoint := e.Endpoint(0)

	ok(t, e.Restart(RestartOptions{Down: 20 * time.Millisecond}))
	if len(e.Truth(hash1337)) != 0 || r.Stream().Seq() != 0 || !j.Done() || e.Endpoint(0) != endpoint {
		t.Errorf("%d blocks, next is %d, done %v, at %s", len(e.Truth(hash1337)), r.Stream().Seq(), j.Done(), e.Endpoint(0))
	}
	r.Finish(j) // of the old process
	sub.wantBack(r.Stream())
	ok(t, r.Flood(3))
	sub.wantSeqs(0, 1, 2)

	ok(t, e.Restart(RestartOptions{Masked: true, Ahead: 5}))
	if got := r.Stream().Seq(); got != 8 {
		t.Errorf("the next batch is %d, want 8", got)
	}
	sub.wantBack(r.Stream())
	ok(t, r.Flood(1))
	sub.wantSeqs(8)
	c.wantReplay(2, true, 2, 3, 4, 5, 6, 7, 8)
	if n := len(r.Truth(hash1337)); n != 9 {
		t.Errorf("%d blocks, want 9", n)
	}
}

func TestWrongBlockSize(t *testing.T) {
	e := startEngine(t, EngineOptions{})
	r := e.Rank(0)
	sub := subscribe(t, r.Stream(), "")
	r.WrongBlockSize(7, 1)
	ok(t, r.Flood(2))
	for _, want := range []int{7, 16} {
		if ev := decodeBatch(t, sub.next().payload).Events; ev[0].BlockSize != want {
			t.Errorf("block size %d, want %d", ev[0].BlockSize, want)
		}
	}
}

func TestResetIsHeardWithTheNextStep(t *testing.T) {
	e := startEngine(t, EngineOptions{})
	r := e.Rank(0)
	sub := subscribe(t, r.Stream(), "")
	ok(t, r.Flood(1))
	sub.wantSeqs(0)
	j, err := r.Begin(Request{Tokens: upTo(0, 40), Generate: 5})
	ok(t, err, r.Step())
	sub.wantSeqs(1)
	if err := errors.Join(r.Reset(), r.Clear()); !errors.Is(err, ErrInUse) {
		t.Errorf("got %v", err)
	}
	r.Finish(j)
	ok(t, r.Reset())
	sub.wantNothing()
	_, err = r.Run(Request{Tokens: upTo(0, 40)})
	ok(t, err)
	if ev := decodeBatch(t, sub.next().payload).Events; len(ev) != 2 || ev[0].Kind != Cleared {
		t.Errorf("got %+v", ev)
	}
	ok(t, r.Clear())
	if ev := decodeBatch(t, sub.next().payload).Events; len(ev) != 1 || ev[0].Kind != Cleared {
		t.Errorf("got %+v", ev)
	}
}

func TestRankPorts(t *testing.T) {
	f := func(endpoint string, rank int, want string) {
		t.Helper()
		got, err := offsetEndpoint(endpoint, rank)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%s, rank %d: got %q, %v, want %q", endpoint, rank, got, err, want)
		}
	}
	f("tcp://*:5557", 0, "tcp://*:5557")
	f("tcp://*:5557", 3, "tcp://*:5560")
	f("tcp://127.0.0.1:0", 3, "tcp://127.0.0.1:0")
	f("tcp://[::1]:5557", 1, "tcp://[::1]:5558")
	f("inproc://kv", 0, "inproc://kv")
	f("inproc://kv", 2, "inproc://kv_dp2")
	f("ipc:///tmp/kv", 0, "ipc:///tmp/kv")
	f("ipc:///tmp/kv", 1, "")
	f("tcp://nowhere", 1, "")
	f("tcp://host:http", 1, "")
	f("nonsense", 0, "")

	// A pair of fixed ports side by side collides at rank 1, as it does with
	// vLLM.
	free := startStream(t, StreamOptions{NoReplay: true})
	ok(t, free.Close())
	_, port, _ := strings.Cut(strings.TrimPrefix(free.Endpoint(), "tcp://"), ":")
	n, err := strconv.Atoi(port)
	ok(t, err)
	at := func(n int) string { return fmt.Sprintf("tcp://127.0.0.1:%d", n) }
	if e, err := Start(EngineOptions{Ranks: 2, Stream: StreamOptions{Endpoint: at(n), ReplayEndpoint: at(n + 1)}}); err == nil {
		t.Error("two ranks share a port")
		e.Close()
	}
	for _, o := range []EngineOptions{{Encoding: lastEncoding + 1}, {Ranks: -1}, {Pool: PoolOptions{Blocks: 1}}, {FirstRank: -1}} {
		if e, err := Start(o); err == nil {
			t.Errorf("%+v is accepted", o)
			e.Close()
		}
	}
}

// threads is the number of threads of this process, 0 where it is unknown.
func threads(t *testing.T) int {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if n, found := strings.CutPrefix(line, "Threads:"); found {
			v, err := strconv.Atoi(strings.TrimSpace(n))
			ok(t, err)
			return v
		}
	}
	return 0
}

// TestManyEngines runs 64 engines in one process: they need two threads in
// all, since none of them waits inside of ZMQ.
func TestManyEngines(t *testing.T) {
	before := threads(t)
	var engines []*Engine
	for i := range 64 {
		engines = append(engines, startEngine(t, EngineOptions{Seed: uint64(i)}))
	}
	for _, e := range engines {
		_, err := e.Rank(0).Run(Request{Tokens: upTo(0, 100)})
		ok(t, err)
	}
	for _, e := range slices.Backward(engines) {
		if got, ended := dialReplay(t, e.Rank(0).Stream()).replay(0, 5*time.Second); len(got) != 1 || !ended {
			t.Errorf("got %d batches, end %v", len(got), ended)
		}
	}
	during := threads(t)
	t.Logf("%d threads before, %d with 64 engines", before, during)
	if during-before > 16 {
		t.Errorf("64 engines made %d threads", during-before)
	}
}

// TestConcurrentUse has clients run jobs side by side, poll them and leave,
// while the engine restarts.
func TestConcurrentUse(t *testing.T) {
	e := startEngine(t, EngineOptions{Ranks: 2, Pool: PoolOptions{Blocks: 64, ChunkTokens: 32}})
	var clients sync.WaitGroup
	for c := range 6 {
		clients.Go(func() {
			r := e.Rank(c % 2)
			for i := range 30 {
				j, err := r.Begin(Request{Tokens: upTo(0, 40+10*(i%9)), Generate: 5})
				if err != nil {
					t.Error(err)
					return
				}
				for !j.Done() {
					if err := r.Step(); err != nil {
						t.Error(err)
						return
					}
					if i%7 == c {
						r.Finish(j)
					}
				}
				if j.Cached() > len(j.Tokens()) {
					t.Errorf("%d of %d tokens were cached", j.Cached(), len(j.Tokens()))
				}
			}
		})
	}
	for range 3 {
		ok(t, e.Restart(RestartOptions{Masked: true}))
		e.Truth(hash1337)
		e.Rank(0).Stream().Counts()
	}
	clients.Wait()
	for i := range e.Ranks() {
		ok(t, e.Rank(i).pool.check())
	}
}
