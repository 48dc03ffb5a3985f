package jinja

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	aj "github.com/ardanlabs/jinja"

	"github.com/kvindex/kvindex/tokenizer/chat/pyjson"
)

// Template is a compiled chat template.
type Template struct {
	lib   *aj.Template
	funcs []string // our functions that it calls
	names map[string]bool
	parts bool
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
	plain, funcs, err := emit(body)
	if err != nil {
		return nil, err
	}
	lib, err := aj.Compile(plain)
	if err != nil {
		return nil, unsupported("the template does not compile: %v", err)
	}
	return &Template{lib: lib, funcs: funcs, names: names(body), parts: wantsParts(body)}, nil
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
	r := &run{output: l.Output, work: l.Work, now: now, filters: filters,
		markup: slices.Contains(t.funcs, "f_safe")}
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
	data := make(map[string]aj.Value, len(vars)+len(t.funcs))
	size := 0
	for _, v := range vars {
		if v.Value.Kind() == pyjson.Absent {
			delete(data, v.Name)
			continue
		}
		data[v.Name] = fromJSON(v.Value, &size)
	}
	for _, name := range t.funcs {
		data[prefix+name] = r.callable(name)
	}
	// Most of what is given is printed, and not much more.
	r.text.Grow(min(size+size/8+1024, r.output))
	rest, err := t.lib.RenderValues(data)
	var known *UnsupportedError
	var raised *RaisedError
	if err != nil && !errors.As(err, &known) && !errors.As(err, &raised) {
		// The library's own complaint: Python may or may not have one here.
		err = unsupported("%v", err)
	}
	if err == nil && rest != "" {
		err = unsupported("the library printed %d bytes itself", len(rest))
	}
	if err != nil {
		return "", err
	}
	return r.text.String(), nil
}

// fromJSON makes a value for templates and adds the length of its texts to
// size.
func fromJSON(v pyjson.Value, size *int) aj.Value {
	switch v.Kind() {
	case pyjson.Null:
		return aj.None()
	case pyjson.Bool:
		return aj.NewBool(v.IsTrue())
	case pyjson.Int:
		return aj.NewInt(v.Int())
	case pyjson.Float:
		return aj.NewFloat(v.Float())
	case pyjson.String:
		*size += len(v.Str())
		return aj.NewString(v.Str())
	case pyjson.List:
		items := make([]aj.Value, v.Len())
		for i, x := range v.Items() {
			items[i] = fromJSON(x, size)
		}
		return aj.NewList(items)
	case pyjson.Dict:
		d := aj.NewDict()
		dict := d.AsDict()
		dict.Keys = make([]string, 0, v.Len())
		keys := v.Keys()
		for i, x := range v.Items() {
			dict.Set(keys[i], fromJSON(x, size))
		}
		return d
	default:
		return aj.Undefined()
	}
}

// run is the state of one render.
type run struct {
	text   strings.Builder
	output int // bytes left
	work   int // units left
	depth  int // macros around
	now    func() time.Time
	tuples map[*aj.List]bool // lists that are tuples in Python
	markup bool              // some texts may be Markup
	// filters are the filters, for those that call others.
	filters map[string]function
}

// tuple makes a list that prints as a tuple.
func (r *run) tuple(items ...aj.Value) aj.Value {
	v := aj.NewList(items)
	if r.tuples == nil {
		r.tuples = map[*aj.List]bool{}
	}
	r.tuples[v.AsList()] = true
	return v
}

// function does something with values; args are positional, kw named.
type function func(r *run, args []aj.Value, kw map[string]aj.Value) (aj.Value, error)

// spend counts work and the copying of this many bytes.
func (r *run) spend(units, bytes int) error {
	r.work -= units + bytes/64
	if r.work < 0 {
		return unsupported("rendering costs more than allowed")
	}
	return nil
}

func (r *run) callable(name string) aj.Value {
	f := lookup(name)
	if f == nil {
		panic(fmt.Sprintf("no function %q", name))
	}
	return aj.NewCallable(name, func(args []aj.Value, kw map[string]aj.Value) (aj.Value, error) {
		if err := r.spend(1, 0); err != nil {
			return aj.Undefined(), err
		}
		if r.markup {
			if err := checkMarkup(name, args, kw); err != nil {
				return aj.Undefined(), err
			}
		}
		return f(r, args, kw)
	})
}

func lookup(name string) function {
	for p, table := range map[string]map[string]function{"f_": filters, "m_": methods} {
		if rest, ok := strings.CutPrefix(name, p); ok {
			return table[rest]
		}
	}
	return operators[name]
}
