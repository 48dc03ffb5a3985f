package jinja

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kvindex/kvindex/tokenizer/chat/pyjson"
)

// typeName is what Python calls the type of v.
func typeName(v val) string {
	switch {
	case v.isUndefined():
		return "Undefined"
	case v.isNone():
		return "NoneType"
	case v.isBool():
		return "bool"
	case v.isInt():
		return "int"
	case v.isFloat():
		return "float"
	case v.isString():
		return "str"
	case v.isList():
		return "list"
	case v.isDict():
		return "dict"
	case v.isNamespace():
		return "Namespace"
	}
	return "function"
}

// str is Python's str(v), and "" for an undefined value.
func (r *run) str(v val) (string, error) {
	switch {
	case v.isString():
		return v.asString(), nil
	case v.isUndefined():
		return "", nil
	case v.isCallable():
		if text, ok := markupText(v); ok {
			return text, nil
		}
	}
	var b strings.Builder
	err := r.repr(&b, v, 0)
	return b.String(), err
}

// repr writes Python's repr(v).
func (r *run) repr(b *strings.Builder, v val, depth int) error {
	if depth > maxNesting {
		return unsupported("a value nested too deep")
	}
	switch {
	case v.isUndefined():
		b.WriteString("Undefined")
	case v.isNone():
		b.WriteString("None")
	case v.isBool():
		if v.asBool() {
			b.WriteString("True")
		} else {
			b.WriteString("False")
		}
	case v.isInt():
		b.WriteString(strconv.FormatInt(v.asInt(), 10))
	case v.isFloat():
		b.WriteString(pyjson.FormatFloat(v.asFloat()))
	case v.isString():
		reprString(b, v.asString())
		return r.spend(0, 4*len(v.asString()))
	case v.isList():
		open, end := "[", "]"
		if v.asList().tuple {
			open, end = "(", ")"
		}
		b.WriteString(open)
		for i, x := range v.asList().items {
			if i > 0 {
				b.WriteString(", ")
			}
			if err := r.spend(1, 0); err != nil {
				return err
			}
			if err := r.repr(b, x, depth+1); err != nil {
				return err
			}
		}
		if open == "(" && len(v.asList().items) == 1 {
			b.WriteByte(',')
		}
		b.WriteString(end)
	case v.isDict():
		b.WriteByte('{')
		d := v.asDict()
		for i, k := range d.keys {
			if i > 0 {
				b.WriteString(", ")
			}
			reprString(b, k)
			b.WriteString(": ")
			if err := r.spend(1, len(k)); err != nil {
				return err
			}
			if err := r.repr(b, d.items[i], depth+1); err != nil {
				return err
			}
		}
		b.WriteByte('}')
	default:
		return unsupported("a function or a namespace is printed")
	}
	return nil
}

func reprString(b *strings.Builder, s string) {
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	b.WriteByte(quote)
	for _, r := range s {
		switch {
		case r == rune(quote) || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(b, `\u%04x`, r)
		default:
			fmt.Fprintf(b, `\U%08x`, r)
		}
	}
	b.WriteByte(quote)
}

// iterate is Python's iter(v).
func iterate(v val) ([]val, error) {
	switch {
	case v.isList():
		return v.asList().items, nil
	case v.isUndefined():
		return nil, nil
	case v.isDict():
		keys := v.asDict().keys
		items := make([]val, len(keys))
		for i, k := range keys {
			items[i] = newString(k)
		}
		return items, nil
	case v.isString():
		items := make([]val, 0, len(v.asString()))
		for _, r := range v.asString() {
			items = append(items, newString(string(r)))
		}
		return items, nil
	}
	return nil, raised("'%s' object is not iterable", typeName(v))
}

// length is Python's len(v).
func length(v val) (int, error) {
	switch {
	case v.isString():
		return utf8.RuneCountInString(v.asString()), nil
	case v.isList():
		return len(v.asList().items), nil
	case v.isDict():
		return len(v.asDict().keys), nil
	case v.isUndefined():
		return 0, nil
	}
	return 0, raised("object of type '%s' has no len()", typeName(v))
}

// integer is v as the index or count that Python takes: an int or a bool.
func integer(v val) (int, bool) {
	switch {
	case v.isInt():
		return int(v.asInt()), true
	case v.isBool():
		if v.asBool() {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// number is v as a float, if it is a number or a bool.
func number(v val) (float64, bool) {
	if v.isFloat() {
		return v.asFloat(), true
	}
	if v.isInt() {
		return float64(v.asInt()), true
	}
	i, ok := integer(v)
	return float64(i), ok
}

// attribute is Jinja's make_attrgetter: the keys of path, one inside another.
func attribute(v val, path string) (val, error) {
	for part := range strings.SplitSeq(path, ".") {
		i, err := strconv.Atoi(part)
		switch {
		case v.isUndefined():
			return v, raised("an attribute of an undefined value")
		case err == nil && v.isList() && i >= 0 && i < len(v.asList().items):
			v = v.asList().items[i]
		case v.isDict() && err != nil:
			v, _ = v.asDict().get(part)
		default:
			v = val{}
		}
	}
	return v, nil
}

// ascii refuses text that Go and Python may see differently.
func ascii(s, what string) error {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return unsupported("%s of text beyond ASCII", what)
		}
	}
	return nil
}

// sameCase refuses text whose lower or upper case Go and Python may see
// differently: letters that become several, the final sigma, and scripts where
// the two may know different versions of Unicode.
func sameCase(s, what string) error {
	for _, r := range s {
		switch {
		case r < utf8.RuneSelf, r >= 0x3000 && r < 0xa000, r >= 0xac00 && r < 0xd7a4, r >= 0x1f000 && r < 0x1fb00:
		case r >= 0x600 && (r < 0x2000 || r >= 0x2c00), strings.ContainsRune("ßŉǰΐΰևİΣςƛɤ", r):
			return unsupported("%s of letters that Go and Python may see differently", what)
		}
	}
	return nil
}

// params binds arguments to names as a Python call does. Missing ones are
// Undefined.
func params(args []val, kw map[string]val, names ...string) ([]val, error) {
	if len(args) > len(names) {
		return nil, raised("takes %d arguments but %d were given", len(names), len(args))
	}
	bound := make([]val, len(names))
	copy(bound, args)
	used := 0
	for i, n := range names {
		if v, ok := kw[n]; ok && i >= len(args) {
			bound[i] = v
			used++
		}
	}
	if used != len(kw) {
		return nil, raised("got an unexpected keyword argument")
	}
	return bound, nil
}
