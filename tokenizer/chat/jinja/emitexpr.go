package jinja

import (
	"slices"
	"strings"
)

// dictMethods are the attributes of a Python dict, which hide keys of the same
// name from a.b and stand in for missing ones in a["b"]; true for those that a
// sandbox lets a template have.
var dictMethods = map[string]bool{
	"copy": true, "get": true, "items": true, "keys": true, "values": true, "fromkeys": true,
	"clear": false, "pop": false, "popitem": false, "setdefault": false, "update": false,
}

func (e *emitter) expr(x expr) {
	switch x := x.(type) {
	case *nameExpr:
		e.name(x.id)
	case *constExpr:
		e.constant(x.v)
	case *attrExpr:
		// A method that is not called is only good for being true.
		if _, ok := dictMethods[x.name]; ok && x.name != "items" && x.name != "keys" && x.name != "values" && x.name != "get" {
			e.fail("the attribute %q", x.name)
		}
		e.expr(x.x)
		e.put(".", x.name)
	case *itemExpr:
		e.item(x)
	case *sliceExpr:
		bounds := []expr{x.x, x.lo, x.hi, x.step}
		for i, b := range bounds {
			if b == nil {
				bounds[i] = &constExpr{nil}
			}
		}
		e.apply("slice", nil, bounds...)
	case *callExpr:
		e.call(x)
	case *filterExpr:
		e.filter(x)
	case *testExpr:
		e.test(x)
	case *notExpr:
		e.put("(not ")
		e.expr(x.x)
		e.put(")")
	case *signExpr:
		e.apply("sign", nil, &constExpr{x.op}, x.x)
	case *binaryExpr:
		e.binary(x)
	case *concatExpr:
		e.apply("cat", nil, x.parts...)
	case *compareExpr:
		e.compare(x)
	case *condExpr:
		e.put("(")
		e.expr(x.then)
		e.put(" if ")
		e.expr(x.test)
		e.put(" else ")
		if x.els == nil {
			e.put(prefix, "undefined")
		} else {
			e.expr(x.els)
		}
		e.put(")")
	case *listExpr:
		if x.tuple {
			e.apply("tuple", nil, x.items...)
		} else {
			e.list("[", x.items, "]")
		}
	case *dictExpr:
		e.dict(x.keys, x.items)
	}
}

func (e *emitter) name(id string) {
	switch {
	case id == prefix+"block":
		e.put(id)
	case strings.HasPrefix(id, prefix), slices.Contains([]string{"self", "super", "varargs", "kwargs"}, id):
		e.fail("the name %q", id)
	case id == "null", id == "Null":
		e.put(prefix, "undefined") // a variable like any other to Jinja
	default:
		e.put(id)
	}
}

// item writes a["b"] or a[1]; what may meet a method of dict goes through us.
func (e *emitter) item(x *itemExpr) {
	if c, ok := x.key.(*constExpr); ok {
		if key, ok := c.v.(string); ok {
			if _, ok := dictMethods[key]; !ok {
				e.expr(x.x)
				e.put("[")
				e.constant(key)
				e.put("]")
				return
			}
		}
	}
	e.apply("item", nil, x.x, x.key)
}

func (e *emitter) dict(keys, items []expr) {
	e.put("{")
	for i, k := range keys {
		if c, ok := k.(*constExpr); ok {
			if _, ok := c.v.(string); !ok {
				e.fail("a dict with a key that is no string")
			}
		}
		if i > 0 {
			e.put(", ")
		}
		e.expr(k)
		e.put(": ")
		e.expr(items[i])
	}
	e.put("}")
}

func (e *emitter) binary(x *binaryExpr) {
	switch x.op {
	case "and", "or":
		e.put("(")
		e.expr(x.l)
		e.put(" ", x.op, " ")
		e.expr(x.r)
		e.put(")")
	case "+":
		// a + b + c is one call: long texts are copied once.
		e.apply("add", nil, terms(x)...)
	default:
		e.apply("arith", nil, &constExpr{x.op}, x.l, x.r)
	}
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

func (e *emitter) compare(x *compareExpr) {
	if len(x.ops) > 1 {
		e.fail("a chain of comparisons")
	}
	if equal := x.ops[0] == "==" || x.ops[0] == "!="; equal && e.markup {
		e.apply("test", nil, &constExpr{x.ops[0]}, x.first, x.rest[0])
		return
	} else if equal && len(x.ops) == 1 {
		e.put("(")
		e.expr(x.first)
		e.put(" ", x.ops[0], " ")
		e.expr(x.rest[0])
		e.put(")")
		return
	}
	e.apply("compare", nil, &constExpr{x.ops[0]}, x.first, x.rest[0])
}

func (e *emitter) filter(x *filterExpr) {
	if _, ok := filters[x.name]; !ok {
		e.fail("the filter %q", x.name)
	}
	e.apply("f_"+x.name, x.kw, append([]expr{x.x}, x.args...)...)
}

func (e *emitter) test(x *testExpr) {
	if len(x.args) == 0 && !e.markup && slices.Contains([]string{"defined", "undefined", "none", "string", "boolean", "mapping", "true", "false"}, x.name) {
		e.put("(")
		e.expr(x.x)
		e.put(" is ", x.name, ")")
		return
	}
	name, ok := tests[x.name]
	if !ok {
		e.fail("the test %q", x.name)
	}
	e.apply("test", nil, append([]expr{&constExpr{name}, x.x}, x.args...)...)
}

func (e *emitter) call(x *callExpr) {
	switch fn := x.fn.(type) {
	case *nameExpr:
		e.function(fn.id, x)
		return
	case *attrExpr:
		if n, ok := fn.x.(*nameExpr); ok && n.id == "loop" {
			if fn.name != "cycle" && fn.name != "changed" {
				e.fail("loop.%s()", fn.name)
			}
			e.native("loop."+fn.name, x)
			return
		}
		if _, ok := methods[fn.name]; !ok {
			e.fail("the method %q", fn.name)
		}
		e.apply("m_"+fn.name, x.kw, append([]expr{fn.x}, x.args...)...)
		return
	}
	e.fail("a call of something without a name")
}

func (e *emitter) function(name string, x *callExpr) {
	switch {
	case e.macros[name], e.joiners[name], name == "namespace", name == "joiner":
		e.native(name, x)
	case name == "caller" && x.kw == nil:
		e.native(name, x)
	case name == "raise_exception", name == "strftime_now", name == "range":
		e.apply(name, x.kw, x.args...)
	case name == "dict" && x.args == nil:
		var keys, items []expr
		for _, k := range x.kw {
			keys, items = append(keys, &constExpr{k.name}), append(items, k.x)
		}
		e.dict(keys, items)
	default:
		e.fail("the function %q", name)
	}
}

// native writes a call that the library answers.
func (e *emitter) native(name string, x *callExpr) {
	e.put(name, "(")
	for i, a := range x.args {
		if i > 0 {
			e.put(", ")
		}
		e.expr(a)
	}
	for i, k := range x.kw {
		if i > 0 || len(x.args) > 0 {
			e.put(", ")
		}
		e.put(k.name, "=")
		e.expr(k.x)
	}
	e.put(")")
}
