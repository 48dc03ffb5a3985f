package jinja

import (
	"strings"

	aj "github.com/ardanlabs/jinja"
)

// The filter safe makes Markup of a text: a text that turns <, >, &, ' and "
// of what it is added to into entities, in chat templates too. The library has
// no such value. Where safe is not just printed, a Markup is a function with
// the text in its name, and only what is listed in markupAllowed may meet it.

const markupMark = "\x00markup\x00"

var markupEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&#39;", `"`, "&#34;")

// markupAllowed are our functions that know what to do with a Markup.
var markupAllowed = map[string]bool{"print": true, "printsum": true, "out": true, "cat": true, "add": true, "test": true, "f_safe": true, "f_string": true}

func newMarkup(text string) aj.Value {
	return aj.NewCallable(markupMark+text, func([]aj.Value, map[string]aj.Value) (aj.Value, error) {
		return aj.Undefined(), unsupported("a text is called")
	})
}

func markupText(v aj.Value) (string, bool) {
	if !v.IsCallable() {
		return "", false
	}
	return strings.CutPrefix(v.AsCallable().Name, markupMark)
}

// checkMarkup refuses a Markup among the arguments of function name.
func checkMarkup(name string, args []aj.Value, kw map[string]aj.Value) error {
	if markupAllowed[name] {
		return nil
	}
	refuse := func(v aj.Value) error {
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

func filterSafe(r *run, args []aj.Value, _ map[string]aj.Value) (aj.Value, error) {
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
func addMarkup(r *run, a, b aj.Value) (aj.Value, error) {
	x, okA := markupText(a)
	y, okB := markupText(b)
	if (!okA && !a.IsString()) || (!okB && !b.IsString()) {
		return aj.Undefined(), unsupported("a text marked as safe is added to something else")
	}
	if !okA {
		x = markupEscaper.Replace(a.AsString())
	}
	if !okB {
		y = markupEscaper.Replace(b.AsString())
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
