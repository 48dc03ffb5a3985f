package jinja

// macro compiles the definition of a macro: a variable that can be called. Its
// scope lies in that of the definition.
func (c *compiler) macro(s *macroStmt) exec {
	c.define(s.name)
	slot := c.scope.slot(s.name)
	variables := []string{"caller"}
	for _, p := range s.params {
		c.define(p.name)
		variables = append(variables, p.name)
	}
	defaults := make([]eval, len(s.params))
	var body eval
	l := c.inside(s.body, false, variables, func() {
		for i, p := range s.params {
			if p.def != nil {
				defaults[i] = c.expr(p.def)
			}
		}
		body = c.value(s.body)
	})
	m := &macro{name: s.name, params: variables[1:], defaults: defaults, calls: names(s.body)["caller"], layout: l, body: body}
	return func(f *frame) error {
		r, around := f.r, f.scope
		f.scope.assign(slot, newCallable(s.name, func(args []val, kw map[string]val) (val, error) {
			return m.call(r, around, args, kw)
		}))
		return nil
	}
}

type macro struct {
	name     string
	params   []string
	defaults []eval // nil where there is none
	calls    bool   // it says caller somewhere
	layout   *layout
	body     eval
}

func (m *macro) call(r *run, around *scope, args []val, kw map[string]val) (val, error) {
	if r.depth++; r.depth > maxNesting {
		return val{}, unsupported("macros call one another too deep")
	}
	defer func() { r.depth-- }()
	if len(args) > len(m.params) {
		return val{}, raised("macro %q takes not more than %d arguments", m.name, len(m.params))
	}
	f := &frame{r: r, scope: m.layout.newScope(around)}
	used := 0
	for i, p := range m.params {
		named, given := kw[p]
		if given {
			used++
		}
		v := val{}
		switch {
		case i < len(args) && given:
			return v, raised("macro %q got several values for one argument", m.name)
		case i < len(args):
			v = args[i]
		case given:
			v = named
		case m.defaults[i] != nil:
			var err error
			if v, err = m.defaults[i](f); err != nil {
				return v, err
			}
		}
		f.scope.assign(m.layout.slots[p], v)
	}
	if caller, ok := kw["caller"]; ok && m.calls {
		f.scope.assign(m.layout.slots["caller"], caller)
		used++
	}
	if used < len(kw) {
		return val{}, raised("macro %q takes no such keyword argument", m.name)
	}
	if err := r.spend(2, 0); err != nil {
		return val{}, err
	}
	return m.body(f)
}

// callBlock compiles {% call macro(...) %}: the macro may call the body.
func (c *compiler) callBlock(s *callStmt) exec {
	c.define(s.params...)
	n, ok := s.call.fn.(*nameExpr)
	if !ok || !c.macros[n.id] {
		c.fail("a call block around something that is no macro")
		return nil
	}
	fn := c.name(n.id)
	args := c.exprs(s.call.args)
	names, kw := c.kwargs(s.call.kw)
	var body eval
	l := c.inside(s.body, false, s.params, func() { body = c.value(s.body) })
	return func(f *frame) error {
		macro, err := fn(f)
		if err != nil {
			return err
		}
		values, err := f.values(args)
		if err != nil {
			return err
		}
		named, err := f.named(names, kw)
		if err != nil {
			return err
		}
		if named == nil {
			named = map[string]val{}
		}
		r, around := f.r, f.scope
		named["caller"] = newCallable("caller", func(args []val, _ map[string]val) (val, error) {
			inner := frame{r: r, scope: l.newScope(around)}
			for i, p := range s.params[:min(len(args), len(s.params))] {
				inner.scope.assign(l.slots[p], args[i])
			}
			return body(&inner)
		})
		v, err := invoke(macro, values, named)
		if err != nil {
			return err
		}
		return f.print(v)
	}
}

// generation compiles what the assistant wrote: a block of its own, so that what
// is set inside stays inside.
func (c *compiler) generation(s *generationStmt) exec {
	block := c.block(s.body)
	return func(f *frame) error {
		v, err := block(f)
		if err != nil {
			return err
		}
		return f.print(v)
	}
}

// invoke calls a macro, a caller or a joiner.
func invoke(fn val, args []val, kw map[string]val) (val, error) {
	if !fn.isCallable() {
		return val{}, unsupported("a call of what is no function (yet)")
	}
	return fn.asCallable().fn(args, kw)
}

// native compiles a call of a macro, a caller or a joiner.
func (c *compiler) native(name string, x *callExpr) eval {
	fn := c.name(name)
	args := c.exprs(x.args)
	names, kw := c.kwargs(x.kw)
	return func(f *frame) (val, error) {
		v, err := fn(f)
		if err != nil {
			return v, err
		}
		values, err := f.arguments(args)
		if err != nil {
			return v, err
		}
		named, err := f.named(names, kw)
		if err != nil {
			return v, err
		}
		v, err = invoke(v, values, named)
		f.r.pop(values)
		return v, err
	}
}

// newJoiner is joiner(sep): nothing the first time that it is called.
func newJoiner(_ *run, args []val, kw map[string]val) (val, error) {
	p, err := params(args, kw, "sep")
	if err != nil {
		return val{}, err
	}
	sep := p[0]
	switch {
	case sep.isUndefined():
		sep = newString(", ")
	case !sep.isString():
		return sep, unsupported("a joiner of this form")
	}
	used := false
	return newCallable("joiner", func([]val, map[string]val) (val, error) {
		if !used {
			used = true
			return newString(""), nil
		}
		return sep, nil
	}), nil
}
