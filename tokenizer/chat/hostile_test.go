package chat

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// bounded runs f and complains if it takes long or much memory; the bounds are
// loose, for slow machines and the race detector.
func bounded(t *testing.T, what string, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	f()
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	if took > 20*time.Second {
		t.Errorf("%s took %v", what, took)
	}
	if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; mib > 1024 {
		t.Errorf("%s allocated %d MiB", what, mib)
	}
	t.Logf("%s: %v, %d MiB allocated", what, took.Round(time.Millisecond), (after.TotalAlloc-before.TotalAlloc)>>20)
}

// known fails for errors that are none of the two kinds.
func known(t *testing.T, what string, err error) {
	t.Helper()
	var unsupported *UnsupportedError
	var invalid *InvalidError
	if err != nil && !errors.As(err, &unsupported) && !errors.As(err, &invalid) {
		t.Errorf("%s: %T %v", what, err, err)
	}
}

func TestHostileRequests(t *testing.T) {
	r := compile(t, chatML+"{% for t in tools or [] %}{{ t | tojson(indent=1) }}{% endfor %}")
	message := `{"role":"user","content":"x"}`
	tool := func(parameters string) string {
		return `{"messages":[` + message + `],"tool_choice":"none","tools":[{"type":"function","function":{"name":"f","parameters":{"a":` + parameters + `}}}]}`
	}
	for what, body := range map[string]string{
		"100,000 messages":        `{"messages":[` + strings.TrimSuffix(strings.Repeat(message+",", 100_000), ",") + `]}`,
		"a million messages":      `{"messages":[` + strings.TrimSuffix(strings.Repeat(message+",", 1_000_000), ",") + `]}`,
		"10 MB on a line":         `{"messages":[{"role":"user","content":"` + strings.Repeat("a", 10<<20) + `"}]}`,
		"5 MB of escapes":         `{"messages":[{"role":"user","content":"` + strings.Repeat(`\u0000`, 5<<20/6) + `"}]}`,
		"100,000 special tokens":  `{"messages":[{"role":"user","content":"` + strings.Repeat("<|im_start|>", 100_000) + `"}]}`,
		"deep lists in tools":     tool(strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)),
		"deep objects in tools":   tool(strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000)),
		"deep but allowed":        tool(strings.Repeat("[", 90) + strings.Repeat("]", 90)),
		"unclosed lists":          tool(strings.Repeat("[", 1_000_000)),
		"a million numbers":       tool("[" + strings.Repeat("0,", 1_000_000) + "0]"),
		"100,000 keys":            tool("{" + manyKeys(100_000) + `"z":1}`),
		"a deep field unread":     `{"x":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `,"messages":[` + message + `]}`,
		"a lone surrogate":        `{"messages":[{"role":"user","content":"\ud800"}]}`,
		"a lone surrogate unread": `{"x":"\ud800","messages":[` + message + `]}`,
		"invalid UTF-8":           "{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}",
		"arguments, deep": `{"messages":[{"role":"assistant","content":"","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"` +
			strings.Repeat("[", 100_000) + `"}}]}]}`,
	} {
		bounded(t, what, func() {
			text, err := renderBody(r, nil, []byte(body), ChatCompletions)
			known(t, what, err)
			if err == nil && text == "" {
				t.Errorf("%s: no text and no error", what)
			}
		})
	}
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"k%d":0,`, i)
	}
	return b.String()
}

// Templates that cost more than a chat is worth, with the messages that make
// them do so.
func TestBoundedTemplates(t *testing.T) {
	many := []byte(`{"messages":[` + strings.TrimSuffix(strings.Repeat(`{"role":"user","content":"0123456789"},`, 20_000), ",") + `]}`)
	one := []byte(`{"messages":[{"role":"user","content":"0123456789"}]}`)
	for what, c := range map[string]struct {
		template string
		body     []byte
	}{
		"all messages for each message": {"{% for m in messages %}{{ messages }}{% endfor %}", many},
		"loops in loops":                {"{% for a in messages %}{% for b in messages %}{% for c in messages %}x{% endfor %}{% endfor %}{% endfor %}", many},
		"slices of all messages":        {"{% for m in messages %}{% set x = messages[loop.index0:] %}{% endfor %}", many},
		"a text that grows":             {"{% set n = namespace(s='') %}{% for m in messages %}{% set n.s = n.s + m.content %}{% endfor %}{{ n.s }}", many},
		"a text that doubles":           {"{% set n = namespace(s='xx') %}{% for i in range(100) %}{% set n.s = n.s + n.s %}{% endfor %}", one},
		"a text many times":             {"{{ 'x' * 100000000000 }}", one},
		"a list many times":             {"{{ [0] * 100000000000 }}", one},
		"a macro that calls itself":     {"{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", one},
		"two macros":                    {"{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}", one},
		"a long range":                  {"{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", one},
		"indents":                       {"{{ messages | tojson(indent='" + strings.Repeat(" ", 100) + "') }}", many},
		"a replacement":                 {"{% for i in range(100) %}{{ ('x' * 1000000) | replace('x', 'yyyyyyyyyy') }}{% endfor %}", one},
	} {
		r, err := Compile(Config{Templates: map[string]string{"default": c.template}}, Options{MaxWork: 2_000_000})
		if err != nil {
			t.Fatal(err)
		}
		bounded(t, what, func() {
			_, err := renderBody(r, nil, c.body, Tokenize)
			var unsupported *UnsupportedError
			if !errors.As(err, &unsupported) && what != "a text that grows" && what != "indents" {
				t.Errorf("%s: %v", what, err)
			}
			known(t, what, err)
		})
	}
}

func TestOutputLimit(t *testing.T) {
	r, err := Compile(Config{Templates: map[string]string{"default": chatML}}, Options{MaxOutput: 100})
	if err != nil {
		t.Fatal(err)
	}
	for n, ok := range map[int]bool{10: true, 200: false} {
		_, err := renderBody(r, nil, fmt.Appendf(nil, `{"messages":[{"role":"user","content":"%s"}]}`, strings.Repeat("a", n)), Tokenize)
		var unsupported *UnsupportedError
		if ok != (err == nil) || (err != nil && !errors.As(err, &unsupported)) {
			t.Errorf("%d bytes with a limit of 100: %v", n, err)
		}
	}
}
