package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kvindex/kvindex/indexer"
	"github.com/kvindex/kvindex/indexer/snapshot"
	"github.com/kvindex/kvindex/indexer/snapshot/filestore"
	"github.com/kvindex/kvindex/indexer/snapshot/redisstore"
)

// store is where snapshots go, and come from.
type store interface {
	snapshot.Sink
	snapshot.Source
}

// wantRatio is how much slower the slowest hundredth of queries may be while a
// snapshot is written.
const wantRatio = 1.2

// measureSnapshots does all that needs no other process but Redis.
func measureSnapshots(ctx context.Context, o options, t *table) error {
	begin := time.Now()
	c, err := newContent(o.scale * 1_000_000)
	if err != nil {
		return err
	}
	defer c.close()
	blocks := tableOf(c.index).Stats().UniqueBlocks
	t.blocks, t.pairs = blocks, c.pairs
	log.Printf("%d blocks, %d pairs of a block and a pod, %d pods, told in %.1f s", blocks, c.pairs, numPods, time.Since(begin).Seconds())

	var stood []time.Duration
	size := 0
	for range o.rounds {
		room, release := snapshot.Room(c.room())
		head, body, d, err := c.freeze(room)
		release() // only the sizes are of interest
		if err != nil {
			return err
		}
		size = len(head) + len(body)
		stood = append(stood, d)
	}
	t.add("size of the snapshot", float64(size)/1e6, "MB", 0)
	t.add("a block", float64(size)/float64(blocks), "B", 30)
	t.add("streams stand still", ms(median(stood)), "ms", 0)
	t.add("a block", float64(median(stood).Nanoseconds())/float64(blocks), "ns", 0)

	dir, err := os.MkdirTemp("", "bench-recovery-")
	if err != nil {
		return fmt.Errorf("cannot make a directory for snapshots: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // it is in the folder for such
	file, err := filestore.New(filestore.Options{Dir: dir})
	if err != nil {
		return err
	}
	server, err := startRedis(ctx)
	if err != nil {
		return err
	}
	defer server.stop()
	redis, err := redisstore.New(redisstore.Options{Client: server.client, Name: "redis", Cluster: "bench"})
	if err != nil {
		return err
	}
	for _, s := range []struct {
		name string
		store
	}{{"file", file}, {"Redis", redis}} {
		if err := c.measureStore(ctx, o, s.name, s.store, t); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		log.Printf("%s measured", s.name)
	}
	for _, s := range []struct {
		name string
		store
	}{{"file", file}, {"Redis", redis}} {
		if err := c.measureQueries(ctx, o, s.name, s.store, t); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// measureStore writes and reads snapshots, without rests, and compares what comes
// back.
func (c *content) measureStore(ctx context.Context, o options, name string, s store, t *table) error {
	hurry := make(chan struct{})
	close(hurry)
	c.pace.Hurry = hurry
	var out, in, load, decode []time.Duration
	for range o.rounds {
		runtime.GC()
		begin := time.Now()
		if _, err := s.Write(ctx, c.Meta(), c.WriteBody); err != nil {
			return err
		}
		out = append(out, time.Since(begin))
	}
	for i := range o.rounds {
		x, err := indexer.New(indexer.Options{})
		if err != nil {
			return err
		}
		runtime.GC()
		r := restored{index: x}
		begin := time.Now()
		_, err = snapshot.Chain{Sources: []snapshot.Source{s}}.Restore(ctx, snapshot.Expect{
			Cluster: "bench", Kind: "bench", MinVersion: 1, MaxVersion: 1,
		}, r.decodeInto)
		if err != nil {
			return err
		}
		in, load, decode = append(in, time.Since(begin)), append(load, r.load), append(decode, r.decode)
		if i == 0 {
			err = c.sameAnswers(x)
		}
		x.Close()
		if err != nil {
			return err
		}
	}
	t.add("written to "+name, ms(median(out)), "ms", 0)
	t.add("read from "+name, ms(median(in)), "ms", 0)
	t.add("of it from the store", ms(median(load)), "ms", 0)
	t.add("of it into the index", ms(median(decode)), "ms", 0)
	return nil
}

// measureQueries asks for documents while snapshots are written, and while not.
func (c *content) measureQueries(ctx context.Context, o options, name string, s store, t *table) error {
	c.pace.Hurry = nil
	var r indexer.Result
	tb, i := tableOf(c.index), 0
	ask := func() (time.Duration, error) {
		begin := time.Now()
		tb.MatchTokens(c.docs[i%len(c.docs)], 0, 0, &r)
		i++
		return time.Since(begin), nil
	}
	write := func() error {
		_, err := s.Write(ctx, c.Meta(), c.WriteBody)
		return err
	}
	return compare(o, t, "match", "snapshots to "+name, ask, write)
}

// breath is the time between two snapshots: long enough for queries not to be
// about a machine that has no core left, short enough for many snapshots.
const breath = 50 * time.Millisecond

// compare asks 1,000 times in a second, in turns without and with disturb being
// called every now and then. Of the latter only those queries count during which
// it was at work. Shown are the medians over the rounds: other programs disturb
// some of them.
func compare(o options, t *table, what, beside string, ask func() (time.Duration, error), disturb func() error) error {
	for range 500 { // for caches
		if _, err := ask(); err != nil {
			return err
		}
	}
	var q50, q99, b50, b99 []time.Duration
	var ratios []float64
	queries, disturbed, calls := 0, 0, int64(0)
	for range o.rounds {
		quiet, busy, n, err := alternate(ask, disturb)
		if err != nil {
			return err
		}
		queries, disturbed, calls = queries+len(quiet), disturbed+len(busy), calls+n
		q, b := percentile(quiet, 0.99), percentile(busy, 0.99)
		q50, q99, b50, b99 = append(q50, median(quiet)), append(q99, q), append(b50, median(busy)), append(b99, b)
		ratios = append(ratios, float64(b)/float64(q))
	}
	log.Printf("%s beside %s: %d queries without, %d with one of %d snapshots; p99 in each round, times that without: %.2f", what, beside, queries, disturbed, calls, ratios)
	slices.Sort(ratios)
	t.add(what+", no snapshot: p50", us(median(q50)), "us", 0)
	t.add("p99", us(median(q99)), "us", 0)
	t.add(what+", while "+beside+" are written: p50", us(median(b50)), "us", 0)
	t.add("p99", us(median(b99)), "us", 0)
	t.add("p99, times that without", ratios[len(ratios)/2], "x", wantRatio)
	return nil
}

// alternate is one round: turns of both kinds, a second each or as long as a
// snapshot takes.
func alternate(ask func() (time.Duration, error), disturb func() error) (quiet, busy []time.Duration, calls int64, err error) {
	const turn = time.Second
	var begun, ended atomic.Int64 // calls of disturb
	disturbed := func() (time.Duration, error) {
		before := ended.Load()
		d, err := ask()
		if begun.Load() > before {
			busy = append(busy, d)
		}
		return d, err
	}
	for range 4 {
		begin := time.Now()
		q, err := during(func() bool { return time.Since(begin) > turn }, ask)
		if err != nil {
			return nil, nil, 0, err
		}
		quiet = append(quiet, q...)
		done := make(chan error, 1)
		var over atomic.Bool
		go func() {
			var err error
			for begin := time.Now(); time.Since(begin) < turn && err == nil; time.Sleep(breath) {
				begun.Add(1)
				err = disturb()
				ended.Add(1)
			}
			over.Store(true)
			done <- err
		}()
		_, err = during(over.Load, disturbed)
		if err := errors.Join(err, <-done); err != nil {
			return nil, nil, 0, err
		}
	}
	return quiet, busy, ended.Load(), nil
}

// during asks at a steady pace until it is over, and returns how long each took.
func during(over func() bool, ask func() (time.Duration, error)) (took []time.Duration, err error) {
	for ; !over(); time.Sleep(time.Millisecond) {
		one, err := ask()
		if err != nil {
			return nil, err
		}
		took = append(took, one)
	}
	return took, nil
}

func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

func median(ds []time.Duration) time.Duration { return percentile(ds, 0.5) }

func percentile(ds []time.Duration, p float64) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(ds))
	return s[min(len(s)-1, int(p*float64(len(s))))]
}
