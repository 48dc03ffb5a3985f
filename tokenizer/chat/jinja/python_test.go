package jinja

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kvindex/kvindex/tokenizer/chat/pyjson"
)

func testNow() time.Time { return time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC) }

// testVars are the variables that testdata/cases.jsonl was made with.
func testVars(t testing.TB) []Var {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "variables.json"))
	if err != nil {
		t.Fatal(err)
	}
	v, err := pyjson.Parse(string(data), pyjson.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	var vars []Var
	for i, k := range v.Keys() {
		vars = append(vars, Var{k, v.Items()[i]})
	}
	return vars
}

// TestAgainstPython renders what Jinja 3.1.6 rendered in the environment of
// transformers 5.19: cases.jsonl on 2026-11-29, scopes.jsonl, random templates
// of nested loops, macros, blocks and namespaces, on 2026-11-30. Where Python
// gave a text, so must we; where it raised, we may refuse or, in the cases
// listed, render on.
func TestAgainstPython(t *testing.T) {
	lenient := map[string]bool{
		"{{ missing.x }}":      true, // an undefined value has no attributes at all
		"{{ missing['a'] }}":   true,
		"{% include 'x' %}":    false,
		"{{ 5 is nosuchtest}}": false,
	}
	vars := testVars(t)
	var text []byte
	for _, name := range []string{"cases.jsonl", "scopes.jsonl"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, b...)
	}
	var same, refused int
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		var c struct {
			Template string
			Out, Err *string
		}
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		got, err := compileAndRender(c.Template, vars)
		switch {
		case c.Out != nil && err != nil:
			t.Errorf("%q: %v", c.Template, err)
		case c.Out != nil && got != *c.Out:
			t.Errorf("%q:\nwant %q\ngot  %q", c.Template, *c.Out, got)
		case c.Out != nil:
			same++
		case err == nil && !lenient[c.Template]:
			t.Errorf("%q: Python has %s, we %q", c.Template, *c.Err, got)
		default:
			refused++
		}
	}
	t.Logf("%d texts as in Python, %d refused there", same, refused)
}

func compileAndRender(source string, vars []Var) (string, error) {
	tpl, err := Compile(source)
	if err != nil {
		return "", err
	}
	return tpl.Render(vars, Limits{}, testNow)
}

// isUnsupported and isRaised tell the two errors apart.
func isUnsupported(err error) bool {
	var e *UnsupportedError
	return errors.As(err, &e)
}

func isRaised(err error) bool {
	var e *RaisedError
	return errors.As(err, &e)
}
