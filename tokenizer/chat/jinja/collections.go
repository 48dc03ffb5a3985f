package jinja

import (
	"slices"
	"strings"
)

// filterMap is map(attribute=...) or map("filter", ...).
func filterMap(r *run, args []val, kw map[string]val) (val, error) {
	items, err := iterate(args[0])
	if err != nil {
		return val{}, err
	}
	if err := r.spend(len(items), 0); err != nil {
		return val{}, err
	}
	apply := func(x val) (val, error) { return attribute(x, kw["attribute"].asString()) }
	switch {
	case len(args) == 1 && kw["attribute"].isString():
		for name := range kw {
			if name != "attribute" && name != "default" {
				return val{}, raised("Unexpected keyword argument %q", name)
			}
		}
	case len(args) > 1 && args[1].isString():
		f := r.filters[args[1].asString()]
		if f == nil {
			return val{}, unsupported("map with the filter %q", args[1].asString())
		}
		apply = func(x val) (val, error) {
			return f(r, append([]val{x}, args[2:]...), kw)
		}
	default:
		return val{}, unsupported("map of this form")
	}
	out := make([]val, len(items))
	for i, x := range items {
		if out[i], err = apply(x); err != nil {
			return val{}, err
		}
		if d, ok := kw["default"]; ok && out[i].isUndefined() {
			out[i] = d
		}
	}
	return newList(out), nil
}

// selector makes select, reject, selectattr and rejectattr.
func selector(keep, byAttribute bool) function {
	return func(r *run, args []val, kw map[string]val) (val, error) {
		items, err := iterate(args[0])
		if err != nil || len(kw) > 0 {
			return val{}, unsupported("a selection of this form")
		}
		args = args[1:]
		path := ""
		if byAttribute {
			if len(args) == 0 || !args[0].isString() {
				return val{}, unsupported("a selection of this form")
			}
			path, args = args[0].asString(), args[1:]
		}
		test := ""
		if len(args) > 0 {
			if !args[0].isString() || tests[args[0].asString()] == "" {
				return val{}, unsupported("a selection by this test")
			}
			test, args = tests[args[0].asString()], args[1:]
		}
		var out []val
		for _, item := range items {
			x := item
			if byAttribute {
				if x, err = attribute(item, path); err != nil {
					return val{}, err
				}
			}
			ok := x.truth()
			if test != "" {
				if ok, err = runTest(r, test, x, args); err != nil {
					return val{}, err
				}
			}
			if ok == keep {
				out = append(out, item)
			}
		}
		return newList(out), r.spend(len(items), 0)
	}
}

// sortKey is what Jinja sorts and tells apart by: text without its case.
func sortKey(v val, path val, caseSensitive bool) (val, error) {
	if path.isString() {
		var err error
		if v, err = attribute(v, path.asString()); err != nil {
			return v, err
		}
	}
	if v.isString() && !caseSensitive {
		return newString(strings.ToLower(v.asString())), sameCase(v.asString(), "sorting")
	}
	return v, nil
}

func filterSort(r *run, args []val, kw map[string]val) (val, error) {
	p, err := params(args, kw, "value", "reverse", "case_sensitive", "attribute")
	if err != nil {
		return val{}, err
	}
	if p[3].isString() && strings.Contains(p[3].asString(), ",") {
		return val{}, unsupported("sort by several attributes")
	}
	items, err := iterate(p[0])
	if err != nil {
		return val{}, err
	}
	return sorted(r, items, p[1].truth(), func(v val) (val, error) {
		return sortKey(v, p[3], p[2].truth())
	})
}

// sorted is Python's sorted: stable, in reverse too.
func sorted(r *run, items []val, reverse bool, key func(val) (val, error)) (val, error) {
	type keyed struct{ key, item val }
	all := make([]keyed, len(items))
	var err error
	for i, x := range items {
		if all[i].key, err = key(x); err != nil {
			return val{}, err
		}
		all[i].item = x
	}
	if err := r.spend(len(items)*4, 0); err != nil {
		return val{}, err
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
	out := make([]val, len(all))
	for i, k := range all {
		out[i] = k.item
	}
	return newList(out), err
}

func filterDictsort(r *run, args []val, kw map[string]val) (val, error) {
	p, err := params(args, kw, "value", "case_sensitive", "by", "reverse")
	if err != nil {
		return val{}, err
	}
	by := 0
	switch {
	case p[2].isString() && p[2].asString() == "value":
		by = 1
	case !p[2].isUndefined() && (!p[2].isString() || p[2].asString() != "key"):
		return val{}, raised("You can only sort by either \"key\" or \"value\"")
	}
	pairs, err := filterItems(r, p[:1], nil)
	if err != nil {
		return val{}, err
	}
	return sorted(r, pairs.asList().items, p[3].truth(), func(v val) (val, error) {
		return sortKey(v.asList().items[by], val{}, p[1].truth())
	})
}

func filterUnique(r *run, args []val, kw map[string]val) (val, error) {
	p, err := params(args, kw, "value", "case_sensitive", "attribute")
	if err != nil {
		return val{}, err
	}
	items, err := iterate(p[0])
	if err != nil {
		return val{}, err
	}
	seen := map[string]bool{}
	var out []val
	for _, x := range items {
		k, err := sortKey(x, p[2], p[1].truth())
		if err != nil {
			return val{}, err
		}
		if !k.isString() {
			return val{}, unsupported("unique of values that are no text")
		}
		if !seen[k.asString()] {
			seen[k.asString()] = true
			out = append(out, x)
		}
	}
	return newList(out), r.spend(len(items), 0)
}

func filterIndent(r *run, args []val, kw map[string]val) (val, error) {
	p, err := params(args, kw, "s", "width", "first", "blank")
	if err != nil {
		return val{}, err
	}
	s, err := r.str(p[0])
	if err != nil {
		return val{}, err
	}
	indent := "    "
	if n, ok := integer(p[1]); ok {
		indent = strings.Repeat(" ", min(max(n, 0), 1024))
	} else if p[1].isString() {
		indent = p[1].asString()
	}
	first, blank := p[2].truth(), p[3].truth()
	if err := r.spend(0, len(s)+(1+strings.Count(s, "\n"))*len(indent)); err != nil {
		return val{}, err
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
	return newString(b.String()), nil
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
