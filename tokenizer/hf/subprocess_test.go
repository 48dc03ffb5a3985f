//go:build cgo && !nohf && (amd64 || arm64)

package hf

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// subprocessArg as first argument makes the test binary run one scenario in a process of its own, whose memory can be
// measured and which may be killed by a panic in the library.
const subprocessArg = "-hf.subprocess"

// subprocess runs a scenario and returns what it printed.
func subprocess(t *testing.T, scenario, path string, args ...string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{subprocessArg, scenario, path}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s %s: %v\n%.1000s", scenario, path, args, err, stderr.String())
	}
	return string(out)
}

// runSubprocess is the subprocess's side. Its arguments: the scenario, a tokenizer.json, more.
func runSubprocess(args []string) {
	check := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	data, err := os.ReadFile(args[1])
	check(err)
	e, err := New(data, Options{})
	check(err)
	defer e.Close()
	switch args[0] {
	case "memory":
		calls, err := strconv.Atoi(args[2])
		check(err)
		check(scenarioMemory(e, calls))
	case "hostile":
		check(scenarioHostile(e, args[2:]))
	case "instances":
		check(scenarioInstances(e, data))
	}
}

const memoryInput = 3_000_000

// scenarioMemory encodes a number of different texts of 3 MB, and prints the resident memory after each.
func scenarioMemory(e *Encoder, calls int) error {
	r := rand.New(rand.NewPCG(5, 6))
	var ids []uint32
	for n := range calls {
		var b strings.Builder
		for b.Len() < memoryInput-2000 {
			b.WriteString(randomText(r, 20, "lorem", " ipsum", " dolor", " sit", strconv.Itoa(r.IntN(1e9)), " word"+strconv.Itoa(r.IntN(1e6))))
		}
		var err error
		if ids, err = e.Append(ids[:0], b.String()); err != nil {
			return err
		}
		fmt.Println(n, status("VmRSS"), status("VmHWM"))
	}
	return nil
}

// scenarioHostile encodes the longest texts that are accepted: such that make the expression of a pre-tokenizer
// backtrack the most, and such that make the most and shortest pieces.
func scenarioHostile(e *Encoder, names []string) error {
	hostile := map[string]string{
		"capitals": "\u0301" + strings.Repeat("A", MaxInputLimit-2),
		"spaces":   strings.Repeat(" ", MaxInputLimit),
		"digits":   strings.Repeat("1", MaxInputLimit),
		"pieces":   strings.Repeat("a ", MaxInputLimit/2),
		"NUL":      strings.Repeat("\x00", MaxInputLimit/6),
	}
	for _, name := range names {
		text := hostile[name]
		start := time.Now()
		ids, err := e.Append(nil, text)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Printf("%s: %d ids in %v; peak %d MB\n", name, len(ids), time.Since(start).Round(time.Millisecond), status("VmHWM"))
	}
	if _, err := e.Append(nil, strings.Repeat(" ", 10<<20)); err == nil {
		return errors.New("10 MB of spaces: no error")
	}
	return nil
}

// scenarioInstances prints what instances cost.
func scenarioInstances(e *Encoder, data []byte) error {
	const n = 3
	before := status("VmRSS")
	start := time.Now()
	for range n {
		i, err := load(e.spec.plain())
		if err != nil {
			return err
		}
		defer i.free()
	}
	fmt.Printf("%d MB and %v an instance; JSON %d MB\n", (status("VmRSS")-before)/n, (time.Since(start) / n).Round(time.Millisecond), len(data)>>20)
	return nil
}

// status returns a field of /proc/self/status in MB, 0 where there is no such file.
func status(field string) int {
	data, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(data)) {
		if rest, found := strings.CutPrefix(line, field+":"); found {
			kb, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			return kb >> 10
		}
	}
	return 0
}
