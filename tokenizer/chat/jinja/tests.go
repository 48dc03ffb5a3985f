package jinja

import (
	"strings"

	aj "github.com/ardanlabs/jinja"
)

// tests are the names of the tests and their aliases. The simplest are written
// in the library's own form where they stand in a template.
var tests = map[string]string{
	"boolean": "boolean", "callable": "callable", "defined": "defined", "divisibleby": "divisibleby",
	"even": "even", "false": "false", "float": "float", "in": "in", "integer": "integer",
	"iterable": "iterable", "lower": "lower", "mapping": "mapping", "none": "none", "number": "number",
	"odd": "odd", "sequence": "sequence", "string": "string", "true": "true", "undefined": "undefined", "upper": "upper",
	"eq": "==", "==": "==", "equalto": "==", "ne": "!=", "!=": "!=", "sameas": "sameas",
	"gt": ">", ">": ">", "greaterthan": ">", "ge": ">=", ">=": ">=",
	"lt": "<", "<": "<", "lessthan": "<", "le": "<=", "<=": "<=",
}

func opTest(r *run, args []aj.Value, _ map[string]aj.Value) (aj.Value, error) {
	ok, err := runTest(r, args[0].AsString(), args[1], args[2:])
	return aj.NewBool(ok), err
}

func runTest(r *run, name string, v aj.Value, args []aj.Value) (bool, error) {
	switch name {
	case "==", "!=", "<", "<=", ">", ">=", "in", "sameas", "divisibleby":
		if len(args) != 1 {
			return false, raised("the test %q takes one argument", name)
		}
		if err := checkMarkup("the test "+name, []aj.Value{v, args[0]}, nil); err != nil {
			return false, err
		}
		return compareTest(r, name, v, args[0])
	}
	if len(args) > 0 {
		return false, raised("the test %q takes no argument", name)
	}
	if _, ok := markupText(v); ok {
		return testMarkup(name)
	}
	switch name {
	case "boolean":
		return v.IsBool(), nil
	case "callable":
		return v.IsCallable(), nil
	case "defined":
		return !v.IsUndefined(), nil
	case "undefined":
		return v.IsUndefined(), nil
	case "false":
		return v.IsBool() && !v.AsBool(), nil
	case "true":
		return v.IsBool() && v.AsBool(), nil
	case "float":
		return v.IsFloat(), nil
	case "integer":
		return v.IsInt(), nil
	case "number":
		return v.IsInt() || v.IsFloat() || v.IsBool(), nil
	case "iterable", "sequence":
		return v.IsList() || v.IsDict() || v.IsString() || v.IsUndefined(), nil
	case "mapping":
		return v.IsDict(), nil
	case "none":
		return v.IsNone(), nil
	case "string":
		return v.IsString(), nil
	case "odd", "even":
		i, ok := integer(v)
		if !ok {
			return false, unsupported("%s of this value", name)
		}
		return i%2 == 0 == (name == "even"), nil
	case "lower", "upper":
		s, err := r.str(v)
		if err != nil {
			return false, err
		}
		up, down := strings.ToUpper(s), strings.ToLower(s)
		return up != down && s == map[string]string{"lower": down, "upper": up}[name], sameCase(s, "looking at the case")
	}
	return false, unsupported("the test %q", name)
}

func compareTest(r *run, name string, v, x aj.Value) (bool, error) {
	switch name {
	case "==":
		return v.Equals(x), nil
	case "!=":
		return !v.Equals(x), nil
	case "in":
		return contains(r, x, v)
	case "sameas":
		if v.IsNone() || v.IsBool() || x.IsNone() || x.IsBool() {
			return v.IsNone() == x.IsNone() && v.IsBool() == x.IsBool() && v.Equals(x), nil
		}
		return false, unsupported("sameas of this value")
	case "divisibleby":
		i, okA := integer(v)
		j, okB := integer(x)
		if !okA || !okB || j == 0 {
			return false, unsupported("divisibleby of these values")
		}
		return i%j == 0, nil
	}
	c, err := order(v, x)
	return compared(name, c), err
}
