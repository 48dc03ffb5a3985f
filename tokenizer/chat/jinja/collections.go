package jinja

import (
	"slices"
	"strings"

	aj "github.com/ardanlabs/jinja"
)

// filterMap is map(attribute=...) or map("filter", ...).
func filterMap(r *run, args []aj.Value, kw map[string]aj.Value) (aj.Value, error) {
	items, err := iterate(args[0])
	if err != nil {
		return aj.Undefined(), err
	}
	if err := r.spend(len(items), 0); err != nil {
		return aj.Undefined(), err
	}
	apply := func(x aj.Value) (aj.Value, error) { return attribute(x, kw["attribute"].AsString()) }
	switch {
	case len(args) == 1 && kw["attribute"].IsString():
		for name := range kw {
			if name != "attribute" && name != "default" {
				return aj.Undefined(), raised("Unexpected keyword argument %q", name)
			}
		}
	case len(args) > 1 && args[1].IsString():
		f := r.filters[args[1].AsString()]
		if f == nil {
			return aj.Undefined(), unsupported("map with the filter %q", args[1].AsString())
		}
		apply = func(x aj.Value) (aj.Value, error) {
			return f(r, append([]aj.Value{x}, args[2:]...), kw)
		}
	default:
		return aj.Undefined(), unsupported("map of this form")
	}
	out := make([]aj.Value, len(items))
	for i, x := range items {
		if out[i], err = apply(x); err != nil {
			return aj.Undefined(), err
		}
		if d, ok := kw["default"]; ok && out[i].IsUndefined() {
			out[i] = d
		}
	}
	return aj.NewList(out), nil
}

// selector makes select, reject, selectattr and rejectattr.
func selector(keep, byAttribute bool) function {
	return func(r *run, args []aj.Value, kw map[string]aj.Value) (aj.Value, error) {
		items, err := iterate(args[0])
		if err != nil || len(kw) > 0 {
			return aj.Undefined(), unsupported("a selection of this form")
		}
		args = args[1:]
		path := ""
		if byAttribute {
			if len(args) == 0 || !args[0].IsString() {
				return aj.Undefined(), unsupported("a selection of this form")
			}
			path, args = args[0].AsString(), args[1:]
		}
		test := ""
		if len(args) > 0 {
			if !args[0].IsString() || tests[args[0].AsString()] == "" {
				return aj.Undefined(), unsupported("a selection by this test")
			}
			test, args = tests[args[0].AsString()], args[1:]
		}
		var out []aj.Value
		for _, item := range items {
			x := item
			if byAttribute {
				if x, err = attribute(item, path); err != nil {
					return aj.Undefined(), err
				}
			}
			ok := x.IsTruthy()
			if test != "" {
				if ok, err = runTest(r, test, x, args); err != nil {
					return aj.Undefined(), err
				}
			}
			if ok == keep {
				out = append(out, item)
			}
		}
		return aj.NewList(out), r.spend(len(items), 0)
	}
}

// sortKey is what Jinja sorts and tells apart by: text without its case.
func sortKey(v aj.Value, path aj.Value, caseSensitive bool) (aj.Value, error) {
	if path.IsString() {
		var err error
		if v, err = attribute(v, path.AsString()); err != nil {
			return v, err
		}
	}
	if v.IsString() && !caseSensitive {
		return aj.NewString(strings.ToLower(v.AsString())), sameCase(v.AsString(), "sorting")
	}
	return v, nil
}

func filterSort(r *run, args []aj.Value, kw map[string]aj.Value) (aj.Value, error) {
	p, err := params(args, kw, "value", "reverse", "case_sensitive", "attribute")
	if err != nil {
		return aj.Undefined(), err
	}
	if p[3].IsString() && strings.Contains(p[3].AsString(), ",") {
		return aj.Undefined(), unsupported("sort by several attributes")
	}
	items, err := iterate(p[0])
	if err != nil {
		return aj.Undefined(), err
	}
	return sorted(r, items, p[1].IsTruthy(), func(v aj.Value) (aj.Value, error) {
		return sortKey(v, p[3], p[2].IsTruthy())
	})
}

// sorted is Python's sorted: stable, in reverse too.
func sorted(r *run, items []aj.Value, reverse bool, key func(aj.Value) (aj.Value, error)) (aj.Value, error) {
	type keyed struct{ key, item aj.Value }
	all := make([]keyed, len(items))
	var err error
	for i, x := range items {
		if all[i].key, err = key(x); err != nil {
			return aj.Undefined(), err
		}
		all[i].item = x
	}
	if err := r.spend(len(items)*4, 0); err != nil {
		return aj.Undefined(), err
	}
	slices.SortStableFunc(all, func(a, b keyed) int {
		c, e := order(a.key, b.key)
		if e != nil {
			err = e
		}
		if reverse {
			return -c
		}
		return c
	})
	out := make([]aj.Value, len(all))
	for i, k := range all {
		out[i] = k.item
	}
	return aj.NewList(out), err
}

func filterDictsort(r *run, args []aj.Value, kw map[string]aj.Value) (aj.Value, error) {
	p, err := params(args, kw, "value", "case_sensitive", "by", "reverse")
	if err != nil {
		return aj.Undefined(), err
	}
	by := 0
	switch {
	case p[2].IsString() && p[2].AsString() == "value":
		by = 1
	case !p[2].IsUndefined() && (!p[2].IsString() || p[2].AsString() != "key"):
		return aj.Undefined(), raised("You can only sort by either \"key\" or \"value\"")
	}
	pairs, err := filterItems(r, p[:1], nil)
	if err != nil {
		return aj.Undefined(), err
	}
	return sorted(r, pairs.AsList().Items, p[3].IsTruthy(), func(v aj.Value) (aj.Value, error) {
		return sortKey(v.AsList().Get(by), aj.Undefined(), p[1].IsTruthy())
	})
}

func filterUnique(r *run, args []aj.Value, kw map[string]aj.Value) (aj.Value, error) {
	p, err := params(args, kw, "value", "case_sensitive", "attribute")
	if err != nil {
		return aj.Undefined(), err
	}
	items, err := iterate(p[0])
	if err != nil {
		return aj.Undefined(), err
	}
	seen := map[string]bool{}
	var out []aj.Value
	for _, x := range items {
		k, err := sortKey(x, p[2], p[1].IsTruthy())
		if err != nil {
			return aj.Undefined(), err
		}
		if !k.IsString() {
			return aj.Undefined(), unsupported("unique of values that are no text")
		}
		if !seen[k.AsString()] {
			seen[k.AsString()] = true
			out = append(out, x)
		}
	}
	return aj.NewList(out), r.spend(len(items), 0)
}

func filterIndent(r *run, args []aj.Value, kw map[string]aj.Value) (aj.Value, error) {
	p, err := params(args, kw, "s", "width", "first", "blank")
	if err != nil {
		return aj.Undefined(), err
	}
	s, err := r.str(p[0])
	if err != nil {
		return aj.Undefined(), err
	}
	indent := "    "
	if n, ok := integer(p[1]); ok {
		indent = strings.Repeat(" ", min(max(n, 0), 1024))
	} else if p[1].IsString() {
		indent = p[1].AsString()
	}
	first, blank := p[2].IsTruthy(), p[3].IsTruthy()
	if err := r.spend(0, len(s)+(1+strings.Count(s, "\n"))*len(indent)); err != nil {
		return aj.Undefined(), err
	}
	// Jinja adds a newline, joins with the indent what splitlines gives if
	// blank lines count, and else indents only the other lines.
	lines := splitLines(s+"\n", false)
	var b strings.Builder
	for i, line := range lines {
		if i > 0 {
			b.WriteByte('\n')
		}
		if (i == 0 && first) || (i > 0 && (blank || line != "")) {
			b.WriteString(indent)
		}
		b.WriteString(line)
	}
	return aj.NewString(b.String()), nil
}

// splitLines is Python's str.splitlines.
func splitLines(s string, keepEnds bool) []string {
	var lines []string
	start := 0
	for i, r := range s {
		if i < start {
			continue // the \n of a \r\n
		}
		var end int
		switch r {
		case '\n', '\v', '\f', 0x1c, 0x1d, 0x1e:
			end = i + 1
		case '\r':
			end = i + 1
			if strings.HasPrefix(s[end:], "\n") {
				end++
			}
		case 0x85:
			end = i + 2
		case 0x2028, 0x2029:
			end = i + 3
		default:
			continue
		}
		if keepEnds {
			lines = append(lines, s[start:end])
		} else {
			lines = append(lines, s[start:i])
		}
		start = end
	}
	if start < len(s) {
		lines = append(lines, s[start:])
	}
	return lines
}
