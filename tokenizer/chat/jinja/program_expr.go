package jinja

import (
	"slices"
)

// dictMethods are the attributes of a Python dict, which hide keys of the same
// name from a.b and stand in for missing ones in a["b"]; true for those that a
// sandbox lets a template have.
var dictMethods = map[string]bool{
	"copy": true, "get": true, "items": true, "keys": true, "values": true, "fromkeys": true,
	"clear": false, "pop": false, "popitem": false, "setdefault": false, "update": false,
}

func constant(v val) eval { return func(*frame) (val, error) { return v, nil } }

var undefined = constant(val{})

func (c *compiler) exprs(xs []expr) []eval {
	list := make([]eval, len(xs))
	for i, x := range xs {
		list[i] = c.expr(x)
	}
	return list
}

func (c *compiler) kwargs(kw []kwarg) (names []string, xs []eval) {
	for _, k := range kw {
		if slices.Contains(names, k.name) {
			c.fail("the keyword argument %q twice", k.name)
		}
		names, xs = append(names, k.name), append(xs, c.expr(k.x))
	}
	return names, xs
}

// arguments evaluates arguments onto the stack of the run, from which pop takes
// them: whoever is called must not keep the slice.
func (f *frame) arguments(xs []eval) ([]val, error) {
	r, bottom := f.r, len(f.r.stack)
	for _, x := range xs {
		v, err := x(f)
		if err != nil {
			return nil, err // which ends the run
		}
		r.stack = append(r.stack, v)
	}
	return r.stack[bottom:len(r.stack):len(r.stack)], nil
}

func (r *run) pop(args []val) { r.stack = r.stack[:len(r.stack)-len(args)] }

// values evaluates items. The slice is the caller's.
func (f *frame) values(xs []eval) ([]val, error) {
	list := make([]val, len(xs))
	for i, x := range xs {
		var err error
		if list[i], err = x(f); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// named evaluates keyword arguments; nil if there are none.
func (f *frame) named(names []string, xs []eval) (map[string]val, error) {
	if len(names) == 0 {
		return nil, nil
	}
	kw := make(map[string]val, len(names))
	for i, x := range xs {
		v, err := x(f)
		if err != nil {
			return nil, err
		}
		kw[names[i]] = v
	}
	return kw, nil
}

// call calls one of our functions.
func (r *run) call(fn function, args []val, kw map[string]val) (val, error) {
	if err := r.spend(1, 0); err != nil {
		return val{}, err
	}
	return fn(r, args, kw)
}

// apply compiles a call of one of our functions.
func (c *compiler) apply(name string, fn function, kw []kwarg, args ...expr) eval {
	list := c.exprs(args)
	names, named := c.kwargs(kw)
	markup := c.markup
	return func(f *frame) (val, error) {
		values, err := f.arguments(list)
		if err != nil {
			return val{}, err
		}
		kw, err := f.named(names, named)
		if err != nil {
			return val{}, err
		}
		if markup {
			if err := checkMarkup(name, values, kw); err != nil {
				return val{}, err
			}
		}
		v, err := f.r.call(fn, values, kw)
		f.r.pop(values)
		return v, err
	}
}

func (c *compiler) operator(name string, args ...expr) eval {
	return c.apply(name, operators[name], nil, args...)
}

func (c *compiler) expr(x expr) eval {
	switch x := x.(type) {
	case *nameExpr:
		return c.name(x.id)
	case *constExpr:
		return c.constant(x.v)
	case *attrExpr:
		return c.attr(x)
	case *itemExpr:
		return c.item(x)
	case *sliceExpr:
		bounds := []expr{x.x, x.lo, x.hi, x.step}
		for i, b := range bounds {
			if b == nil {
				bounds[i] = &constExpr{nil}
			}
		}
		return c.operator("slice", bounds...)
	case *callExpr:
		return c.call(x)
	case *filterExpr:
		fn, ok := filters[x.name]
		if !ok {
			c.fail("the filter %q", x.name)
		}
		return c.apply("f_"+x.name, fn, x.kw, append([]expr{x.x}, x.args...)...)
	case *testExpr:
		return c.test(x)
	case *notExpr:
		v := c.expr(x.x)
		return func(f *frame) (val, error) {
			v, err := v(f)
			return newBool(!v.truth()), err
		}
	case *signExpr:
		return c.operator("sign", &constExpr{x.op}, x.x)
	case *binaryExpr:
		return c.binary(x)
	case *concatExpr:
		return c.operator("cat", x.parts...)
	case *compareExpr:
		return c.compare(x)
	case *condExpr:
		return c.cond(x)
	case *listExpr:
		if x.tuple {
			return c.operator("tuple", x.items...)
		}
		list := c.exprs(x.items)
		return func(f *frame) (val, error) {
			values, err := f.values(list)
			return newList(values), err
		}
	case *dictExpr:
		return c.dict(x.keys, x.items)
	}
	c.fail("an expression that is not known")
	return undefined
}

func (c *compiler) constant(v any) eval {
	switch v := v.(type) {
	case bool:
		return constant(newBool(v))
	case int64:
		return constant(newInt(v))
	case float64:
		return constant(newFloat(v))
	case string:
		return constant(newString(v))
	}
	return constant(newNone())
}

// functionNames are the functions that every template has: they are there, and
// true.
var functionNames = []string{"namespace", "raise_exception", "range", "joiner", "dict", "cycler", "strftime_now"}

// name compiles a variable: that of the innermost scope in which it has been set.
func (c *compiler) name(id string) eval {
	switch {
	case slices.Contains([]string{"self", "super", "varargs", "kwargs"}, id):
		c.fail("the name %q", id)
	case id == "null", id == "Null":
		return undefined // a variable like any other to Jinja
	case id == "loop" && c.theLoop() != nil:
		c.fail("the loop as a value")
	}
	type place struct{ up, slot int }
	var places []place
	up := 0
	for l := c.scope; l != nil; l, up = l.parent, up+1 {
		slot, ok := l.slots[id]
		if !ok && l == c.root {
			slot, ok = l.slot(id), true // the caller may give it
		}
		if ok {
			places = append(places, place{up, slot})
			up = 0
			if l == c.root {
				break
			}
		}
	}
	missing := val{}
	if slices.Contains(functionNames, id) {
		missing = newCallable(id, func([]val, map[string]val) (val, error) {
			return val{}, unsupported("the function %s by another name", id)
		})
	}
	return func(f *frame) (val, error) {
		s := f.scope
		for _, p := range places {
			for range p.up {
				s = s.parent
			}
			if v := &s.vars[p.slot]; v.set {
				return v.value, nil
			}
		}
		return missing, nil
	}
}

func (c *compiler) attr(x *attrExpr) eval {
	// A method that is not called is only good for being true.
	method := false
	if _, ok := dictMethods[x.name]; ok {
		method = x.name == "items" || x.name == "keys" || x.name == "values" || x.name == "get"
		if !method {
			c.fail("the attribute %q", x.name)
		}
	}
	if n, ok := x.x.(*nameExpr); ok && n.id == "loop" {
		if loop := c.theLoop(); loop != nil {
			attr, ok := loopAttrs[x.name]
			if !ok {
				c.fail("loop.%s", x.name)
				return undefined
			}
			return func(f *frame) (val, error) { return attr(loop(f)), nil }
		}
	}
	object, name := c.expr(x.x), x.name
	bound := newCallable(name, func([]val, map[string]val) (val, error) {
		return val{}, unsupported("the method %s by another name", name)
	})
	return func(f *frame) (val, error) {
		v, err := object(f)
		if err != nil {
			return v, err
		}
		switch {
		case v.isDict() && method:
			return bound, nil
		case v.isDict(), v.isNamespace():
			value, _ := v.asDict().get(name)
			return value, nil
		case (v.isString() || v.isList()) && (methods[name] != nil || slices.Contains(otherMethods, name)):
			return bound, nil
		}
		return val{}, nil
	}
}

// otherMethods are methods of texts and lists that templates cannot call here.
var otherMethods = []string{"append", "clear", "copy", "extend", "format", "index", "insert", "pop", "remove", "reverse", "sort"}

// item compiles a["b"] and a[1].
func (c *compiler) item(x *itemExpr) eval {
	if k, ok := x.key.(*constExpr); ok {
		if key, ok := k.v.(string); ok {
			if _, ok := dictMethods[key]; !ok {
				object := c.expr(x.x)
				return func(f *frame) (val, error) {
					v, err := object(f)
					if err != nil || !v.isDict() && !v.isNamespace() {
						return val{}, err
					}
					value, _ := v.asDict().get(key)
					return value, nil
				}
			}
		}
	}
	return c.operator("item", x.x, x.key)
}

func (c *compiler) dict(keys, items []expr) eval {
	for _, k := range keys {
		if k, ok := k.(*constExpr); ok {
			if _, ok := k.v.(string); !ok {
				c.fail("a dict with a key that is no string")
			}
		}
	}
	names, values := c.exprs(keys), c.exprs(items)
	return func(f *frame) (val, error) {
		d := newDict()
		for i, n := range names {
			key, err := n(f)
			if err != nil {
				return d, err
			}
			if !key.isString() {
				return d, unsupported("a dict with a key that is no string")
			}
			v, err := values[i](f)
			if err != nil {
				return d, err
			}
			d.asDict().set(key.asString(), v)
		}
		return d, nil
	}
}

func (c *compiler) binary(x *binaryExpr) eval {
	switch x.op {
	case "and", "or":
		left, right, or := c.expr(x.l), c.expr(x.r), x.op == "or"
		return func(f *frame) (val, error) {
			v, err := left(f)
			if err != nil || v.truth() == or {
				return v, err
			}
			return right(f)
		}
	case "+":
		// a + b + c is one call: long texts are copied once.
		return c.operator("add", terms(x)...)
	}
	return c.operator("arith", &constExpr{x.op}, x.l, x.r)
}

// terms are a, b and c of a + b + c.
func terms(x *binaryExpr) []expr {
	var xs []expr
	var l expr = x
	for {
		b, ok := l.(*binaryExpr)
		if !ok || b.op != "+" {
			break
		}
		xs = append(xs, b.r)
		l = b.l
	}
	xs = append(xs, l)
	slices.Reverse(xs)
	return xs
}

func (c *compiler) compare(x *compareExpr) eval {
	if len(x.ops) > 1 {
		c.fail("a chain of comparisons")
	}
	op := x.ops[0]
	switch {
	case op != "==" && op != "!=":
		return c.operator("compare", &constExpr{op}, x.first, x.rest[0])
	case c.markup:
		return c.operator("test", &constExpr{op}, x.first, x.rest[0])
	}
	left, right, want := c.expr(x.first), c.expr(x.rest[0]), op == "=="
	return func(f *frame) (val, error) {
		a, err := left(f)
		if err != nil {
			return a, err
		}
		b, err := right(f)
		if err != nil {
			return b, err
		}
		if a.isString() && b.isString() {
			return newBool((a.asString() == b.asString()) == want), nil
		}
		return newBool(a.equals(b) == want), nil
	}
}

// plainTests need nothing but the value.
var plainTests = map[string]func(v val) bool{
	"defined":   func(v val) bool { return !v.isUndefined() },
	"undefined": val.isUndefined,
	"none":      val.isNone,
	"string":    val.isString,
	"boolean":   val.isBool,
	"mapping":   val.isDict,
	"true":      func(v val) bool { return v.isBool() && v.asBool() },
	"false":     func(v val) bool { return v.isBool() && !v.asBool() },
}

func (c *compiler) test(x *testExpr) eval {
	if plain := plainTests[x.name]; plain != nil && len(x.args) == 0 && !c.markup {
		v := c.expr(x.x)
		return func(f *frame) (val, error) {
			v, err := v(f)
			return newBool(plain(v)), err
		}
	}
	name, ok := tests[x.name]
	if !ok {
		c.fail("the test %q", x.name)
	}
	return c.operator("test", append([]expr{&constExpr{name}, x.x}, x.args...)...)
}

func (c *compiler) cond(x *condExpr) eval {
	test, then, els := c.expr(x.test), c.expr(x.then), undefined
	if x.els != nil {
		els = c.expr(x.els)
	}
	return func(f *frame) (val, error) {
		v, err := test(f)
		switch {
		case err != nil:
			return v, err
		case v.truth():
			return then(f)
		}
		return els(f)
	}
}

func (c *compiler) call(x *callExpr) eval {
	switch fn := x.fn.(type) {
	case *nameExpr:
		return c.function(fn.id, x)
	case *attrExpr:
		if n, ok := fn.x.(*nameExpr); ok && n.id == "loop" {
			return c.loopCall(fn.name, x)
		}
		method, ok := methods[fn.name]
		if !ok {
			c.fail("the method %q", fn.name)
		}
		return c.apply("m_"+fn.name, method, x.kw, append([]expr{fn.x}, x.args...)...)
	}
	c.fail("a call of something without a name")
	return undefined
}

func (c *compiler) function(name string, x *callExpr) eval {
	switch {
	case c.macros[name], c.joiners[name], name == "caller" && x.kw == nil:
		return c.native(name, x)
	case name == "raise_exception", name == "strftime_now", name == "range":
		return c.apply(name, operators[name], x.kw, x.args...)
	case name == "joiner":
		return c.apply(name, newJoiner, x.kw, x.args...)
	case (name == "dict" || name == "namespace") && x.args == nil:
		var keys, items []expr
		for _, k := range x.kw {
			keys, items = append(keys, &constExpr{k.name}), append(items, k.x)
		}
		v, kind := c.dict(keys, items), map[string]kind{"dict": kindDict, "namespace": kindNamespace}[name]
		return func(f *frame) (val, error) {
			v, err := v(f)
			v.kind = kind
			return v, err
		}
	}
	c.fail("the function %q", name)
	return undefined
}
