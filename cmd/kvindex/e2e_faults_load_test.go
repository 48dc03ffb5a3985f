package main_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvindex/kvindex/events/enginesim"
)

// peakRSS is the most memory that the process has had, in MiB.
func (s *server) peakRSS() int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kib, _ := strconv.Atoi(strings.Fields(rest + " 0")[0])
	return kib >> 10
}

// hostileSizes is fault 23: payloads that announce more than they have, and
// frames of 4 GiB, to a process that may not have more than 1 GiB.
func hostileSizes(f *faultRun) {
	s := f.serve("")
	limit := unix.Rlimit{Cur: 1 << 30, Max: 1 << 30}
	f.check(unix.Prlimit(s.cmd.Process.Pid, unix.RLIMIT_DATA, &limit, nil))
	p := f.pod("pod-0", podOptions(f)).follow(s)
	p.work(10)
	f.live(s, p)
	before := s.peakRSS()
	head := []byte{0x93, 0xcb, 0x41, 0xd9, 0, 0, 0, 0, 0, 0} // [timestamp, ...
	stored := append([]byte{0xac}, "BlockStored"...)
	var bombs [][]byte
	for _, size := range [][]byte{ // arrays, maps, strings, binaries and extensions of 4 Gi
		{0xdd, 0xff, 0xff, 0xff, 0xff}, {0xdf, 0xff, 0xff, 0xff, 0xff}, {0xdb, 0xff, 0xff, 0xff, 0xff}, {0xc6, 0xff, 0xff, 0xff, 0xff}, {0xc9, 0xff, 0xff, 0xff, 0xff, 1},
	} {
		bombs = append(bombs, size, append(bytes.Clone(head), size...), append(append(append(bytes.Clone(head), 0x91, 0x96), stored...), size...))
	}
	bombs = append(bombs, bytes.Repeat([]byte{0x91}, 1<<20), bytes.Repeat([]byte{0xdd, 0, 0xff, 0xff, 0xff}, 1<<18), make([]byte, 15<<20), nil)
	f.inject("%d payloads of hostile sizes, one of 17 MiB, frames of 4 GiB; RLIMIT_DATA 1 GiB", len(bombs))
	for _, b := range bombs {
		_, err := p.Rank(0).Stream().Poison(enginesim.BadPayload, b)
		f.check(err)
	}
	_, err := p.Rank(0).Stream().Poison(enginesim.BadPayload, make([]byte, 17<<20)) // beyond events.max_payload: it ends the connection
	f.check(err)
	p.counts(s, "connected again", func(st podStatus) bool { return st.Streams[0].Reconnects > 0 })
	liar := startLiar(f)
	s.call("POST", "/register", map[string]any{"instance_id": "liar", "model": "m", "endpoint": "tcp://" + liar.addr}, nil)
	f.until("the liar was not believed", func() bool { return liar.refused.Load() >= 3 })
	p.work(2)
	f.see("%s, connections that carry more are ended and made again", p.is(s, "degraded", ""))
	f.check(p.Rank(0).Clear())
	p.work(5)
	f.live(s, p)
	after := s.peakRSS()
	f.see("peak memory %d MiB, %d before", after, before)
	if after > before+300 {
		f.Errorf("memory grew from %d to %d MiB", before, after)
	}
}

// liar is a ZMQ publisher whose messages announce 4 GiB.
type liar struct {
	addr    string
	refused atomic.Int64 // connections that the other side ended
}

func startLiar(f *faultRun) *liar {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	f.check(err)
	f.Cleanup(func() { _ = lis.Close() })
	l := &liar{addr: lis.Addr().String()}
	go func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			go l.lie(c)
		}
	}()
	return l
}

// lie speaks ZMTP 3.0 (rfc.zeromq.org/spec/23) as far as it takes.
func (l *liar) lie(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(faultWait))
	greeting := make([]byte, 64)
	greeting[0], greeting[9], greeting[10] = 0xff, 0x7f, 3
	copy(greeting[12:], "NULL")
	ready := append([]byte{4, 0}, "\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB"...)
	ready[1] = byte(len(ready) - 2)
	frames := append([]byte{1, 0, 1, 8}, make([]byte, 8)...)      // the topic and the number
	frames = append(frames, 2, 0, 0, 0, 1, 0, 0, 0, 0)            // a last frame of 4 GiB
	frames = append(frames, bytes.Repeat([]byte{0x93}, 1<<20)...) // and its beginning
	for _, b := range [][]byte{greeting, ready} {
		if _, err := c.Write(b); err != nil {
			return
		}
	}
	in := make([]byte, 4096)
	for n := 0; n < 64+30; { // its greeting, READY and some of the subscription
		got, err := c.Read(in)
		if n += got; err != nil {
			return
		}
	}
	time.Sleep(100 * time.Millisecond)
	_, err := c.Write(frames)
	for err == nil {
		_, err = c.Read(in)
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		l.refused.Add(1)
	}
}

// flood is fault 24: an engine publishes as fast as it can.
func flood(f *faultRun) {
	const batches = 50_000
	s := f.serve("")
	p := f.pod("pod-0", enginesim.EngineOptions{
		Pool: enginesim.PoolOptions{Blocks: 5000}, Stream: enginesim.StreamOptions{HWM: 2 * batches}, Seed: f.rand.Uint64(),
	}).follow(s)
	prompt := p.work(100)
	f.live(s, p)
	ask := func(until func() bool) (p99 time.Duration) {
		var took []time.Duration
		for len(took) < 200 || !until() {
			begin := time.Now()
			p.matched(s, prompt)
			took = append(took, time.Since(begin))
		}
		f.did("queries took %s", percentiles(took)) // sorts
		return took[len(took)*99/100]
	}
	end := time.Now().Add(2 * time.Second)
	before := ask(func() bool { return time.Now().After(end) })
	f.inject("%d batches as fast as ZMQ takes them", batches)
	done := make(chan error, 1)
	go func() { done <- p.Rank(0).Flood(batches) }()
	flooded := false
	during := ask(func() bool {
		select {
		case err := <-done:
			f.check(err)
			flooded = true
		default:
		}
		st := p.status(s).Streams[0]
		return flooded && st.LastSeq != nil && *st.LastSeq+1 == p.Rank(0).Stream().Seq()
	})
	f.live(s, p)
	st := p.status(s).Streams[0]
	f.see("%d applied, %d lost; query p99 %v, %v before", st.Results["applied"], st.Lost, during.Round(10*time.Microsecond), before.Round(10*time.Microsecond))
	if st.Lost > 0 {
		f.Errorf("%+v", st)
	}
}

// capacity is fault 25: the index may hold less than the engines do.
func capacity(f *faultRun) {
	s := f.serve("index: {max_blocks: 300}")
	a, b := f.pod("a", podOptions(f)).follow(s), f.pod("b", podOptions(f)).follow(s)
	f.inject("300 blocks at most, 2 engines with 399 each")
	a.work(60)
	b.work(60)
	cause := ""
	for _, p := range []*pod{a, b} {
		s.within(faultWait, func() string {
			st := p.status(s)
			if missing, extra := p.wrong(s); st.State != "degraded" || extra > 0 || missing == 0 {
				return fmt.Sprintf("%s is %s, %d missing, %d too many", p.id, st.State, missing, extra)
			}
			return ""
		})
		cause = p.is(s, "degraded", "capacity")
	}
	held := s.metric("kvindex_unique_blocks{")
	f.see("%s, %.0f blocks held", cause, held)
	if held > 300 || held < 200 {
		f.Errorf("%v blocks are held", held)
	}
	f.started = time.Now()
	f.check(a.Rank(0).Clear())
	f.check(b.Rank(0).Clear())
	f.quiet(s, "live", "", a, b) // both have made room
	a.work(2)
	b.work(2)
	f.live(s, a, b)
	f.see("live with a clear")
}
