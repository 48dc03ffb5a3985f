package main

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kvindex/kvindex/indexer"
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

func TestParseTotal(t *testing.T) {
	f := func(text string, want time.Duration) {
		t.Helper()
		if got := parseTotal(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	f("cpu  100 20 3 9000 800 4 5 6 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n", 1380*time.Millisecond)
	f("cpu 1 2", 0)
	f("", 0)
}

func TestFlags(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		var out, errOut strings.Builder
		_, err := parseFlags(args, &out, &errOut)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", args, err)
		}
	}
	f("help requested", "--help")
	f("there are only flags", "x")
	f("--format", "--format", "xml")
	f("--engines", "--engines", "1")
	f("--blocks", "--blocks", "100")
	f("--rate", "--rate", "1")
	f("--seconds", "--seconds", "0")
	f("--probes", "--probes", "1")
}

// TestTurns: batches are as large as they should be, engines get full, and the
// system prompts stay there whatever is evicted.
func TestTurns(t *testing.T) {
	f, err := startFleet(options{engines: loaders, blocks: minBlocks(32), turn: 32})
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	e := f.engines[0]
	for i := range 40 * minBlocks(32) / 32 {
		stored, err := f.turn(e)
		if err != nil {
			t.Fatal(err)
		}
		if begins := stored > 32; begins && i > 100 || stored < turnLeast(32) {
			t.Fatalf("turn %d stores %d blocks", i, stored)
		}
	}
	for i, tokens := range f.system {
		if stored, err := f.run(e, append(tokens[:len(tokens):len(tokens)], 1)); err != nil || stored != 0 {
			t.Errorf("%d blocks of system prompt %d were gone, %v", stored, i, err)
		}
	}
}

// TestDumps: what is missing, too much, or in another number of copies is seen.
func TestDumps(t *testing.T) {
	f, err := startFleet(options{engines: loaders, blocks: minBlocks(32), turn: 32})
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	if _, err := f.run(f.engines[0], f.system[0]); err != nil {
		t.Fatal(err)
	}
	line := func(seq uint64, instance string, copies int) []byte {
		b, err := json.Marshal(map[string]any{
			"seq_hash": strconv.FormatUint(seq, 10), "holders": []any{map[string]any{"instance": instance, "tier": "gpu", "copies": copies}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	var lines [][]byte
	for key := range f.engines[0].Truth(indexer.NewHasher(indexer.DefaultSeed)) {
		lines = append(lines, line(uint64(key.Seq), "pod-00", 1))
	}
	check := func(lines [][]byte, missing, extra int) {
		t.Helper()
		d := dumps{Equal: true}
		if err := d.againstEngines(f, lines); err != nil || d.Missing != missing || d.Extra != extra || d.Held != systemBlocks {
			t.Errorf("%+v, %v", d, err)
		}
	}
	check(lines, 0, 0)
	check(lines[1:], 1, 0)
	check(append(lines[:len(lines):len(lines)], line(7, "pod-01", 1)), 0, 1)
	lines[0] = []byte(strings.Replace(string(lines[0]), `"copies":1`, `"copies":2`, 1))
	check(lines, 1, 0)
}

func TestRestoredBy(t *testing.T) {
	x := restarted{}
	x.readLog("text\n" + `{"msg":"restored a snapshot: what it holds","source":"redis redis://127.0.0.1:1","age":2000000000,"bytes":17}` + "\n")
	if x.Source != "redis" || x.Age != 2 || x.Bytes != 17 {
		t.Errorf("%+v", x)
	}
	x.readLog(`{"msg":"no snapshot to go on from"}`)
	if x.Source != "nothing" {
		t.Errorf("%+v", x)
	}
}
