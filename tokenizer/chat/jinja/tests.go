package jinja

import (
	"strings"
)

// tests are the names of the tests and their aliases.
var tests = map[string]string{
	"boolean": "boolean", "callable": "callable", "defined": "defined", "divisibleby": "divisibleby",
	"even": "even", "false": "false", "float": "float", "in": "in", "integer": "integer",
	"iterable": "iterable", "lower": "lower", "mapping": "mapping", "none": "none", "number": "number",
	"odd": "odd", "sequence": "sequence", "string": "string", "true": "true", "undefined": "undefined", "upper": "upper",
	"eq": "==", "==": "==", "equalto": "==", "ne": "!=", "!=": "!=", "sameas": "sameas",
	"gt": ">", ">": ">", "greaterthan": ">", "ge": ">=", ">=": ">=",
	"lt": "<", "<": "<", "lessthan": "<", "le": "<=", "<=": "<=",
}

func opTest(r *run, args []val, _ map[string]val) (val, error) {
	ok, err := runTest(r, args[0].asString(), args[1], args[2:])
	return newBool(ok), err
}

func runTest(r *run, name string, v val, args []val) (bool, error) {
	switch name {
	case "==", "!=", "<", "<=", ">", ">=", "in", "sameas", "divisibleby":
		if len(args) != 1 {
			return false, raised("the test %q takes one argument", name)
		}
		if err := checkMarkup("the test "+name, []val{v, args[0]}, nil); err != nil {
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
		return v.isBool(), nil
	case "callable":
		return v.isCallable(), nil
	case "defined":
		return !v.isUndefined(), nil
	case "undefined":
		return v.isUndefined(), nil
	case "false":
		return v.isBool() && !v.asBool(), nil
	case "true":
		return v.isBool() && v.asBool(), nil
	case "float":
		return v.isFloat(), nil
	case "integer":
		return v.isInt(), nil
	case "number":
		return v.isInt() || v.isFloat() || v.isBool(), nil
	case "iterable", "sequence":
		return v.isList() || v.isDict() || v.isString() || v.isUndefined(), nil
	case "mapping":
		return v.isDict(), nil
	case "none":
		return v.isNone(), nil
	case "string":
		return v.isString(), nil
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

func compareTest(r *run, name string, v, x val) (bool, error) {
	switch name {
	case "==":
		return v.equals(x), nil
	case "!=":
		return !v.equals(x), nil
	case "in":
		return contains(r, x, v)
	case "sameas":
		if v.isNone() || v.isBool() || x.isNone() || x.isBool() {
			return v.isNone() == x.isNone() && v.isBool() == x.isBool() && v.equals(x), nil
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
