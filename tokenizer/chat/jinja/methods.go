package jinja

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	aj "github.com/ardanlabs/jinja"
)

// methods are the methods of texts and dicts; args[0] is the object.
var methods = map[string]function{
	"items":      dictMethod(filterItems),
	"keys":       dictMethod(filterList),
	"values":     dictMethod(dictValues),
	"get":        dictMethod(dictGet),
	"strip":      textMethod(1, func(r *run, s string, a []aj.Value) (aj.Value, error) { return strip(r, s, a[0], true, true) }),
	"lstrip":     textMethod(1, func(r *run, s string, a []aj.Value) (aj.Value, error) { return strip(r, s, a[0], true, false) }),
	"rstrip":     textMethod(1, func(r *run, s string, a []aj.Value) (aj.Value, error) { return strip(r, s, a[0], false, true) }),
	"split":      textMethod(2, func(r *run, s string, a []aj.Value) (aj.Value, error) { return split(r, s, a[0], a[1], false) }),
	"rsplit":     textMethod(2, func(r *run, s string, a []aj.Value) (aj.Value, error) { return split(r, s, a[0], a[1], true) }),
	"startswith": textMethod(1, func(_ *run, s string, a []aj.Value) (aj.Value, error) { return hasAffix(s, a[0], strings.HasPrefix) }),
	"endswith":   textMethod(1, func(_ *run, s string, a []aj.Value) (aj.Value, error) { return hasAffix(s, a[0], strings.HasSuffix) }),
	"find":       textMethod(1, func(r *run, s string, a []aj.Value) (aj.Value, error) { return find(r, s, a[0], strings.Index) }),
	"rfind":      textMethod(1, func(r *run, s string, a []aj.Value) (aj.Value, error) { return find(r, s, a[0], strings.LastIndex) }),
	"count":      countMethod,
	"replace":    textMethod(3, replaceMethod),
	"join":       textMethod(1, joinMethod),
	"splitlines": textMethod(1, splitlinesMethod),
	"upper":      textMethod(0, caseMethod(upper)),
	"lower":      textMethod(0, caseMethod(lower)),
	"capitalize": textMethod(0, caseMethod(capitalize)),
	"title":      textMethod(0, caseMethod(titleMethod)),
	"isdigit":    textMethod(0, isdigit),
}

// dictMethod is a method of dicts; a text has none of that name.
func dictMethod(f function) function {
	return func(r *run, args []aj.Value, kw map[string]aj.Value) (aj.Value, error) {
		if !args[0].IsDict() {
			return aj.Undefined(), raised("'%s object' has no such method", typeName(args[0]))
		}
		return f(r, args, kw)
	}
}

// textMethod is a method of texts with up to n arguments, which are Undefined
// if not given.
func textMethod(n int, f func(r *run, s string, args []aj.Value) (aj.Value, error)) function {
	return func(r *run, args []aj.Value, kw map[string]aj.Value) (aj.Value, error) {
		if !args[0].IsString() {
			if args[0].IsDict() {
				return aj.Undefined(), unsupported("a method of a dict")
			}
			return aj.Undefined(), raised("'%s object' has no such method", typeName(args[0]))
		}
		if len(kw) > 0 || len(args) > n+1 {
			return aj.Undefined(), unsupported("a method with these arguments")
		}
		s := args[0].AsString()
		if err := r.spend(0, len(s)); err != nil {
			return aj.Undefined(), err
		}
		padded := make([]aj.Value, n)
		copy(padded, args[1:])
		return f(r, s, padded)
	}
}

func dictValues(r *run, args []aj.Value, _ map[string]aj.Value) (aj.Value, error) {
	d := args[0].AsDict()
	items := make([]aj.Value, len(d.Keys))
	for i, k := range d.Keys {
		items[i] = d.Data[k]
	}
	return aj.NewList(items), r.spend(len(items), 0)
}

func dictGet(_ *run, args []aj.Value, kw map[string]aj.Value) (aj.Value, error) {
	if len(kw) > 0 || len(args) < 2 || len(args) > 3 {
		return aj.Undefined(), raised("get expected 1 or 2 arguments")
	}
	if args[1].IsString() {
		if v, ok := args[0].AsDict().Get(args[1].AsString()); ok {
			return v, nil
		}
	}
	if len(args) == 3 {
		return args[2], nil
	}
	return aj.None(), nil
}

// strip drops white space, or the characters of chars, at either end.
func strip(r *run, s string, chars aj.Value, left, right bool) (aj.Value, error) {
	drop := isSpace
	switch {
	case chars.IsString():
		set := chars.AsString()
		drop = func(r rune) bool { return strings.ContainsRune(set, r) }
	case !chars.IsNone() && !chars.IsUndefined():
		return chars, raised("strip arg must be None or str")
	}
	if left {
		s = strings.TrimLeftFunc(s, drop)
	}
	if right {
		s = strings.TrimRightFunc(s, drop)
	}
	return aj.NewString(s), r.spend(0, len(s))
}

func split(r *run, s string, sep, most aj.Value, fromRight bool) (aj.Value, error) {
	n := -1
	if !most.IsUndefined() {
		var ok bool
		if n, ok = integer(most); !ok {
			return most, raised("maxsplit must be a number")
		}
	}
	var parts []string
	switch {
	case sep.IsString() && sep.AsString() == "":
		return sep, raised("empty separator")
	case sep.IsString() && n < 0:
		parts = strings.Split(s, sep.AsString())
	case sep.IsString() && !fromRight:
		parts = strings.SplitN(s, sep.AsString(), n+1)
	case sep.IsString():
		for ; n > 0; n-- {
			i := strings.LastIndex(s, sep.AsString())
			if i < 0 {
				break
			}
			parts = append(parts, s[i+len(sep.AsString()):])
			s = s[:i]
		}
		parts = append(parts, s)
		slices.Reverse(parts)
	case (sep.IsNone() || sep.IsUndefined()) && n < 0:
		parts = strings.FieldsFunc(s, isSpace)
	default:
		return sep, unsupported("split of this form")
	}
	items := make([]aj.Value, len(parts))
	for i, p := range parts {
		items[i] = aj.NewString(p)
	}
	return aj.NewList(items), r.spend(len(items), 0)
}

func hasAffix(s string, v aj.Value, has func(s, affix string) bool) (aj.Value, error) {
	if v.IsString() {
		return aj.NewBool(has(s, v.AsString())), nil
	}
	if !v.IsList() {
		return v, raised("arg must be str or a tuple of str, not %s", typeName(v))
	}
	for _, x := range v.AsList().Items {
		if !x.IsString() {
			return v, raised("tuple must only contain str, not %s", typeName(x))
		}
		if has(s, x.AsString()) {
			return aj.NewBool(true), nil
		}
	}
	return aj.NewBool(false), nil
}

func find(_ *run, s string, v aj.Value, index func(s, sub string) int) (aj.Value, error) {
	if !v.IsString() {
		return v, raised("must be str, not %s", typeName(v))
	}
	i := index(s, v.AsString())
	if i > 0 {
		i = utf8.RuneCountInString(s[:i])
	}
	return aj.NewInt(int64(i)), nil
}

// countMethod is a method of texts; lists have one too.
func countMethod(r *run, args []aj.Value, kw map[string]aj.Value) (aj.Value, error) {
	if args[0].IsList() {
		return aj.Undefined(), unsupported("count of a list")
	}
	return textMethod(1, countText)(r, args, kw)
}

func countText(_ *run, s string, a []aj.Value) (aj.Value, error) {
	if !a[0].IsString() {
		return a[0], raised("must be str, not %s", typeName(a[0]))
	}
	return aj.NewInt(int64(strings.Count(s, a[0].AsString()))), nil
}

func replaceMethod(r *run, s string, a []aj.Value) (aj.Value, error) {
	if !a[0].IsString() || !a[1].IsString() {
		return a[0], raised("replace() argument must be str")
	}
	return replace(r, s, a[0].AsString(), a[1].AsString(), a[2])
}

func replace(r *run, s, from, to string, count aj.Value) (aj.Value, error) {
	n := -1
	if !count.IsUndefined() && !count.IsNone() {
		var ok bool
		if n, ok = integer(count); !ok {
			return count, raised("the count of a replacement must be a number")
		}
	}
	if grow := strings.Count(s, from) * len(to); grow > r.output {
		return count, unsupported("the text is longer than allowed")
	}
	s = strings.Replace(s, from, to, n)
	return aj.NewString(s), r.spend(0, len(s))
}

func joinMethod(r *run, s string, a []aj.Value) (aj.Value, error) {
	items, err := iterate(a[0])
	if err != nil {
		return a[0], err
	}
	for _, x := range items {
		if !x.IsString() {
			return x, raised("sequence item: expected str instance, %s found", typeName(x))
		}
	}
	return filterJoin(r, []aj.Value{a[0], aj.NewString(s)}, nil)
}

func splitlinesMethod(r *run, s string, a []aj.Value) (aj.Value, error) {
	lines := splitLines(s, a[0].IsTruthy())
	items := make([]aj.Value, len(lines))
	for i, l := range lines {
		items[i] = aj.NewString(l)
	}
	return aj.NewList(items), r.spend(len(items), 0)
}

func caseMethod(f func(string) (string, error)) func(*run, string, []aj.Value) (aj.Value, error) {
	return func(_ *run, s string, _ []aj.Value) (aj.Value, error) {
		s, err := f(s)
		return aj.NewString(s), err
	}
}

// titleMethod is str.title: a word is a run of letters.
func titleMethod(s string) (string, error) {
	b := []byte(strings.ToLower(s))
	inWord := false
	for i, c := range b {
		letter := c >= 'a' && c <= 'z'
		if letter && !inWord {
			b[i] = c - 'a' + 'A'
		}
		inWord = letter
	}
	return string(b), ascii(s, "title-casing")
}

func isdigit(_ *run, s string, _ []aj.Value) (aj.Value, error) {
	other := strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsDigit(r) })
	return aj.NewBool(s != "" && !other), ascii(s, "looking for digits")
}
