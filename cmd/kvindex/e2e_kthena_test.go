package main_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/kvindex/kvindex/events/enginesim"
	"github.com/kvindex/kvindex/indexer/snapshot/redistest"
)

// TestE2EKthena: what kthena's sidecars wrote to Redis answers, marked, until
// the model's engine is followed; then only when it is asked for. A Redis that
// stalls or is gone costs a query its deadline, and soon nothing.
func TestE2EKthena(t *testing.T) {
	srv := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: srv.Addr})
	defer client.Close()
	now := fmt.Sprint(time.Now().Unix())
	for key, pods := range map[string][]any{ // the hashes are known ones
		"matrix:kv:block:org/m@main@6473494984593326032": {"pod-0.ns", now, "pod-1.ns", now + "|GPU"}, // 0 to 15
		"matrix:kv:block:five@6818328894798336332":       {"pod-0.ns", now},                           // 1 to 5
		"matrix:kv:block:one@3207548891546131000":        {"pod-0.ns", now + "|CPU"},                  // 123
	} {
		if err := client.HSet(t.Context(), key, pods...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	s := serve(t, fmt.Sprintf(`
models: [{name: m, aliases: [em]}]
kthena:
  redis: redis://%s
  fallback: true
  timeout: 200ms
  models: [{name: m, key: org/m@main, block_size: 16}, {name: five, block_size: 5}, {name: one, block_size: 1}]
`, srv.Addr))
	sixteen := make([]uint32, 40)
	for i := range sixteen {
		sixteen[i] = uint32(i % 16)
	}
	type match struct {
		answer
		Mode      string `json:"match_mode"`
		Instances map[string]struct {
			Matched int `json:"matched_tokens"`
			GPU     int `json:"gpu"`
		} `json:"instances"`
	}
	ask := func(body map[string]any) (m match) {
		t.Helper()
		s.call("POST", "/v1/query", body, &m)
		return m
	}
	flat := func(body map[string]any, pod string, matched, gpu int) {
		t.Helper()
		m := ask(body)
		if in := m.Instances[pod]; m.Mode != "flat" || m.State != "degraded" || !strings.HasPrefix(m.Reason, "approximate") || in.Matched != matched || in.GPU != gpu {
			t.Errorf("%v: %+v", body, m)
		}
	}
	for _, model := range []string{"m", "em"} {
		flat(map[string]any{"model": model, "token_ids": sixteen}, "pod-1.ns", 32, 32)
	}
	flat(map[string]any{"model": "m", "token_ids": sixteen, "candidates": []string{"ns/pod-0"}, "max_blocks": 1}, "ns/pod-0", 16, 16)
	flat(map[string]any{"model": "five", "token_ids": []int{1, 2, 3, 4, 5, 6}}, "pod-0.ns", 5, 5)
	flat(map[string]any{"model": "one", "token_ids": []int{123}}, "pod-0.ns", 1, 0)

	e := s.followed(t, "pod-0.ns", enginesim.EngineOptions{Pool: enginesim.PoolOptions{Blocks: 500, BlockSize: 16, Vocabulary: 32_000}, Ranks: 1})
	work(t, rand.New(rand.NewPCG(1, 2)), e)
	s.eventually(func() string { return s.agrees("pod-0.ns", e) })
	if m := ask(map[string]any{"model": "m", "token_ids": sixteen}); m.Mode != "" || m.State != "exact" || m.Instances["pod-0.ns"].Matched != 0 || len(m.Instances) != 1 {
		t.Errorf("followed: %+v", m)
	}
	asked := map[string]any{"model": "m", "token_ids": sixteen, "match_mode": "flat"}
	flat(asked, "pod-1.ns", 32, 32)

	down := func(what string) {
		t.Helper()
		for n := range 10 {
			begin := time.Now()
			m := ask(asked)
			if took := time.Since(begin); m.State != "unknown" || !strings.HasPrefix(m.Reason, "no flat match: ") || took > 3*time.Second {
				t.Errorf("%s: after %v: %+v", what, took, m)
			}
			if n >= 3 && !strings.Contains(m.Reason, "not asked for a while") {
				t.Errorf("%s: still asked: %s", what, m.Reason)
			}
		}
		if m := ask(map[string]any{"model": "m", "token_ids": sixteen}); m.State != "exact" {
			t.Errorf("%s: an exact answer is concerned: %+v", what, m)
		}
	}
	back := func() {
		t.Helper()
		s.eventually(func() string {
			if m := ask(asked); m.Mode != "flat" {
				return m.Reason
			}
			return ""
		})
	}
	srv.Pause()
	down("stalled")
	srv.Resume()
	back()
	srv.Stop()
	down("gone")
}
