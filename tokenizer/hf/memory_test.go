//go:build cgo && !nohf && (amd64 || arm64)

package hf

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestMemoryOfLongTextsIsGivenBack encodes texts of 3 MB, one after the other, and looks at the memory of the process.
// KVINDEX_HF_CALLS says how many; over 60 of them a process with Qwen3 varies between 180 and 260 MB.
func TestMemoryOfLongTextsIsGivenBack(t *testing.T) {
	if status("VmRSS") == 0 {
		t.Skip("no /proc/self/status")
	}
	if testing.Short() {
		t.Skip("-short")
	}
	calls := 4
	if n, err := strconv.Atoi(os.Getenv("KVINDEX_HF_CALLS")); err == nil {
		calls = n
	}
	out := subprocess(t, "memory", "../testdata/demo-model/tokenizer.json", strconv.Itoa(calls))
	var rss, peak []int
	for line := range strings.Lines(out) {
		var n, r, p int
		if _, err := fmt.Sscan(line, &n, &r, &p); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		rss, peak = append(rss, r), append(peak, p)
	}
	early, late := rss[calls/4], rss[calls-1]
	t.Logf("resident after call %d: %d MB, after call %d: %d MB; peak %d MB", calls/4+1, early, calls, late, peak[calls-1])
	if late > early+150 {
		t.Errorf("memory grows: %v MB", rss)
	}
}

// TestHostileTextDoesNotEndTheProcess encodes the longest text of the worst kind, and has one refused that would make
// the library panic. With KVINDEX_HF_ALL it takes all kinds and all tokenizers, which is 10 minutes.
func TestHostileTextDoesNotEndTheProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	names, texts := []string{"gptoss"}, []string{"capitals"} // which backtracks the most
	if os.Getenv("KVINDEX_HF_ALL") != "" {
		names, texts = realNames, []string{"capitals", "spaces", "digits", "pieces", "NUL"}
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Log(subprocess(t, "hostile", realPath(t, name), texts...))
		})
	}
}

// TestCostOfInstances prints what the package comment says.
func TestCostOfInstances(t *testing.T) {
	if os.Getenv("KVINDEX_HF_ALL") == "" {
		t.Skip("KVINDEX_HF_ALL is not set")
	}
	for _, name := range realNames {
		t.Run(name, func(t *testing.T) {
			t.Log(subprocess(t, "instances", realPath(t, name)))
		})
	}
}
