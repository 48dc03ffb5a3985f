package jinja

import "slices"

// globals are the functions that every template has. Jinja's own ones cannot
// be given as variables; the two of transformers could.
var globals = []string{"range", "dict", "lipsum", "cycler", "joiner", "namespace"}

// names are the variables that the template reads, wherever it reads them.
// Jinja tells free ones from those that are set before; for what a caller's
// value changes, it is the same.
func names(body []stmt) map[string]bool {
	used := map[string]bool{}
	collect := func(x expr) {
		eachExpr(x, func(x expr) {
			if n, ok := x.(*nameExpr); ok && !slices.Contains(globals, n.id) {
				used[n.id] = true
			}
		})
	}
	eachStmt(body, func(s stmt) {
		for _, x := range exprs(s) {
			collect(x)
		}
	})
	return used
}

// wantsParts follows vLLM's look at a template (_iter_nodes_assign_content_item
// in renderers/hf.py): whether a loop runs over a message's content, through
// the aliases of messages and through macros. Where vLLM's code trips over a
// target that is no name, it takes the content to be a string; so does this.
func wantsParts(body []stmt) bool {
	var loops []*forStmt
	var sets []*setStmt
	var macros []*macroStmt
	var calls []*callExpr
	eachStmt(body, func(s stmt) {
		switch s := s.(type) {
		case *forStmt:
			loops = append(loops, s)
		case *setStmt:
			sets = append(sets, s)
		case *macroStmt:
			macros = append(macros, s)
		}
		for _, x := range exprs(s) {
			eachExpr(x, func(x expr) {
				if c, ok := x.(*callExpr); ok {
					calls = append(calls, c)
				}
			})
		}
	})

	lists := []string{"messages"}
	for i := 0; i < len(lists); i++ {
		for _, s := range sets {
			if !reads(s.x, lists[i], "") {
				continue
			}
			if s.tuple || s.object != "" {
				return false
			}
			if !slices.Contains(lists, s.targets[0]) {
				lists = append(lists, s.targets[0])
			}
		}
	}
	var items []string
	for _, l := range loops {
		if !slices.ContainsFunc(lists, func(v string) bool { return reads(l.iter, v, "") }) {
			continue
		}
		if l.tuple {
			return false
		}
		items = append(items, l.targets[0])
	}
	isContent := func(x expr) bool {
		return slices.ContainsFunc(items, func(v string) bool { return reads(x, v, "content") })
	}

	inMacro := map[*forStmt][]string{} // the parameters that are given a content
	for _, m := range macros {
		params := contentParams(m, calls, isContent)
		eachStmt(m.body, func(s stmt) {
			if l, ok := s.(*forStmt); ok {
				if _, seen := inMacro[l]; !seen || params != nil {
					inMacro[l] = params
				}
			}
		})
	}
	for _, l := range loops {
		name, isName := l.iter.(*nameExpr)
		params, inside := inMacro[l]
		switch {
		case isContent(l.iter):
		case isName && slices.Contains(params, name.id):
		case isName && !inside && name.id == "content":
		default:
			continue
		}
		return !l.tuple
	}
	return false
}

// contentParams are the parameters of m that some call gives a content.
func contentParams(m *macroStmt, calls []*callExpr, isContent func(expr) bool) []string {
	var params []string
	for _, c := range calls {
		if n, ok := c.fn.(*nameExpr); !ok || n.id != m.name {
			continue
		}
		for i, arg := range c.args {
			if i < len(m.params) && isContent(arg) {
				params = append(params, m.params[i].name)
			}
		}
		for _, kw := range c.kw {
			known := slices.ContainsFunc(m.params, func(p param) bool { return p.name == kw.name })
			if known && isContent(kw.x) {
				params = append(params, kw.name)
			}
		}
	}
	return params
}

// reads reports whether x is the variable, or its key, seen through filters,
// tests and slices.
func reads(x expr, variable, key string) bool {
	switch x := x.(type) {
	case *filterExpr:
		return reads(x.x, variable, key)
	case *testExpr:
		return reads(x.x, variable, key)
	case *sliceExpr:
		return reads(x.x, variable, key)
	case *nameExpr:
		return key == "" && x.id == variable
	case *attrExpr:
		return key != "" && x.name == key && reads(x.x, variable, "") && isName(x.x)
	case *itemExpr:
		c, ok := x.key.(*constExpr)
		return key != "" && ok && c.v == key && isName(x.x) && reads(x.x, variable, "")
	}
	return false
}

func isName(x expr) bool { _, ok := x.(*nameExpr); return ok }
