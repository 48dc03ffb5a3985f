package jinja

import (
	"errors"
	"slices"
	"strings"
)

// exec does what a statement says, eval gives what an expression is. Templates
// are compiled to functions of these kinds.
type (
	exec func(f *frame) error
	eval func(f *frame) (val, error)
)

// errBreak and errContinue end a round of a loop.
var (
	errBreak    = errors.New("break outside of a loop")
	errContinue = errors.New("continue outside of a loop")
)

// frame is where a piece of a template runs.
type frame struct {
	r     *run
	scope *scope
	out   *strings.Builder // of a body whose text is a value; nil: the text of the chat
}

// scope holds the variables of a template, of one round of a loop, of its else, of
// a block or of one call of a macro. What it lacks is looked for in the scopes
// around. An if has none of its own.
type scope struct {
	vars   []variable
	parent *scope
	loop   *loopState // of a round
}

type variable struct {
	value val
	set   bool
}

func (s *scope) assign(slot int, v val) { s.vars[slot] = variable{v, true} }

// layout is what a scope looks like: it is known when a template is compiled.
type layout struct {
	parent *layout
	slots  map[string]int
	loop   bool // it is of a loop's round
}

// slot is the place of a variable that is set in the scope.
func (l *layout) slot(name string) int {
	i, ok := l.slots[name]
	if !ok {
		i = len(l.slots)
		l.slots[name] = i
	}
	return i
}

func (l *layout) newScope(parent *scope) *scope {
	return &scope{vars: make([]variable, len(l.slots)), parent: parent}
}

// compiler makes a program of a template's tree.
type compiler struct {
	macros  map[string]bool // macros defined anywhere
	joiners map[string]bool // names that are set to a joiner somewhere
	markup  bool            // texts may be Markup: see markup.go
	root    *layout
	scope   *layout
	err     error
}

// program is a compiled template.
type program struct {
	run    exec
	root   *layout
	markup bool
}

func compile(body []stmt) (*program, error) {
	c := &compiler{macros: map[string]bool{}, joiners: map[string]bool{}, markup: makesMarkup(body)}
	eachStmt(body, func(s stmt) {
		switch s := s.(type) {
		case *macroStmt:
			c.macros[s.name] = true
		case *setStmt:
			if x, ok := s.x.(*callExpr); ok && s.object == "" && !s.tuple {
				if n, ok := x.fn.(*nameExpr); ok && n.id == "joiner" {
					c.joiners[s.targets[0]] = true
				}
			}
		}
	})
	var run exec
	c.root = c.inside(body, false, nil, func() { run = c.body(body) })
	return &program{run: run, root: c.root, markup: c.markup}, c.err
}

// inside compiles what has a scope of its own, in which names are set, and
// returns what that scope looks like.
func (c *compiler) inside(body []stmt, loop bool, names []string, compile func()) *layout {
	l := &layout{parent: c.scope, slots: map[string]int{}, loop: loop}
	if c.root == nil {
		c.root = l
	}
	for _, n := range names {
		l.slot(n)
	}
	l.declare(body)
	c.scope = l
	compile()
	c.scope = l.parent
	return l
}

// declare makes places for what body sets in the scope itself. That a name is set
// further down does not matter: until then it is looked for around.
func (l *layout) declare(body []stmt) {
	for _, s := range body {
		switch s := s.(type) {
		case *setStmt:
			if s.object == "" {
				for _, t := range s.targets {
					l.slot(t)
				}
			}
		case *setBlockStmt:
			l.slot(s.target)
		case *macroStmt:
			l.slot(s.name)
		case *ifStmt:
			for _, b := range s.bodies {
				l.declare(b)
			}
			l.declare(s.els)
		}
	}
}

func (c *compiler) fail(format string, args ...any) {
	if c.err == nil {
		c.err = unsupported("the template uses "+format, args...)
	}
}

// body compiles statements.
func (c *compiler) body(body []stmt) exec {
	var list []exec
	for _, s := range body {
		list = append(list, c.stmt(s))
	}
	if len(list) == 1 {
		return list[0]
	}
	return func(f *frame) error {
		for _, e := range list {
			if err := e(f); err != nil {
				return err
			}
		}
		return nil
	}
}

// value compiles statements whose text is the value of something.
func (c *compiler) value(body []stmt) eval {
	run := c.body(body)
	return func(f *frame) (val, error) {
		var out strings.Builder
		inner := frame{r: f.r, scope: f.scope, out: &out}
		err := run(&inner)
		return newString(out.String()), err
	}
}

// block is value with a scope of its own.
func (c *compiler) block(body []stmt) eval {
	var text eval
	l := c.inside(body, false, nil, func() { text = c.value(body) })
	return func(f *frame) (val, error) {
		return text(&frame{r: f.r, scope: l.newScope(f.scope)})
	}
}

func (c *compiler) stmt(s stmt) exec {
	switch s := s.(type) {
	case *textStmt:
		text := newString(s.text)
		return func(f *frame) error { return f.print(text) }
	case *outputStmt:
		return c.output(unsafe(s.x))
	case *ifStmt:
		return c.branches(s)
	case *forStmt:
		return c.loop(s)
	case *setStmt:
		return c.set(s)
	case *setBlockStmt:
		c.define(s.target)
		slot, block := c.scope.slot(s.target), c.block(s.body)
		return func(f *frame) error {
			v, err := block(f)
			f.scope.assign(slot, v)
			return err
		}
	case *macroStmt:
		return c.macro(s)
	case *callStmt:
		return c.callBlock(s)
	case *generationStmt:
		return c.generation(s)
	case *breakStmt:
		return func(*frame) error { return errBreak }
	case *continueStmt:
		return func(*frame) error { return errContinue }
	}
	c.fail("a statement that is not known")
	return nil
}

// print adds to what is printed where f is.
func (f *frame) print(v val) error {
	s, err := f.r.str(v)
	if err != nil {
		return err
	}
	if f.r.output -= len(s); f.r.output < 0 {
		return unsupported("the text is longer than allowed")
	}
	if err := f.r.spend(2, len(s)); err != nil {
		return err
	}
	if f.out != nil {
		f.out.WriteString(s)
	} else {
		f.r.text.WriteString(s)
	}
	return nil
}

// output compiles what prints an expression. Sums of texts are printed piece by
// piece: most of a chat is copied once then.
func (c *compiler) output(x expr) exec {
	b, ok := x.(*binaryExpr)
	if !ok || b.op != "+" {
		v := c.expr(x)
		return func(f *frame) error {
			v, err := v(f)
			if err != nil {
				return err
			}
			return f.print(v)
		}
	}
	list := c.exprs(terms(b))
	return func(f *frame) error {
		var room [8]val
		values, texts := room[:0], true
		for _, x := range list {
			v, err := x(f)
			if err != nil {
				return err
			}
			values, texts = append(values, v), texts && v.isString()
		}
		if !texts {
			sum, err := opAdd(f.r, slices.Clone(values), nil)
			if err != nil {
				return err
			}
			values = append(values[:0], sum)
		}
		for _, v := range values {
			if err := f.print(v); err != nil {
				return err
			}
		}
		return nil
	}
}

func (c *compiler) branches(s *ifStmt) exec {
	tests := c.exprs(s.tests)
	var bodies []exec
	for _, b := range s.bodies {
		bodies = append(bodies, c.body(b))
	}
	els := c.body(s.els)
	return func(f *frame) error {
		for i, test := range tests {
			v, err := test(f)
			if err != nil {
				return err
			}
			if v.truth() {
				return bodies[i](f)
			}
		}
		return els(f)
	}
}

func (c *compiler) set(s *setStmt) exec {
	c.define(s.targets...)
	if s.tuple && len(s.targets) == 1 {
		c.fail("a tuple of one that is set")
	}
	x := c.expr(s.x)
	if s.object != "" {
		key := s.targets[0]
		if dictMethods[key] {
			c.fail("the attribute %q of a namespace", key)
		}
		object := c.name(s.object)
		return func(f *frame) error {
			v, err := x(f)
			if err != nil {
				return err
			}
			o, err := object(f)
			if err != nil {
				return err
			}
			if !o.isNamespace() {
				return raised("cannot assign attribute on non-namespace object")
			}
			o.asDict().set(key, v)
			return nil
		}
	}
	var slots []int
	for _, t := range s.targets {
		slots = append(slots, c.scope.slot(t))
	}
	return func(f *frame) error {
		v, err := x(f)
		if err != nil {
			return err
		}
		if len(slots) == 1 {
			f.scope.assign(slots[0], v)
			return nil
		}
		if !v.isList() || len(v.asList().items) != len(slots) {
			return unsupported("a value that is taken apart in %d has not as many", len(slots))
		}
		for i, slot := range slots {
			f.scope.assign(slot, v.asList().items[i])
		}
		return nil
	}
}

// reserved are names that templates cannot give to variables of their own, here.
var reserved = []string{"true", "false", "none", "True", "False", "None", "null", "loop", "caller", "varargs",
	"kwargs", "self", "super", "and", "or", "not", "is", "in", "if", "else", "raise_exception", "strftime_now"}

// define refuses names that mean something else.
func (c *compiler) define(names ...string) {
	for _, n := range names {
		if slices.Contains(reserved, n) || slices.Contains(globals, n) {
			c.fail("the name %q for its own", n)
		}
	}
}
