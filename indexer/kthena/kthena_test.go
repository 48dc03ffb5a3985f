package kthena

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/kvindex/kvindex/indexer/snapshot/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ok(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func want[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func counting(n int) []uint32 {
	tokens := make([]uint32, n)
	for i := range tokens {
		tokens[i] = uint32(i)
	}
	return tokens
}

// TestFlatHash: known hashes, so that what sidecars wrote is found.
func TestFlatHash(t *testing.T) {
	f := func(tokens []uint32, hash uint64) {
		t.Helper()
		want(t, fmt.Sprint(tokens), FlatHash(tokens), hash)
	}
	f([]uint32{123}, 3207548891546131000)
	f([]uint32{1, 2, 3, 4, 5}, 6818328894798336332)
	f(counting(16), 6473494984593326032)
	want(t, "of a prompt", FlatHashes(append(counting(16), counting(20)...), 16), []uint64{6473494984593326032, 6473494984593326032})
	want(t, "of less than a block", len(FlatHashes(counting(15), 16)), 0)
	want(t, "of no block size", len(FlatHashes(counting(15), 0)), 0)
	want(t, "of a large block", FlatHashes(counting(1000), 1000)[0], FlatHash(counting(1000)))
}

func TestFlatHashAllocs(t *testing.T) {
	tokens := counting(128)
	if n := testing.AllocsPerRun(100, func() { FlatHash(tokens) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestKeys(t *testing.T) {
	for _, model := range []string{"m", "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "a@b", "@", "x@1"} {
		for _, hash := range []uint64{0, 1, 6473494984593326032, 1<<64 - 1} {
			m, h, ok := ParseKey(Key(model, hash))
			want(t, model, []any{m, h, ok}, []any{model, hash, true})
		}
	}
	want(t, "key", Key("Qwen/Qwen3-0.6B", 12345), "matrix:kv:block:Qwen/Qwen3-0.6B@12345")
	for _, key := range []string{"", "matrix:kv:block:", "matrix:kv:block:m", "matrix:kv:block:m@", "matrix:kv:block:@1", "matrix:kv:block:m@x", "matrix:kv:block:m@01", "matrix:kv:block:m@-1", "matrix:kv:block:m@18446744073709551616", "m@1"} {
		if m, h, ok := ParseKey(key); ok {
			t.Errorf("%q is read as %q, %d", key, m, h)
		}
	}
}

func TestValues(t *testing.T) {
	f := func(value string, milli int64, medium string) {
		t.Helper()
		at, m, err := ParseValue(value)
		ok(t, err)
		want(t, value, []any{at.UnixMilli(), m}, []any{milli, medium})
	}
	f("1703123456", 1703123456000, "")
	f("1703123456|GPU", 1703123456000, "GPU")
	f("1703123456.5|CPU_PINNED", 1703123456500, "CPU_PINNED")
	f("1703123456|", 1703123456000, "")
	f("1703123456|a|b", 1703123456000, "a|b")
	for _, value := range []string{"", "|GPU", "GPU", "-1", "NaN", "Inf", "1e300", "1703123456 "} {
		if at, m, err := ParseValue(value); err == nil {
			t.Errorf("%q is read as %v, %q", value, at, m)
		}
	}
	pods := map[string][2]string{"pod-0.default": {"pod-0", "default"}, "pod-0.ns.svc.cluster.local": {"pod-0", "ns"}, "pod-0": {"pod-0", ""}, "": {"", ""}}
	for field, parts := range pods {
		pod, namespace := ParsePod(field)
		want(t, field, [2]string{pod, namespace}, parts)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"matrix:kv:block:m@1", "matrix:kv:block:a@b@2", "1703123456|GPU", "1703123456.25", "NaN", "1e39"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if model, hash, ok := ParseKey(s); ok && Key(model, hash) != s {
			t.Errorf("%q is read as %q, %d", s, model, hash)
		}
		if at, _, err := ParseValue(s); err == nil && (at.Unix() < 0 || at.Unix() >= 1<<40) {
			t.Errorf("%q is read as %v", s, at)
		}
	})
}

// counted counts round trips.
type counted struct {
	Client
	trips int
}

func (c *counted) Pipelined(ctx context.Context, f func(redis.Pipeliner) error) ([]redis.Cmder, error) {
	c.trips++
	return c.Client.Pipelined(ctx, f)
}

func TestMatch(t *testing.T) {
	srv := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: srv.Addr, ReadTimeout: 300 * time.Millisecond, MaxRetries: -1})
	defer client.Close()
	ctx := t.Context()
	const model = "org/m@main"
	tokens := counting(16 * 300)
	hashes := FlatHashes(tokens, 16)
	now := time.Now().Truncate(time.Second)
	store := func(pod string, from, to int, value string) {
		t.Helper()
		_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, h := range hashes[from:to] {
				p.HSet(ctx, Key(model, h), pod, value)
			}
			return nil
		})
		ok(t, err)
	}
	at := func(age time.Duration) string { return fmt.Sprint(now.Add(-age).Unix()) }
	store("a.ns", 0, 300, at(0))
	store("b.ns", 0, 130, at(time.Minute)+"|GPU")
	store("b.ns", 100, 130, at(time.Hour)+"|CPU")
	store("c.ns", 0, 5, at(0))
	store("c.ns", 6, 300, at(0))   // after a hole
	store("d.ns", 1, 300, at(0))   // not from the start
	store("e.ns", 0, 300, "later") // not a value
	f := func(what string, o Options, model string, hashes []uint64, m Match, trips int) {
		t.Helper()
		c := &counted{Client: client}
		o.Client = c
		r, err := NewReader(o)
		ok(t, err)
		got, err := r.Match(ctx, model, hashes)
		ok(t, err)
		want(t, what, got, m)
		want(t, what+": round trips", c.trips, trips)
	}
	pod := func(blocks int, age time.Duration, medium map[string]int) Pod {
		gpu := medium[""] + medium["GPU"]
		return Pod{Blocks: blocks, Near: [Tiers]int{gpu, gpu + medium["CPU"], blocks}, Oldest: now.Add(-age), Medium: medium}
	}
	a := pod(300, 0, map[string]int{"": 300})
	c := pod(5, 0, map[string]int{"": 5})
	f("all", Options{}, model, hashes, Match{Asked: 300, Pods: map[string]Pod{"a.ns": a, "b.ns": pod(130, time.Hour, map[string]int{"GPU": 100, "CPU": 30}), "c.ns": c}}, 3)
	f("young", Options{MaxAge: 10 * time.Minute}, model, hashes, Match{Asked: 300, Pods: map[string]Pod{"a.ns": a, "b.ns": pod(100, time.Minute, map[string]int{"GPU": 100}), "c.ns": c}}, 3)
	f("bounded", Options{MaxBlocks: 2}, model, hashes, Match{Asked: 2, Pods: map[string]Pod{
		"a.ns": pod(2, 0, map[string]int{"": 2}), "b.ns": pod(2, time.Minute, map[string]int{"GPU": 2}), "c.ns": pod(2, 0, map[string]int{"": 2}),
	}}, 1)
	f("unknown", Options{}, model, FlatHashes(counting(17*300), 17), Match{Asked: 128, Pods: map[string]Pod{}}, 1)
	f("other model", Options{}, "org/m", hashes, Match{Asked: 128, Pods: map[string]Pod{}}, 1)
	f("nothing", Options{}, model, nil, Match{Pods: map[string]Pod{}}, 0)

	// What comes after the first block that nobody holds is not asked for.
	ok(t, client.Del(ctx, Key(model, hashes[200])).Err())
	f("ends", Options{}, model, append(hashes, hashes...), Match{Asked: 256, Pods: map[string]Pod{
		"a.ns": pod(200, 0, map[string]int{"": 200}), "b.ns": pod(130, time.Hour, map[string]int{"GPU": 100, "CPU": 30}), "c.ns": c,
	}}, 2)

	r, err := NewReader(Options{Client: client})
	ok(t, err)
	srv.Pause()
	begin := time.Now()
	if _, err := r.Match(ctx, model, hashes); err == nil || !strings.Contains(err.Error(), "128 blocks") || time.Since(begin) > 5*time.Second {
		t.Errorf("stalled: %v after %v", err, time.Since(begin))
	}
	srv.Resume()
	for _, o := range []Options{{}, {Client: client, MaxBlocks: -1}, {Client: client, MaxAge: -1}} {
		if _, err := NewReader(o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	srv := redistest.Start(b)
	client := redis.NewClient(&redis.Options{Addr: srv.Addr})
	defer client.Close()
	hashes := FlatHashes(counting(16*128), 16)
	for _, h := range hashes {
		for pod := range 8 {
			ok(b, client.HSet(b.Context(), Key("m", h), fmt.Sprintf("pod-%d.ns", pod), "1703123456|GPU").Err())
		}
	}
	r, err := NewReader(Options{Client: client})
	ok(b, err)
	for b.Loop() {
		m, err := r.Match(b.Context(), "m", hashes)
		ok(b, err)
		want(b, "blocks", m.Pods["pod-7.ns"].Blocks, 128)
	}
}
