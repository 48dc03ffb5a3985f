package main_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestReadmeNamesTests: every test that the README calls a proof is there.
func TestReadmeNamesTests(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`\bTest[A-Z][A-Za-z0-9]*`).FindAllString(string(readme), -1)
	if len(names) < 12 {
		t.Errorf("the README names %d tests", len(names))
	}
	var code strings.Builder
	err = filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (d.Name() == "build" || d.Name() == ".git") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, "_test.go") {
			b, err := os.ReadFile(path)
			code.Write(b)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.Contains(code.String(), "func "+name+"(") {
			t.Errorf("the README names %s, and there is no such test", name)
		}
	}
}
