package jinja

import (
	"strings"
)

// The filter safe makes Markup of a text: a text that turns <, >, &, ' and "
// of what it is added to into entities, in chat templates too. No other
// value does that. Where safe is not just printed, a Markup is a function with
// the text in its name, and only what is listed in markupAllowed may meet it.

const markupMark = "\x00markup\x00"

var markupEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&#39;", `"`, "&#34;")

// markupAllowed are our functions that know what to do with a Markup.
var markupAllowed = map[string]bool{"print": true, "printsum": true, "out": true, "cat": true, "add": true, "test": true, "f_safe": true, "f_string": true}

func newMarkup(text string) val {
	return newCallable(markupMark+text, func([]val, map[string]val) (val, error) {
		return val{}, unsupported("a text is called")
	})
}

func markupText(v val) (string, bool) {
	if !v.isCallable() {
		return "", false
	}
	return strings.CutPrefix(v.asCallable().name, markupMark)
}

// checkMarkup refuses a Markup among the arguments of function name.
func checkMarkup(name string, args []val, kw map[string]val) error {
	if markupAllowed[name] {
		return nil
	}
	refuse := func(v val) error {
		if _, ok := markupText(v); ok {
			return unsupported("a text marked as safe goes on to %s", name)
		}
		return nil
	}
	for _, v := range args {
		if err := refuse(v); err != nil {
			return err
		}
	}
	for _, v := range kw {
		if err := refuse(v); err != nil {
			return err
		}
	}
	return nil
}

func filterSafe(r *run, args []val, _ map[string]val) (val, error) {
	if _, ok := markupText(args[0]); ok {
		return args[0], nil
	}
	text, err := r.str(args[0])
	if err == nil && text == "" {
		err = unsupported("an empty text is marked as safe") // it would be true
	}
	return newMarkup(text), err
}

// addMarkup is a + b if one of them is a Markup.
func addMarkup(r *run, a, b val) (val, error) {
	x, okA := markupText(a)
	y, okB := markupText(b)
	if (!okA && !a.isString()) || (!okB && !b.isString()) {
		return val{}, unsupported("a text marked as safe is added to something else")
	}
	if !okA {
		x = markupEscaper.Replace(a.asString())
	}
	if !okB {
		y = markupEscaper.Replace(b.asString())
	}
	return newMarkup(x + y), r.spend(0, len(x)+len(y))
}

// testMarkup is a test of a Markup: it is a text like any other.
func testMarkup(name string) (bool, error) {
	switch name {
	case "string", "defined", "iterable", "sequence":
		return true, nil
	case "mapping", "none", "undefined", "boolean", "number", "integer", "float", "true", "false":
		return false, nil
	}
	return false, unsupported("the test %q of a text marked as safe", name)
}

// unsafe takes the filter safe off an expression that is only printed.
func unsafe(x expr) expr {
	for {
		f, ok := x.(*filterExpr)
		if !ok || f.name != "safe" {
			return x
		}
		x = f.x
	}
}

// makesMarkup reports whether the result of a safe is used for more than to be
// printed.
func makesMarkup(body []stmt) bool {
	found := false
	eachStmt(body, func(s stmt) {
		xs := exprs(s)
		if o, ok := s.(*outputStmt); ok {
			xs = []expr{unsafe(o.x)}
		}
		for _, x := range xs {
			eachExpr(x, func(x expr) {
				if f, ok := x.(*filterExpr); ok && f.name == "safe" {
					found = true
				}
			})
		}
	})
	return found
}
