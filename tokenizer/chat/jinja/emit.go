package jinja

import (
	"slices"
	"strconv"
	"strings"

	"github.com/kvindex/kvindex/tokenizer/chat/pyjson"
)

// prefix begins the names of the functions that a plain template calls. No
// template may use names that begin so.
const prefix = "kvx_"

// emitter writes the plain form of a template: only texts and calls in
// {{ }}, no white space that means something, every expression in brackets.
type emitter struct {
	b      strings.Builder
	funcs  map[string]bool // functions called, without prefix
	macros map[string]bool // macros defined anywhere
	// joiners are names that are set to a joiner somewhere.
	joiners map[string]bool
	markup  bool // texts may be Markup: see markup.go
	// inner counts the bodies around whose text is a value: macros, blocks.
	inner int
	err   error
}

func emit(body []stmt) (source string, funcs []string, err error) {
	e := &emitter{funcs: map[string]bool{}, macros: map[string]bool{}, joiners: map[string]bool{}}
	eachStmt(body, func(s stmt) {
		switch s := s.(type) {
		case *macroStmt:
			e.macros[s.name] = true
		case *setStmt:
			if c, ok := s.x.(*callExpr); ok && s.object == "" && !s.tuple {
				if n, ok := c.fn.(*nameExpr); ok && n.id == "joiner" {
					e.joiners[s.targets[0]] = true
				}
			}
		}
	})
	e.markup = makesMarkup(body)
	e.body(body)
	for f := range e.funcs {
		funcs = append(funcs, f)
	}
	slices.Sort(funcs)
	return e.b.String(), funcs, e.err
}

func (e *emitter) fail(format string, args ...any) {
	if e.err == nil {
		e.err = unsupported("the template uses "+format, args...)
	}
}

func (e *emitter) put(parts ...string) {
	for _, p := range parts {
		e.b.WriteString(p)
	}
}

// fn writes the name of one of our functions.
func (e *emitter) fn(name string) {
	e.funcs[name] = true
	e.put(prefix, name)
}

// body writes statements; texts and outputs that follow one another become one
// call.
func (e *emitter) body(body []stmt) {
	for i := 0; i < len(body); {
		n := i
		for n < len(body) && printed(body[n]) != nil {
			n++
		}
		if n == i {
			e.stmt(body[i])
			i++
			continue
		}
		e.output(body[i:n])
		i = n
	}
}

// value writes statements whose text is the value of something.
func (e *emitter) value(body []stmt) {
	e.inner++
	e.body(body)
	e.inner--
}

// output writes what texts and outputs print. What is only the text of the
// chat goes to it directly, sums of texts piece by piece: most of a chat is
// copied once then.
func (e *emitter) output(body []stmt) {
	if e.inner > 0 {
		var xs []expr
		for _, s := range body {
			xs = append(xs, printed(s))
		}
		e.put("{{ ")
		e.apply("out", nil, xs...)
		e.put(" }}")
		return
	}
	for i := 0; i < len(body); {
		name, xs, n := "print", []expr(nil), i
		for ; n < len(body); n++ {
			x := printed(body[n])
			if b, ok := x.(*binaryExpr); ok && b.op == "+" {
				if n == i {
					name, xs, n = "printsum", terms(b), n+1
				}
				break
			}
			xs = append(xs, x)
		}
		e.put("{{ ")
		e.apply(name, nil, xs...)
		e.put(" }}")
		i = n
	}
}

// printed is what the statement prints, or nil if it does something else.
func printed(s stmt) expr {
	switch s := s.(type) {
	case *textStmt:
		return &constExpr{s.text}
	case *outputStmt:
		return unsafe(s.x)
	}
	return nil
}

// unsafe takes the filter safe off an expression that is only printed.
func unsafe(x expr) expr {
	for {
		f, ok := x.(*filterExpr)
		if !ok || f.name != "safe" {
			return x
		}
		x = f.x
	}
}

// makesMarkup reports whether the result of a safe is used for more than to be
// printed.
func makesMarkup(body []stmt) bool {
	found := false
	eachStmt(body, func(s stmt) {
		xs := exprs(s)
		if o, ok := s.(*outputStmt); ok {
			xs = []expr{unsafe(o.x)}
		}
		for _, x := range xs {
			eachExpr(x, func(x expr) {
				if f, ok := x.(*filterExpr); ok && f.name == "safe" {
					found = true
				}
			})
		}
	})
	return found
}

func (e *emitter) stmt(s stmt) {
	switch s := s.(type) {
	case *ifStmt:
		for i, test := range s.tests {
			e.put("{% ", []string{"if", "elif"}[min(i, 1)], " ")
			e.expr(test)
			e.put(" %}")
			e.body(s.bodies[i])
		}
		if s.els != nil {
			e.put("{% else %}")
			e.body(s.els)
		}
		e.put("{% endif %}")
	case *forStmt:
		e.loop(s)
	case *setStmt:
		e.define(s.targets...)
		e.put("{% set ")
		if s.object != "" {
			if dictMethods[s.targets[0]] {
				e.fail("the attribute %q of a namespace", s.targets[0])
			}
			e.put(s.object, ".")
		}
		e.put(strings.Join(s.targets, ", "), " = ")
		e.expr(s.x)
		e.put(" %}")
	case *setBlockStmt:
		e.define(s.target)
		e.put("{% set ", s.target, " %}")
		e.value(s.body)
		e.put("{% endset %}")
	case *macroStmt:
		e.macro(s)
	case *callStmt:
		e.define(s.params...)
		if n, ok := s.call.fn.(*nameExpr); !ok || !e.macros[n.id] {
			e.fail("a call block around something that is no macro")
		}
		e.callBlock(s.params, s.body, func() { e.call(s.call) })
	case *generationStmt:
		// A block of its own, so that what is set inside stays inside.
		e.callBlock(nil, s.body, func() { e.apply("generation", nil) })
	case *breakStmt:
		e.put("{% break %}")
	case *continueStmt:
		e.put("{% continue %}")
	}
}

// callBlock writes a call block, whose result the library prints itself.
// Where the text of the chat is printed by us, it is taken as a value first.
func (e *emitter) callBlock(params []string, body []stmt, call func()) {
	if e.inner == 0 {
		e.put("{% set ", prefix, "block %}")
		defer func() {
			e.put("{% endset %}{{ ")
			e.apply("print", nil, &nameExpr{prefix + "block"})
			e.put(" }}")
		}()
	}
	e.put("{% call")
	if params != nil {
		e.put("(", strings.Join(params, ", "), ")")
	}
	e.put(" ")
	call()
	e.put(" %}")
	e.value(body)
	e.put("{% endcall %}")
}

func (e *emitter) loop(s *forStmt) {
	e.define(s.targets...)
	if len(s.targets) > 2 || (s.tuple && len(s.targets) == 1) {
		e.fail("a loop with %d targets", len(s.targets))
	}
	e.put("{% for ", strings.Join(s.targets, ", "), " in ")
	e.fn([]string{"iter", "pairs"}[len(s.targets)-1])
	e.put("(")
	e.expr(s.iter)
	e.put(")")
	if s.test != nil {
		e.put(" if (")
		e.expr(s.test)
		e.put(")")
	}
	e.put(" %}")
	e.body(s.body)
	if s.els != nil {
		e.put("{% else %}")
		e.body(s.els)
	}
	e.put("{% endfor %}")
}

func (e *emitter) macro(s *macroStmt) {
	e.define(s.name)
	e.put("{% macro ", s.name, "(")
	for i, p := range s.params {
		e.define(p.name)
		if i > 0 {
			e.put(", ")
		}
		e.put(p.name)
		if p.def != nil {
			e.put("=")
			e.expr(p.def)
		}
	}
	// The library has no bound of its own on macros that call each other.
	e.put(") %}{{ ")
	e.fn("enter")
	e.put("() }}")
	e.value(s.body)
	e.put("{{ ")
	e.fn("leave")
	e.put("() }}{% endmacro %}")
}

// define refuses names that mean something else to the library or to us.
func (e *emitter) define(names ...string) {
	for _, n := range names {
		switch {
		case strings.HasPrefix(n, prefix), slices.Contains(globals, n):
			e.fail("the name %q for its own", n)
		case slices.Contains([]string{"true", "false", "none", "True", "False", "None", "null", "loop", "caller", "varargs",
			"kwargs", "self", "super", "and", "or", "not", "is", "in", "if", "else", "raise_exception", "strftime_now"}, n):
			e.fail("the name %q for its own", n)
		}
	}
}

func (e *emitter) list(open string, xs []expr, end string) {
	e.put(open)
	for i, x := range xs {
		if i > 0 {
			e.put(", ")
		}
		e.expr(x)
	}
	e.put(end)
}

// apply writes a call of our function.
func (e *emitter) apply(name string, kw []kwarg, args ...expr) {
	e.fn(name)
	e.put("(")
	for i, x := range args {
		if i > 0 {
			e.put(", ")
		}
		e.expr(x)
	}
	for i, k := range kw {
		if i > 0 || len(args) > 0 {
			e.put(", ")
		}
		e.put(k.name, "=")
		e.expr(k.x)
	}
	e.put(")")
}

func (e *emitter) constant(v any) {
	switch v := v.(type) {
	case nil:
		e.put("none")
	case bool:
		e.put(strconv.FormatBool(v))
	case int64:
		e.put("(", strconv.FormatInt(v, 10), ")")
	case float64:
		e.put("(", pyjson.FormatFloat(v), ")")
	case string:
		quote(&e.b, v)
	}
}
