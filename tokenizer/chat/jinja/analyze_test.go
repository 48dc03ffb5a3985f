package jinja

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// TestWantsParts looks at templates as vLLM 0.32.0 does (what renderers/hf.py
// says of each is in testdata/parts.jsonl).
func TestWantsParts(t *testing.T) {
	f, err := os.Open(filepath.Join("testdata", "parts.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var c struct{ Template, Format string }
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		body, err := parse(c.Template)
		if err != nil {
			t.Errorf("%s: %v", c.Template, err)
			continue
		}
		if got := wantsParts(body); got != (c.Format == "openai") {
			t.Errorf("%s: parts %v, vLLM says %s", c.Template, got, c.Format)
		}
	}
}

func TestUses(t *testing.T) {
	tpl, err := Compile("{% set a = b %}{{ range(c) | map(attribute='d') | list }}{{ e.f[g] }}{% for h in i if j is defined %}{% endfor %}" +
		"{% macro k(l=m) %}{{ n }}{% endmacro %}{{ k(o=p) }}")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"a": false, "b": true, "c": true, "d": false, "e": true, "f": false, "g": true, "h": false, "i": true, "j": true,
		"m": true, "n": true, "o": false, "p": true, "range": false, "messages": false,
	} {
		if tpl.Uses(name) != want {
			t.Errorf("Uses(%q) is %v", name, !want)
		}
	}
}

func TestRefusedTemplates(t *testing.T) {
	for _, source := range []string{
		"{{ x | nope }}", "{{ x is nope }}", "{{ x.nope() }}", "{{ nope() }}", "{% nope %}", "{% include 'x' %}",
		"{% extends 'x' %}", "{% block x %}{% endblock %}", "{% import 'x' as y %}", "{% autoescape true %}{% endautoescape %}",
		"{% for x in y recursive %}{% endfor %}", "{% if x %}", "{{ x", "{# x", "{% raw %}", "{{ f(*x) }}", "{{ (1 }}", "{{ 1 2 }}",
		"{% set range = 1 %}", "{% for x in y if n.a %}{% set n.a = 1 %}{% endfor %}", "{{ loop }}{% for x in y %}{{ loop }}{% endfor %}", "{% for loop in x %}{% endfor %}", "{{ self.x() }}",
		"{{ x | escape }}", "{{ 'é'x }}", "{{ é }}", "{{ 0x10 }}", "{{ 1_000 }}", "{{ 99999999999999999999 }}", "{{ '\\N{DASH}' }}",
		"{{ '\\ud800' }}", "{{ a < b < c }}", "{{ {1: 2} }}", "{{ x.append(1) }}", "{{ x.copy }}", "{% call f() %}{% endcall %}",
	} {
		if tpl, err := Compile(source); !isUnsupported(err) {
			text := ""
			if err == nil {
				text, err = tpl.Render(nil, Limits{}, testNow)
			}
			t.Errorf("%s: %q, %v", source, text, err)
		}
	}
	for _, source := range []string{"{{ 'ŉ' | upper }}", "{{ 'ᾳ'.lower() }}", "{{ 'é' | title }}", "{{ '%r' | format(1) }}", "{{ [[1]] < [[2]] }}",
		"{{ 9223372036854775807 + 1 }}", "{{ -9223372036854775807 * 2 }}", "{{ strftime_now('%Q') }}", "{{ range }}"} {
		if text, err := compileAndRender(source, nil); !isUnsupported(err) {
			t.Errorf("%s: %q, %v", source, text, err)
		}
	}
	if _, err := compileAndRender("{{ raise_exception('x') }}", nil); !isRaised(err) {
		t.Errorf("raise_exception: %v", err)
	}
}

// FuzzCompile never panics, and renders or refuses what it compiled.
func FuzzCompile(f *testing.F) {
	for _, s := range []string{
		"{% for m in messages %}{{ m.role + '\\n' }}{% endfor %}", "{%- macro a(b=1) -%}{{ caller() }}{% endmacro %}{% call a() %}x{% endcall %}",
		"{{ (s | trim)[1:-1] ~ 'x' if l is iterable else d['items'] }}", "{# x #}{% raw %}{{{% endraw %}", "{% set ns = namespace(a=1) %}{% set ns.a = 2 %}",
		"{{ d | tojson(indent=2) | safe }}", "{% set x = html | safe %}{{ 'a' + x }}",
	} {
		f.Add(s)
	}
	vars := testVars(f)
	f.Fuzz(func(t *testing.T, source string) {
		tpl, err := Compile(source)
		if err == nil {
			_, err = tpl.Render(vars, Limits{Output: 1 << 20, Work: 100_000}, testNow)
		}
		if err != nil && !isUnsupported(err) && !isRaised(err) {
			t.Errorf("%q: %T %v", source, err, err)
		}
	})
}
