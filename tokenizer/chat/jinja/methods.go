package jinja

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// methods are the methods of texts and dicts; args[0] is the object.
var methods = map[string]function{
	"items":      dictMethod(filterItems),
	"keys":       dictMethod(filterList),
	"values":     dictMethod(dictValues),
	"get":        dictMethod(dictGet),
	"strip":      textMethod(1, func(r *run, s string, a []val) (val, error) { return strip(r, s, a[0], true, true) }),
	"lstrip":     textMethod(1, func(r *run, s string, a []val) (val, error) { return strip(r, s, a[0], true, false) }),
	"rstrip":     textMethod(1, func(r *run, s string, a []val) (val, error) { return strip(r, s, a[0], false, true) }),
	"split":      textMethod(2, func(r *run, s string, a []val) (val, error) { return split(r, s, a[0], a[1], false) }),
	"rsplit":     textMethod(2, func(r *run, s string, a []val) (val, error) { return split(r, s, a[0], a[1], true) }),
	"startswith": textMethod(1, func(_ *run, s string, a []val) (val, error) { return hasAffix(s, a[0], strings.HasPrefix) }),
	"endswith":   textMethod(1, func(_ *run, s string, a []val) (val, error) { return hasAffix(s, a[0], strings.HasSuffix) }),
	"find":       textMethod(1, func(r *run, s string, a []val) (val, error) { return find(r, s, a[0], strings.Index) }),
	"rfind":      textMethod(1, func(r *run, s string, a []val) (val, error) { return find(r, s, a[0], strings.LastIndex) }),
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
	return func(r *run, args []val, kw map[string]val) (val, error) {
		if !args[0].isDict() {
			return val{}, raised("'%s object' has no such method", typeName(args[0]))
		}
		return f(r, args, kw)
	}
}

// textMethod is a method of texts with up to n arguments, which are Undefined
// if not given.
func textMethod(n int, f func(r *run, s string, args []val) (val, error)) function {
	return func(r *run, args []val, kw map[string]val) (val, error) {
		if !args[0].isString() {
			if args[0].isDict() {
				return val{}, unsupported("a method of a dict")
			}
			return val{}, raised("'%s object' has no such method", typeName(args[0]))
		}
		if len(kw) > 0 || len(args) > n+1 {
			return val{}, unsupported("a method with these arguments")
		}
		s := args[0].asString()
		if err := r.spend(0, len(s)); err != nil {
			return val{}, err
		}
		padded := make([]val, n)
		copy(padded, args[1:])
		return f(r, s, padded)
	}
}

func dictValues(r *run, args []val, _ map[string]val) (val, error) {
	items := slices.Clone(args[0].asDict().items)
	return newList(items), r.spend(len(items), 0)
}

func dictGet(_ *run, args []val, kw map[string]val) (val, error) {
	if len(kw) > 0 || len(args) < 2 || len(args) > 3 {
		return val{}, raised("get expected 1 or 2 arguments")
	}
	if args[1].isString() {
		if v, ok := args[0].asDict().get(args[1].asString()); ok {
			return v, nil
		}
	}
	if len(args) == 3 {
		return args[2], nil
	}
	return newNone(), nil
}

// strip drops white space, or the characters of chars, at either end.
func strip(r *run, s string, chars val, left, right bool) (val, error) {
	drop := isSpace
	switch {
	case chars.isString():
		set := chars.asString()
		drop = func(r rune) bool { return strings.ContainsRune(set, r) }
	case !chars.isNone() && !chars.isUndefined():
		return chars, raised("strip arg must be None or str")
	}
	if left {
		s = strings.TrimLeftFunc(s, drop)
	}
	if right {
		s = strings.TrimRightFunc(s, drop)
	}
	return newString(s), r.spend(0, len(s))
}

func split(r *run, s string, sep, most val, fromRight bool) (val, error) {
	n := -1
	if !most.isUndefined() {
		var ok bool
		if n, ok = integer(most); !ok {
			return most, raised("maxsplit must be a number")
		}
	}
	var parts []string
	switch {
	case sep.isString() && sep.asString() == "":
		return sep, raised("empty separator")
	case sep.isString() && n < 0:
		parts = strings.Split(s, sep.asString())
	case sep.isString() && !fromRight:
		parts = strings.SplitN(s, sep.asString(), n+1)
	case sep.isString():
		for ; n > 0; n-- {
			i := strings.LastIndex(s, sep.asString())
			if i < 0 {
				break
			}
			parts = append(parts, s[i+len(sep.asString()):])
			s = s[:i]
		}
		parts = append(parts, s)
		slices.Reverse(parts)
	case (sep.isNone() || sep.isUndefined()) && n < 0:
		parts = strings.FieldsFunc(s, isSpace)
	default:
		return sep, unsupported("split of this form")
	}
	items := make([]val, len(parts))
	for i, p := range parts {
		items[i] = newString(p)
	}
	return newList(items), r.spend(len(items), 0)
}

func hasAffix(s string, v val, has func(s, affix string) bool) (val, error) {
	if v.isString() {
		return newBool(has(s, v.asString())), nil
	}
	if !v.isList() {
		return v, raised("arg must be str or a tuple of str, not %s", typeName(v))
	}
	for _, x := range v.asList().items {
		if !x.isString() {
			return v, raised("tuple must only contain str, not %s", typeName(x))
		}
		if has(s, x.asString()) {
			return newBool(true), nil
		}
	}
	return newBool(false), nil
}

func find(_ *run, s string, v val, index func(s, sub string) int) (val, error) {
	if !v.isString() {
		return v, raised("must be str, not %s", typeName(v))
	}
	i := index(s, v.asString())
	if i > 0 {
		i = utf8.RuneCountInString(s[:i])
	}
	return newInt(int64(i)), nil
}

// countMethod is a method of texts; lists have one too.
func countMethod(r *run, args []val, kw map[string]val) (val, error) {
	if args[0].isList() {
		return val{}, unsupported("count of a list")
	}
	return textMethod(1, countText)(r, args, kw)
}

func countText(_ *run, s string, a []val) (val, error) {
	if !a[0].isString() {
		return a[0], raised("must be str, not %s", typeName(a[0]))
	}
	return newInt(int64(strings.Count(s, a[0].asString()))), nil
}

func replaceMethod(r *run, s string, a []val) (val, error) {
	if !a[0].isString() || !a[1].isString() {
		return a[0], raised("replace() argument must be str")
	}
	return replace(r, s, a[0].asString(), a[1].asString(), a[2])
}

func replace(r *run, s, from, to string, count val) (val, error) {
	n := -1
	if !count.isUndefined() && !count.isNone() {
		var ok bool
		if n, ok = integer(count); !ok {
			return count, raised("the count of a replacement must be a number")
		}
	}
	if grow := strings.Count(s, from) * len(to); grow > r.output {
		return count, unsupported("the text is longer than allowed")
	}
	s = strings.Replace(s, from, to, n)
	return newString(s), r.spend(0, len(s))
}

func joinMethod(r *run, s string, a []val) (val, error) {
	items, err := iterate(a[0])
	if err != nil {
		return a[0], err
	}
	for _, x := range items {
		if !x.isString() {
			return x, raised("sequence item: expected str instance, %s found", typeName(x))
		}
	}
	return filterJoin(r, []val{a[0], newString(s)}, nil)
}

func splitlinesMethod(r *run, s string, a []val) (val, error) {
	lines := splitLines(s, a[0].truth())
	items := make([]val, len(lines))
	for i, l := range lines {
		items[i] = newString(l)
	}
	return newList(items), r.spend(len(items), 0)
}

func caseMethod(f func(string) (string, error)) func(*run, string, []val) (val, error) {
	return func(_ *run, s string, _ []val) (val, error) {
		s, err := f(s)
		return newString(s), err
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

func isdigit(_ *run, s string, _ []val) (val, error) {
	other := strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsDigit(r) })
	return newBool(s != "" && !other), ascii(s, "looking for digits")
}
