//go:build cgo && !nohf && (amd64 || arm64)

package hf

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestConcurrentCallsAgree: calls on several instances, which come up meanwhile, give what one call alone gives.
func TestConcurrentCallsAgree(t *testing.T) {
	procs := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(procs)
	runtime.GOMAXPROCS(max(procs, 4))
	r := rand.New(rand.NewPCG(7, 8))
	texts := make([]string, 200)
	for i := range texts {
		texts[i] = randomText(r, 1+r.IntN(200), "\x00", "\xff")
	}
	alone := demoEncoder(t)
	want := make([][]uint32, len(texts))
	for i, text := range texts {
		want[i] = mustAppend(t, alone, text)
	}
	e := newEncoder(t, readDemo(t), Options{MaxInstances: 3})
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			var ids []uint32
			var err error
			for i := range texts {
				i = (i + g*31) % len(texts)
				if ids, err = e.Append(ids[:0], texts[i]); err != nil || !slices.Equal(ids, want[i]) {
					t.Errorf("text %d: %v, differs %s", i, err, firstDifference(ids, want[i]))
					return
				}
			}
		})
	}
	wg.Wait()
	e.pool.loader.Wait()
	if n := len(e.pool.instances); n != 3 {
		t.Errorf("%d instances, want 3", n)
	}
}

// TestCloseWhileCallsRun: calls either give the right ids or ErrClosed, and none uses freed memory.
func TestCloseWhileCallsRun(t *testing.T) {
	demo := readDemo(t)
	text := "some text\x00 and more, "
	for range 5 {
		text += text
	}
	want := mustAppend(t, demoEncoder(t), text)
	for round := range 20 {
		e, err := New(demo, Options{MaxInstances: 2})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		var done, refused atomic.Int32
		for range 8 {
			wg.Go(func() {
				for {
					ids, err := e.AppendSpecial(nil, text)
					switch {
					case errors.Is(err, ErrClosed):
						refused.Add(1)
						return
					case err != nil || !slices.Equal(ids, want):
						t.Errorf("%v, differs %s", err, firstDifference(ids, want))
						return
					}
					done.Add(1)
				}
			})
		}
		time.Sleep(time.Duration(round) * time.Millisecond)
		for range 2 {
			wg.Go(func() {
				e.Close()
				if e.pool.instances != nil {
					t.Error("Close has returned before the memory was free")
				}
			})
		}
		wg.Wait()
		if refused.Load() != 8 {
			t.Errorf("%d calls were refused, want 8", refused.Load())
		}
		if ids, err := e.Append(nil, "x"); !errors.Is(err, ErrClosed) || ids != nil {
			t.Errorf("after Close: got %d, %v", ids, err)
		}
	}
}

// TestPoolGrowsWithLoad: a second instance is loaded once the first has enough calls, and only then.
func TestPoolGrowsWithLoad(t *testing.T) {
	tiny := tinyJSON("", "", "", "", wordLevel)
	build := func() (*instance, error) { return load(tiny) }
	first, err := build()
	if err != nil {
		t.Fatal(err)
	}
	p := newPool(first, 2, 2, build)
	defer p.free()
	a, b := p.acquire(), p.acquire()
	p.loader.Wait()
	if len(p.instances) != 1 {
		t.Fatalf("%d instances with 2 calls", len(p.instances))
	}
	c := p.acquire()
	p.loader.Wait()
	if len(p.instances) != 2 || a != first || b != first || c != first {
		t.Fatalf("%d instances with 3 calls", len(p.instances))
	}
	d := p.acquire()
	if d == first {
		t.Error("the busier instance was taken")
	}
	for range 10 {
		defer p.put(p.acquire())
	}
	p.loader.Wait()
	if len(p.instances) != 2 {
		t.Errorf("%d instances, want no more than 2", len(p.instances))
	}
	for _, i := range []*instance{a, b, c, d} {
		p.put(i)
	}
}

func TestGateIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(2, 100)
		var order []int
		var mu sync.Mutex
		enter := func(n, size int) {
			go func() {
				if err := g.enter(size); err != nil {
					n = -n
				}
				mu.Lock()
				order = append(order, n)
				mu.Unlock()
			}()
			synctest.Wait()
		}
		expect := func(want ...int) {
			t.Helper()
			synctest.Wait()
			slices.Sort(order) // of those that were admitted at the same time
			if !slices.Equal(order, want) {
				t.Fatalf("got %d, want %d", order, want)
			}
			order = nil
		}
		enter(1, 60)
		enter(2, 60) // no bytes
		enter(3, 1)  // behind 2
		expect(1)
		g.leave(60)
		expect(2, 3)
		enter(4, 1) // no slot
		expect()
		g.leave(1)
		expect(4)
		enter(5, 100)
		enter(6, 1)
		expect()
		closed := make(chan struct{})
		go func() { g.close(); close(closed) }()
		expect(-6, -5)
		select {
		case <-closed:
			t.Fatal("close has not waited")
		default:
		}
		g.leave(60)
		g.leave(1)
		<-closed
		if err := g.enter(1); !errors.Is(err, ErrClosed) {
			t.Errorf("got %v", err)
		}
	})
}
