package api

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files of testdata anew")

// golden compares got with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, got) {
		t.Errorf("%s is not what came out (go test -update writes it anew):\n%s", path, cmp.Diff(string(want), string(got)))
	}
}

var timingsRE = regexp.MustCompile(`"timings_us":\{[^}]*\}`)

// steady replaces what differs from run to run.
func steady(answer string) string {
	return timingsRE.ReplaceAllString(answer, `"timings_us":{"decode":1,"tokenize":0,"hash":0,"match":1,"total":2}`)
}
