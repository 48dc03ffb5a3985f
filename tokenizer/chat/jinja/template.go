package jinja

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/kvindex/kvindex/tokenizer/chat/pyjson"
)

// Template is a compiled chat template.
type Template struct {
	program *program
	names   map[string]bool
	parts   bool
}

// Compile reads a template. The error is an [*UnsupportedError].
func Compile(source string) (t *Template, err error) {
	defer func() {
		if p := recover(); p != nil {
			t, err = nil, unsupported("compiling panicked: %s", panicText(p))
		}
	}()
	body, err := parse(source)
	if err != nil {
		return nil, err
	}
	program, err := compile(body)
	if err != nil {
		return nil, err
	}
	return &Template{program: program, names: names(body), parts: wantsParts(body)}, nil
}

// panicText says what panicked without the values that did.
func panicText(p any) string {
	if e, ok := p.(runtime.Error); ok {
		return e.Error()
	}
	return fmt.Sprintf("%T", p)
}

// Uses reports whether the template reads a variable of this name that the
// caller may give it.
func (t *Template) Uses(name string) bool { return t.names[name] }

// WantsParts reports whether vLLM would hand the template the content of
// messages as lists of parts ("openai") rather than as strings.
func (t *Template) WantsParts() bool { return t.parts }

// Var is a variable given to a template.
type Var struct {
	Name  string
	Value pyjson.Value // Absent is the same as not giving it
}

// Limits bound a render. Zero fields take the defaults.
type Limits struct {
	Output int // bytes of text; default 64 MiB
	Work   int // units, see the package documentation; default 20 million: a second or two
}

// Render gives the text of the template with these variables; the last of one
// name counts. now is what strftime_now says. Errors are an
// [*UnsupportedError] or a [*RaisedError].
func (t *Template) Render(vars []Var, l Limits, now func() time.Time) (text string, err error) {
	r := &run{output: l.Output, work: l.Work, now: now, filters: filters}
	if r.output <= 0 {
		r.output = 64 << 20
	}
	if r.work <= 0 {
		r.work = 20_000_000
	}
	defer func() {
		if p := recover(); p != nil {
			text, err = "", unsupported("rendering panicked: %s", panicText(p))
		}
	}()
	root := t.program.root.newScope(nil)
	size := 0
	for _, v := range vars {
		slot, used := t.program.root.slots[v.Name]
		if !used {
			continue
		}
		if root.vars[slot] = (variable{}); v.Value.Kind() != pyjson.Absent {
			root.assign(slot, fromJSON(v.Value, &size))
		}
	}
	// Most of what is given is printed, and not much more.
	r.text.Grow(min(size+size/8+1024, r.output))
	if err := t.program.run(&frame{r: r, scope: root}); err != nil {
		return "", err
	}
	return r.text.String(), nil
}

// fromJSON makes a value for templates and adds the length of its texts to
// size.
func fromJSON(v pyjson.Value, size *int) val {
	switch v.Kind() {
	case pyjson.Null:
		return newNone()
	case pyjson.Bool:
		return newBool(v.IsTrue())
	case pyjson.Int:
		return newInt(v.Int())
	case pyjson.Float:
		return newFloat(v.Float())
	case pyjson.String:
		*size += len(v.Str())
		return newString(v.Str())
	case pyjson.List:
		items := make([]val, v.Len())
		for i, x := range v.Items() {
			items[i] = fromJSON(x, size)
		}
		return newList(items)
	case pyjson.Dict:
		d := &dict{keys: slices.Clip(v.Keys()), items: make([]val, v.Len())}
		for i, x := range v.Items() {
			d.items[i] = fromJSON(x, size)
		}
		return val{kind: kindDict, ref: d}
	default:
		return val{}
	}
}

// run is the state of one render.
type run struct {
	text   strings.Builder
	output int // bytes left
	work   int // units left
	depth  int // macros around
	now    func() time.Time
	stack  []val // arguments of the calls that are under way
	// filters are the filters, for those that call others.
	filters map[string]function
}

// function does something with values; args are positional, kw named. It must not
// keep args.
type function func(r *run, args []val, kw map[string]val) (val, error)

// spend counts work and the copying of this many bytes.
func (r *run) spend(units, bytes int) error {
	r.work -= units + bytes/64
	if r.work < 0 {
		return unsupported("rendering costs more than allowed")
	}
	return nil
}
