package jinja

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	aj "github.com/ardanlabs/jinja"

	"github.com/kvindex/kvindex/tokenizer/chat/pyjson"
)

// typeName is what Python calls the type of v.
func typeName(v aj.Value) string {
	switch {
	case v.IsUndefined():
		return "Undefined"
	case v.IsNone():
		return "NoneType"
	case v.IsBool():
		return "bool"
	case v.IsInt():
		return "int"
	case v.IsFloat():
		return "float"
	case v.IsString():
		return "str"
	case v.IsList():
		return "list"
	case v.IsDict():
		return "dict"
	}
	return "function"
}

// str is Python's str(v), and "" for an undefined value.
func (r *run) str(v aj.Value) (string, error) {
	switch {
	case v.IsString():
		return v.AsString(), nil
	case v.IsUndefined():
		return "", nil
	case v.IsCallable():
		if text, ok := markupText(v); ok {
			return text, nil
		}
	}
	var b strings.Builder
	err := r.repr(&b, v, 0)
	return b.String(), err
}

// repr writes Python's repr(v).
func (r *run) repr(b *strings.Builder, v aj.Value, depth int) error {
	if depth > maxNesting {
		return unsupported("a value nested too deep")
	}
	switch {
	case v.IsUndefined():
		b.WriteString("Undefined")
	case v.IsNone():
		b.WriteString("None")
	case v.IsBool():
		if v.AsBool() {
			b.WriteString("True")
		} else {
			b.WriteString("False")
		}
	case v.IsInt():
		b.WriteString(strconv.FormatInt(v.AsInt(), 10))
	case v.IsFloat():
		b.WriteString(pyjson.FormatFloat(v.AsFloat()))
	case v.IsString():
		reprString(b, v.AsString())
		return r.spend(0, 4*len(v.AsString()))
	case v.IsList():
		open, end := "[", "]"
		if r.tuples[v.AsList()] {
			open, end = "(", ")"
		}
		b.WriteString(open)
		for i, x := range v.AsList().Items {
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
		if open == "(" && v.AsList().Len() == 1 {
			b.WriteByte(',')
		}
		b.WriteString(end)
	case v.IsDict():
		b.WriteByte('{')
		d := v.AsDict()
		for i, k := range d.Keys {
			if i > 0 {
				b.WriteString(", ")
			}
			reprString(b, k)
			b.WriteString(": ")
			if err := r.spend(1, len(k)); err != nil {
				return err
			}
			if err := r.repr(b, d.Data[k], depth+1); err != nil {
				return err
			}
		}
		b.WriteByte('}')
	default:
		return unsupported("a function is printed")
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
func iterate(v aj.Value) ([]aj.Value, error) {
	switch {
	case v.IsList():
		return v.AsList().Items, nil
	case v.IsUndefined():
		return nil, nil
	case v.IsDict():
		keys := v.AsDict().Keys
		items := make([]aj.Value, len(keys))
		for i, k := range keys {
			items[i] = aj.NewString(k)
		}
		return items, nil
	case v.IsString():
		items := make([]aj.Value, 0, len(v.AsString()))
		for _, r := range v.AsString() {
			items = append(items, aj.NewString(string(r)))
		}
		return items, nil
	}
	return nil, raised("'%s' object is not iterable", typeName(v))
}

// length is Python's len(v).
func length(v aj.Value) (int, error) {
	switch {
	case v.IsString():
		return utf8.RuneCountInString(v.AsString()), nil
	case v.IsList():
		return v.AsList().Len(), nil
	case v.IsDict():
		return v.AsDict().Len(), nil
	case v.IsUndefined():
		return 0, nil
	}
	return 0, raised("object of type '%s' has no len()", typeName(v))
}

// integer is v as the index or count that Python takes: an int or a bool.
func integer(v aj.Value) (int, bool) {
	switch {
	case v.IsInt():
		return int(v.AsInt()), true
	case v.IsBool():
		if v.AsBool() {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// number is v as a float, if it is a number or a bool.
func number(v aj.Value) (float64, bool) {
	if v.IsFloat() {
		return v.AsFloat(), true
	}
	if v.IsInt() {
		return float64(v.AsInt()), true
	}
	i, ok := integer(v)
	return float64(i), ok
}

// attribute is Jinja's make_attrgetter: the keys of path, one inside another.
func attribute(v aj.Value, path string) (aj.Value, error) {
	for part := range strings.SplitSeq(path, ".") {
		i, err := strconv.Atoi(part)
		switch {
		case v.IsUndefined():
			return v, raised("an attribute of an undefined value")
		case err == nil && v.IsList() && i >= 0 && i < v.AsList().Len():
			v = v.AsList().Get(i)
		case v.IsDict() && err != nil:
			v, _ = v.AsDict().Get(part)
		default:
			v = aj.Undefined()
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
func params(args []aj.Value, kw map[string]aj.Value, names ...string) ([]aj.Value, error) {
	if len(args) > len(names) {
		return nil, raised("takes %d arguments but %d were given", len(names), len(args))
	}
	bound := make([]aj.Value, len(names))
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
