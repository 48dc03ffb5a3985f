package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	f := func(line string, want time.Duration, ok bool) {
		t.Helper()
		if got, err := parseStat(line); got != want || (err == nil) != ok {
			t.Errorf("%q: %v, %v", line, got, err)
		}
	}
	f("42 (kvindex) S 1 42 42 0 -1 4194560 1 0 0 0 250 31 0 0 20 0 9 0 1 1 1", 2810*time.Millisecond, true)
	f("42 (a) b) (c) R 1 42 42 0 -1 4194560 1 0 0 0 1 0 0 0 20 0 9 0 1 1 1", 10*time.Millisecond, true)
	f("42 (kvindex) S 1", 0, false)
	f("", 0, false)
	f("42 (kvindex) S 1 42 42 0 -1 4194560 1 0 0 0 x 31 0 0", 0, false)
}

func TestSumMetric(t *testing.T) {
	text := "# HELP a b\na{x=\"1\",t=\"s\"} 2\na{x=\"2\",t=\"s\"} 3e1\na{x=\"2\",t=\"r\"} 7\nab 9\nc 4\n"
	f := func(name, label string, want float64) {
		t.Helper()
		if got, err := sumMetric(text, name, label); err != nil || got != want {
			t.Errorf("%s %s: %v, %v; want %v", name, label, got, err, want)
		}
	}
	f("a", `t="s"`, 32)
	f("a", "", 39)
	f("c", "", 4)
	f("d", "", 0)
	if _, err := sumMetric("a x\n", "a", ""); err == nil {
		t.Error("a metric that is no number was read")
	}
}

// TestRing: what a pod stores is not held at that moment, what it removes is,
// the end of a prompt goes first, and a round leaves behind what it found.
func TestRing(t *testing.T) {
	held := map[ringStep]bool{}
	for p := ringPrompts / 2; p < ringPrompts; p++ {
		for s := range promptSteps {
			held[ringStep{p, s}] = true
		}
	}
	for round := range 2 {
		for k := range ringSteps {
			stores, removes := steps(k)
			if held[stores] || stores.step > 0 && !held[ringStep{stores.prompt, stores.step - 1}] {
				t.Fatalf("round %d, step %d stores %v", round, k, stores)
			}
			if !held[removes] || held[ringStep{removes.prompt, removes.step + 1}] {
				t.Fatalf("round %d, step %d removes %v", round, k, removes)
			}
			held[stores] = true
			delete(held, removes)
		}
	}
	if len(held) != ringSteps/2 {
		t.Errorf("%d steps are held", len(held))
	}
}

func TestBatchesDue(t *testing.T) {
	if got := batchesDue(time.Second); got*ingestStep != ingestRate {
		t.Errorf("%d batches a second", got)
	}
	if batchesDue(0) != 0 {
		t.Error("a batch is due at once")
	}
}

func TestHeld(t *testing.T) {
	if held(podCount-1, 632) != 632 || held(0, 6250) != 97 {
		t.Errorf("%d, %d", held(podCount-1, 632), held(0, 6250))
	}
	names := map[int]bool{}
	for i := range podCount {
		names[held(i, 632)] = true
	}
	if len(names) != podCount {
		t.Errorf("prefixes of %d different lengths", len(names))
	}
}

func TestJudge(t *testing.T) {
	r := report{Rows: []row{
		{Name: "512 blocks json", Open: timing{ServerP50: 0.2}, Closed: timing{ServerP50: 9}},
		{Name: "512 blocks json", Ingest: true, Open: timing{ServerP50: 9}},
		{Name: "632 blocks base64", PerSecond: 9999},
		{Name: "chat of 107k", Open: timing{ServerP50: 1.5}},
	}}
	r.judge()
	if len(r.Targets) != 3 || !r.Targets[0].Met || r.Targets[1].Met || r.Targets[2].Met || r.Targets[2].Got != 9999 {
		t.Errorf("%+v", r.Targets)
	}
	var out strings.Builder
	if err := r.table(&out); err != nil || strings.Count(out.String(), "MISSED") != 2 {
		t.Errorf("%v\n%s", err, &out)
	}
}

func TestFlags(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		if err := run(context.Background(), args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
	f("only flags", "fast")
	f("--format", "--format", "xml")
	f("--seconds", "--seconds", "0")
	f("cannot start", "--kvindex", "/nonexistent/kvindex")
	f("help requested", "--help")
}

// TestShortRun: one row of the real thing, with ingest and without.
func TestShortRun(t *testing.T) {
	if testing.Short() {
		t.Skip("builds kvindex")
	}
	r, err := measure(context.Background(), options{seconds: 0.3, only: "632 blocks base64"}, newProgress(io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 2 || r.Rows[0].Bad != 0 || r.Rows[0].PerSecond == 0 || r.Rows[1].Ingested == 0 || len(r.Targets) != 1 {
		t.Errorf("%s", fmt.Sprintf("%+v", r))
	}
}
