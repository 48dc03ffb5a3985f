package main_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// modulePath is the module whose packages the import rule is about.
const modulePath = "github.com/kvindex/kvindex"

// everything, in place of a rule's list, lets a package import all others of the module.
const everything = "*"

// importRule says which packages of the module each package may import; both are given by their folders. A package
// without an entry fails the test, so that a new package comes with a decision about what it may know. An internal
// package counts as the package that contains it. Tests may import more than this.
var importRule = map[string][]string{
	"cmd/kvindex": {everything},

	"indexer":          {},
	"indexer/kthena":   {},
	"indexer/snapshot": {},

	"indexer/snapshot/filestore":  {"indexer/snapshot"},
	"indexer/snapshot/peer":       {"indexer/snapshot"},
	"indexer/snapshot/redisstore": {"indexer/snapshot"},
	"indexer/snapshot/redistest":  {},
	"scripts/bench-index":         {"indexer"},
	"scripts/bench-recovery": {
		"events", "events/enginesim", "indexer", "indexer/snapshot", "indexer/snapshot/filestore", "indexer/snapshot/redisstore",
	},

	"events":            {"indexer"},
	"events/zmqsource":  {"events", "indexer"},
	"events/natssource": {"events", "indexer"},

	"events/natssource/relay": {"events", "events/natssource"},

	"events/discovery": {"events", "indexer"},

	"events/discovery/dnstest": {},

	"events/enginesim": {"events", "indexer"},

	"tokenizer":        {},
	"tokenizer/hf":     {"tokenizer"},
	"tokenizer/bpe":    {"tokenizer"},
	"tokenizer/hub":    {},
	"tokenizer/remote": {"tokenizer"},

	"tokenizer/chat":        {"tokenizer", "tokenizer/chat/jinja", "tokenizer/chat/pyjson"},
	"tokenizer/chat/jinja":  {"tokenizer/chat/pyjson"},
	"tokenizer/chat/pyjson": {},

	"scripts/loadgen":         {"indexer", "scripts/loadgen/load"},
	"scripts/loadgen/load":    {"indexer"},
	"scripts/bench-http":      {"events/enginesim", "scripts/loadgen/load"},
	"scripts/bench-replicas":  {"events/enginesim", "indexer"},
	"scripts/bench-tokenizer": {"indexer", "tokenizer", "tokenizer/bpe", "tokenizer/chat", "tokenizer/hf"},

	"api":        {"indexer", "tokenizer"},
	"api/client": {},
}

// embeddable are the packages that Go routers embed, as patterns of go list, and heavy the modules that those must
// not pull in.
var (
	embeddable = []string{modulePath + "/indexer/...", modulePath + "/events"}
	heavy      = []string{"github.com/gin-gonic/gin", "github.com/daulet/tokenizers"}
)

func TestImportRule(t *testing.T) {
	pkgs := goList(t, modulePath+"/...")
	if len(pkgs) == 0 {
		t.Fatalf("go list found no package in %s", modulePath)
	}
	for _, v := range ruleViolations(pkgs, importRule) {
		t.Error(v)
	}
}

func TestEmbeddablePackagesAreLight(t *testing.T) {
	deps := goList(t, append([]string{"-deps"}, embeddable...)...)
	for _, v := range heavyPackages(deps, heavy) {
		t.Error(v)
	}
}

func TestRuleViolations(t *testing.T) {
	rule := map[string][]string{
		"main":      {everything},
		"base":      {},
		"base/leaf": {"base"},
		"side":      {},
	}
	f := func(from string, imports []string, want ...string) {
		t.Helper()
		p := listedPackage{ImportPath: path.Join(modulePath, from)}
		for _, to := range imports {
			if to, ours := strings.CutPrefix(to, "ours:"); ours {
				p.Imports = append(p.Imports, path.Join(modulePath, to))
			} else {
				p.Imports = append(p.Imports, to)
			}
		}
		if diff := cmp.Diff(want, ruleViolations([]listedPackage{p}, rule)); diff != "" {
			t.Errorf("%s importing %q: (-want +got):\n%s", from, imports, diff)
		}
	}

	// Allowed.
	f("base", nil)
	f("base", []string{"fmt", "example.com/base", modulePath + "-tools/side"})
	f("base/leaf", []string{"ours:base", "ours:base/internal/table"})
	f("base/internal/table", []string{"ours:base", "ours:base/internal/table/row"})
	f("base", []string{"ours:base/internal"})
	f("main", []string{"ours:base", "ours:side", "ours:base/leaf"})

	// Forbidden.
	f("base", []string{"ours:base/leaf"}, `base must not import base/leaf: the import rule lets it import none of ours`)
	f("base/leaf", []string{"ours:side", "ours:base", "ours:main"},
		`base/leaf must not import side: the import rule lets it import only base`,
		`base/leaf must not import main: the import rule lets it import only base`)
	f("base/internal/table", []string{"ours:side/internal/x"},
		`base/internal/table must not import side/internal/x: the import rule lets it import none of ours`)

	// Packages that nobody has decided about.
	const unknown = " has no import rule: add it to importRule in cmd/kvindex/imports_test.go, with the packages it may import"
	f("other", []string{"ours:base"}, "other"+unknown)
	f("other/internal/x", nil, "other"+unknown)
	f("internal/x", nil, "internal/x"+unknown)
	f("", nil, "."+unknown)
}

func TestHeavyPackages(t *testing.T) {
	deps := []listedPackage{
		{ImportPath: "example.com/heavy-not"},
		{ImportPath: "fmt"},
		{ImportPath: "example.com/heavy/sub"},
		{ImportPath: "example.com/heavy"},
	}
	want := []string{
		"a package that routers embed depends on example.com/heavy/sub",
		"a package that routers embed depends on example.com/heavy",
	}
	if diff := cmp.Diff(want, heavyPackages(deps, []string{"example.com/heavy"})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// listedPackage is what the checks need to know of a package: its import path and those of what it imports outside
// its tests.
type listedPackage struct {
	ImportPath string
	Imports    []string
}

// ruleViolations returns one sentence for each package that rule does not list and for each import that it does not
// allow, in the order of pkgs. Packages of other modules are not its concern.
func ruleViolations(pkgs []listedPackage, rule map[string][]string) []string {
	var violations []string
	for _, p := range pkgs {
		from, ours := moduleFolder(p.ImportPath)
		if !ours {
			continue
		}
		owner := internalOwner(from)
		allowed, known := rule[owner]
		if !known {
			violations = append(violations, owner+" has no import rule: add it to importRule in "+
				"cmd/kvindex/imports_test.go, with the packages it may import")
			continue
		}
		for _, imported := range p.Imports {
			to, ours := moduleFolder(imported)
			if !ours || slices.Contains(allowed, everything) {
				continue
			}
			if target := internalOwner(to); target == owner || slices.Contains(allowed, target) {
				continue
			}
			may := "none of ours"
			if len(allowed) > 0 {
				may = "only " + strings.Join(allowed, ", ")
			}
			violations = append(violations, fmt.Sprintf("%s must not import %s: the import rule lets it import %s", from, to, may))
		}
	}
	return violations
}

// heavyPackages returns one sentence for each of deps that belongs to one of the heavy modules.
func heavyPackages(deps []listedPackage, heavy []string) []string {
	var violations []string
	for _, p := range deps {
		for _, module := range heavy {
			if p.ImportPath == module || strings.HasPrefix(p.ImportPath, module+"/") {
				violations = append(violations, "a package that routers embed depends on "+p.ImportPath)
			}
		}
	}
	return violations
}

// moduleFolder returns the folder of an import path within the module, "." for the module's root, and whether the
// path is of the module at all.
func moduleFolder(importPath string) (string, bool) {
	if importPath == modulePath {
		return ".", true
	}
	return strings.CutPrefix(importPath, modulePath+"/")
}

// internalOwner returns the folder of the package that an internal package belongs to, and any other folder as it is.
func internalOwner(folder string) string {
	owner, _, isInternal := strings.Cut(folder+"/", "/internal/")
	if !isInternal {
		return folder
	}
	return owner
}

// goList runs go list with the given flags and patterns and returns the packages that it names.
func goList(t *testing.T, args ...string) []listedPackage {
	t.Helper()
	touchSources(t)
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Imports"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, &stderr)
	}
	var pkgs []listedPackage
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listedPackage
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return pkgs
		}
		if err != nil {
			t.Fatalf("cannot read the output of %s: %v", cmd, err)
		}
		pkgs = append(pkgs, p)
	}
}

// touchSources looks at every Go file and folder of the module. What go list reads, go test does not see: without this
// it would report the cached result of an earlier run after a package has got another import.
func touchSources(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir("../..", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "build") {
			return filepath.SkipDir
		}
		if path.Ext(name) == ".go" || entry.Name() == "go.mod" {
			_, err = os.Stat(name)
		}
		return err
	})
	if err != nil {
		t.Fatalf("cannot look at the module's sources: %v", err)
	}
}
