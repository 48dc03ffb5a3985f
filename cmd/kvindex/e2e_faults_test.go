package main_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"
)

// TestE2EFaults injects the faults that kvindex must survive into the real
// binary and what surrounds it, and judges what it says: a row for each fault,
// with what was injected, how it showed, how long it took until the answers were
// exact again (or rightly marked), and how many blocks were wrong.
//
// KVINDEX_FAULTS chooses: numbers with commas, "all", or nothing for those that
// are quick. KVINDEX_SEED repeats all choices of a run, though not its timing.
// KVINDEX_FAULTS_FORMAT=json prints a JSON object for each row instead. The
// history of a fault that is missed is kept in build/faults.
func TestE2EFaults(t *testing.T) {
	chosen, err := chosenFaults(os.Getenv("KVINDEX_FAULTS"))
	if err != nil {
		t.Fatal(err)
	}
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("KVINDEX_SEED"); s != "" {
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	table := &faultTable{json: os.Getenv("KVINDEX_FAULTS_FORMAT") == "json"}
	t.Cleanup(func() { table.end(seed) })
	for _, x := range chosen {
		t.Run(fmt.Sprintf("%02d", x.n), func(t *testing.T) {
			if x.patient {
				t.Parallel() // it waits most of the time; with the other such, after the rest
			}
			f := &faultRun{TB: t, n: x.n, seed: seed, rand: rand.New(rand.NewPCG(seed, uint64(x.n))), begin: time.Now()}
			f.row = faultRow{Fault: x.n, Name: x.name}
			// After the cleanups of the fault itself: the end of a process is judged too.
			t.Cleanup(func() { table.add(f.end()) })
			x.run(f)
		})
	}
}

// fault is something that goes wrong, and the function that does it and judges.
type fault struct {
	n       int
	name    string
	quick   bool // a few seconds at most
	patient bool // waits for time to pass, and measures none
	run     func(*faultRun)
}

// allFaults are numbered as they are referred to elsewhere.
func allFaults() []fault {
	return []fault{
		{n: 1, name: "forward gap", quick: true, run: forwardGap},
		{n: 2, name: "replay truncated", quick: true, run: replayTruncated},
		{n: 3, name: "duplicates, reordering", quick: true, run: reordering},
		{n: 4, name: "restart with seq reset", quick: true, run: restartVisible},
		{n: 5, name: "restart masked", quick: true, run: restartMasked},
		{n: 6, name: "container restarted in place", quick: true, run: restartInPlace},
		{n: 7, name: "pod IP reused", quick: true, run: addressReused},
		{n: 8, name: "zombie pod, no FIN", patient: true, run: zombie},
		{n: 9, name: "pod not ready but alive", patient: true, run: notReady},
		{n: 10, name: "kill -9 at any moment", patient: true, run: killed},
		{n: 11, name: "restart with snapshot, engines too", quick: true, run: restartBoth},
		{n: 12, name: "Redis down at start", patient: true, run: redisDownAtStart},
		{n: 13, name: "Redis stalled during a snapshot", run: redisStalled},
		{n: 14, name: "every byte of a snapshot flipped", quick: true, run: flippedBytes},
		{n: 15, name: "Redis evicted a chunk", run: chunkEvicted},
		{n: 16, name: "two writers", run: twoWriters},
		{n: 17, name: "other snapshot versions", quick: true, run: otherVersions},
		{n: 18, name: "NATS down, leader changes", run: natsDown},
		{n: 19, name: "slow consumer", run: slowConsumer},
		{n: 20, name: "NATS stream purged past us", run: streamPurged},
		{n: 21, name: "NATS stream re-created", quick: true, run: streamRecreated},
		{n: 22, name: "poison between good messages", quick: true, run: poisonBetween},
		{n: 23, name: "hostile sizes", quick: true, run: hostileSizes},
		{n: 24, name: "event flood", run: flood},
		{n: 25, name: "capacity reached", quick: true, run: capacity},
		{n: 26, name: "malformed HTTP, 1M-token prompts", quick: true, run: malformed},
		{n: 27, name: "slow and idle HTTP clients", run: idleClients},
		{n: 28, name: "no or wrong token", quick: true, run: tokens},
		{n: 29, name: "salts apart, no prompt in a log", quick: true, run: salts},
		{n: 30, name: "clock jumps", patient: true, run: clockJumps},
		{n: 31, name: "SIGTERM under load", quick: true, run: termination},
		{n: 32, name: "replicas converge", run: twoReplicas},
		{n: 33, name: "ranks and tiers", quick: true, run: ranksAndTiers},
		{n: 34, name: "address changes block size, model", quick: true, run: addressChanges},
	}
}

// chosenFaults are those that the text names.
func chosenFaults(text string) ([]fault, error) {
	all := allFaults()
	switch text {
	case "all":
		return all, nil
	case "":
		return slices.DeleteFunc(all, func(x fault) bool { return !x.quick }), nil
	}
	var chosen []fault
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		i := slices.IndexFunc(all, func(x fault) bool { return x.n == n })
		if err != nil || i < 0 {
			return nil, fmt.Errorf("KVINDEX_FAULTS=%q: %q is no fault: they are 1 to %d", text, part, all[len(all)-1].n)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// faultRow is what is reported of a fault.
type faultRow struct {
	Fault       int     `json:"fault"`
	Name        string  `json:"name"`
	Injected    string  `json:"injected"`
	Seen        string  `json:"seen"`
	RecoveredIn float64 `json:"recovered_in_s"`
	Wrong       int     `json:"blocks_wrong"`
	Result      string  `json:"result"` // ok, MISS or skipped
	History     string  `json:"history,omitzero"`
}

func (r *faultRow) line() string {
	return fmt.Sprintf("%2d  %-7s %-28s injected: %s | seen: %s | recovered in %.2f s | %d blocks wrong",
		r.Fault, r.Result, r.Name, r.Injected, r.Seen, r.RecoveredIn, r.Wrong)
}

// faultTable prints rows as they come, and all of them at the end.
type faultTable struct {
	json bool
	mu   sync.Mutex
	rows []faultRow
}

func (t *faultTable) add(r faultRow) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows = append(t.rows, r)
	if !t.json {
		fmt.Println(r.line())
		return
	}
	if b, err := json.Marshal(r); err == nil {
		fmt.Println(string(b))
	}
}

func (t *faultTable) end(seed uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.SortFunc(t.rows, func(a, b faultRow) int { return a.Fault - b.Fault })
	missed, skipped := 0, 0
	for _, r := range t.rows {
		switch r.Result {
		case "skipped":
			skipped++
		case "MISS":
			missed++
			fmt.Fprintf(os.Stderr, "MISS: make faults FAULT=%d SEED=%d; its history: %s\n", r.Fault, seed, r.History)
		}
	}
	if t.json {
		return
	}
	fmt.Println()
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "#\tFAULT\tSEEN AS\tRECOVERED IN\tBLOCKS WRONG\tRESULT")
	for _, r := range t.rows {
		fmt.Fprintf(w, "%d\t%s\t%s\t%.2f s\t%d\t%s\n", r.Fault, r.Name, r.Seen, r.RecoveredIn, r.Wrong, r.Result)
	}
	_ = w.Flush() // it has nowhere to go
	fmt.Printf("%d faults, %d missed, %d SKIPPED, NOT TESTED; seed %d\n", len(t.rows), missed, skipped, seed)
}

// faultHistory is what is kept of a fault that was missed.
type faultHistory struct {
	Seed     uint64       `json:"seed"`
	Replay   string       `json:"replay"` // the command that does it again
	Row      faultRow     `json:"row"`
	Schedule []faultStep  `json:"schedule"`
	Servers  []faultState `json:"servers"`
}

// faultStep is something that was done or seen.
type faultStep struct {
	At   float64 `json:"at_s"`
	What string  `json:"what"`
}

// faultState is what one process of kvindex said in the end, and its log.
type faultState struct {
	Instances json.RawMessage `json:"instances,omitempty"`
	Dump      []string        `json:"dump,omitempty"`
	Log       []string        `json:"log"`
}

// keep writes the history and returns where it is.
func (h *faultHistory) keep() string {
	dir := filepath.Join("..", "..", "build", "faults")
	b, err := json.MarshalIndent(h, "", " ")
	if err != nil {
		return err.Error()
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err.Error()
	}
	file := filepath.Join(dir, fmt.Sprintf("fault-%02d-seed-%d.json", h.Row.Fault, h.Seed))
	if err := os.WriteFile(file, b, 0o600); err != nil {
		return err.Error()
	}
	if full, err := filepath.Abs(file); err == nil {
		return full
	}
	return file
}
