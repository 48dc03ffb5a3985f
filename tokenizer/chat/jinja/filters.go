package jinja

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kvindex/kvindex/tokenizer/chat/pyjson"
)

// filters do what jinja2/filters.py and transformers' tojson do.
var filters = map[string]function{
	"abs":        filterAbs,
	"capitalize": textFilter(capitalize),
	"count":      filterLength,
	"d":          filterDefault,
	"default":    filterDefault,
	"dictsort":   filterDictsort,
	"first":      filterFirst,
	"float":      filterFloat,
	"format":     filterFormat,
	"indent":     filterIndent,
	"int":        filterInt,
	"items":      filterItems,
	"join":       filterJoin,
	"last":       filterLast,
	"length":     filterLength,
	"list":       filterList,
	"lower":      textFilter(lower),
	"map":        filterMap,
	"reject":     selector(false, false),
	"rejectattr": selector(false, true),
	"replace":    filterReplace,
	"reverse":    filterReverse,
	"round":      filterRound,
	"safe":       filterSafe,
	"select":     selector(true, false),
	"selectattr": selector(true, true),
	"sort":       filterSort,
	"string":     filterString,
	"title":      textFilter(title),
	"tojson":     filterTojson,
	"trim":       filterTrim,
	"unique":     filterUnique,
	"upper":      textFilter(upper),
}

// textFilter makes a filter of what does something to str(value).
func textFilter(f func(string) (string, error)) function {
	return func(r *run, args []val, kw map[string]val) (val, error) {
		if _, err := params(args, kw, "s"); err != nil {
			return val{}, err
		}
		s, err := r.str(args[0])
		if err != nil {
			return val{}, err
		}
		if s, err = f(s); err != nil {
			return val{}, err
		}
		return newString(s), r.spend(0, len(s))
	}
}

func lower(s string) (string, error) { return strings.ToLower(s), sameCase(s, "lower-casing") }
func upper(s string) (string, error) { return strings.ToUpper(s), sameCase(s, "upper-casing") }

func capitalize(s string) (string, error) {
	if s == "" {
		return s, nil
	}
	return strings.ToUpper(s[:1]) + strings.ToLower(s[1:]), ascii(s, "capitalizing")
}

var wordStart = regexp.MustCompile(`[-\s({\[<]+`)

// title upper-cases the first letter of each word by Jinja's idea of words.
func title(s string) (string, error) {
	var b strings.Builder
	word := func(w string) {
		if w != "" {
			b.WriteString(strings.ToUpper(w[:1]) + strings.ToLower(w[1:]))
		}
	}
	at := 0
	for _, m := range wordStart.FindAllStringIndex(s, -1) {
		word(s[at:m[0]])
		b.WriteString(s[m[0]:m[1]])
		at = m[1]
	}
	word(s[at:])
	return b.String(), ascii(s, "title-casing")
}

func filterString(r *run, args []val, kw map[string]val) (val, error) {
	if _, ok := markupText(args[0]); ok || args[0].isString() {
		return args[0], nil
	}
	return textFilter(func(s string) (string, error) { return s, nil })(r, args, kw)
}

func filterTrim(r *run, args []val, kw map[string]val) (val, error) {
	p, err := params(args, kw, "value", "chars")
	if err != nil {
		return val{}, err
	}
	s, err := r.str(p[0])
	if err != nil {
		return val{}, err
	}
	return strip(r, s, p[1], true, true)
}

func filterLength(r *run, args []val, _ map[string]val) (val, error) {
	n, err := length(args[0])
	if err == nil && args[0].isString() {
		err = r.spend(0, n)
	}
	return newInt(int64(n)), err
}

func filterDefault(_ *run, args []val, kw map[string]val) (val, error) {
	p, err := params(args, kw, "value", "default_value", "boolean")
	if err != nil {
		return val{}, err
	}
	if !p[0].isUndefined() && (!p[2].truth() || p[0].truth()) {
		return p[0], nil
	}
	if len(args) < 2 && kw["default_value"].isUndefined() {
		return newString(""), nil
	}
	return p[1], nil
}

func filterFirst(_ *run, args []val, _ map[string]val) (val, error) {
	items, err := iterate(args[0])
	if err != nil || len(items) == 0 {
		return val{}, err
	}
	return items[0], nil
}

func filterLast(_ *run, args []val, _ map[string]val) (val, error) {
	items, err := iterate(args[0])
	if err != nil || len(items) == 0 {
		return val{}, err
	}
	return items[len(items)-1], nil
}

func filterList(r *run, args []val, _ map[string]val) (val, error) {
	items, err := iterate(args[0])
	if err != nil {
		return val{}, err
	}
	return newList(slices.Clone(items)), r.spend(len(items), 0)
}

func filterReverse(r *run, args []val, _ map[string]val) (val, error) {
	items, err := iterate(args[0])
	if err != nil {
		return val{}, err
	}
	items = slices.Clone(items)
	slices.Reverse(items)
	if err := r.spend(len(items), 0); err != nil {
		return val{}, err
	}
	if args[0].isString() {
		return opCat(r, items, nil)
	}
	return newList(items), nil
}

func filterItems(r *run, args []val, _ map[string]val) (val, error) {
	v := args[0]
	if v.isUndefined() {
		return newList(nil), nil
	}
	if !v.isDict() {
		return v, raised("Can only get item pairs from a mapping.")
	}
	d := v.asDict()
	items := make([]val, len(d.keys))
	for i, k := range d.keys {
		items[i] = newTuple(newString(k), d.items[i])
	}
	return newList(items), r.spend(len(items), 0)
}

func filterJoin(r *run, args []val, kw map[string]val) (val, error) {
	p, err := params(args, kw, "value", "d", "attribute")
	if err != nil {
		return val{}, err
	}
	items, err := iterate(p[0])
	if err != nil {
		return val{}, err
	}
	sep, err := r.str(p[1])
	if err != nil {
		return val{}, err
	}
	parts := make([]string, len(items))
	n := 0
	for i, x := range items {
		if p[2].isString() {
			if x, err = attribute(x, p[2].asString()); err != nil {
				return val{}, err
			}
		}
		if parts[i], err = r.str(x); err != nil {
			return val{}, err
		}
		n += len(parts[i]) + len(sep)
	}
	if err := r.spend(len(items), n); err != nil {
		return val{}, err
	}
	return newString(strings.Join(parts, sep)), nil
}

func filterReplace(r *run, args []val, kw map[string]val) (val, error) {
	p, err := params(args, kw, "s", "old", "new", "count")
	if err != nil {
		return val{}, err
	}
	var text [3]string
	for i := range text {
		if text[i], err = r.str(p[i]); err != nil {
			return val{}, err
		}
	}
	return replace(r, text[0], text[1], text[2], p[3])
}

func filterInt(_ *run, args []val, kw map[string]val) (val, error) {
	p, err := params(args, kw, "value", "default", "base")
	if err != nil {
		return val{}, err
	}
	if i, ok := integer(p[0]); ok {
		return newInt(int64(i)), nil
	}
	if p[0].isFloat() && math.Abs(p[0].asFloat()) < 1<<53 {
		return newInt(int64(p[0].asFloat())), nil
	}
	if p[0].isString() && p[2].isUndefined() {
		s := strings.TrimFunc(p[0].asString(), isSpace)
		if i, err := strconv.ParseInt(s, 10, 64); err == nil {
			return newInt(i), nil
		}
	}
	return val{}, unsupported("an int made of this value")
}

func filterFloat(_ *run, args []val, _ map[string]val) (val, error) {
	if f, ok := number(args[0]); ok && math.Abs(f) < 1<<53 {
		return newFloat(f), nil
	}
	return val{}, unsupported("a float made of this value")
}

func filterAbs(_ *run, args []val, _ map[string]val) (val, error) {
	if args[0].isFloat() {
		return newFloat(math.Abs(args[0].asFloat())), nil
	}
	i, ok := integer(args[0])
	if !ok || i == math.MinInt64 {
		return val{}, raised("bad operand type for abs(): '%s'", typeName(args[0]))
	}
	return newInt(max(int64(i), -int64(i))), nil
}

func filterRound(_ *run, args []val, kw map[string]val) (val, error) {
	p, err := params(args, kw, "value", "precision", "method")
	if err != nil {
		return val{}, err
	}
	n, ok := integer(p[1])
	if !ok && !p[1].isUndefined() || n < 0 || n > 300 || !p[2].isUndefined() {
		return val{}, unsupported("round of this form")
	}
	if i, ok := integer(p[0]); ok {
		return newInt(int64(i)), nil
	}
	if !p[0].isFloat() {
		return val{}, raised("type %s doesn't define __round__ method", typeName(p[0]))
	}
	f, err := strconv.ParseFloat(strconv.FormatFloat(p[0].asFloat(), 'f', n, 64), 64)
	if err != nil {
		return val{}, unsupported("round of this number")
	}
	return newFloat(f), nil
}

// filterFormat is printf with %s and %d only.
func filterFormat(r *run, args []val, kw map[string]val) (val, error) {
	format, err := r.str(args[0])
	if err != nil || len(kw) > 0 {
		return val{}, unsupported("format with names")
	}
	var b strings.Builder
	rest := args[1:]
	for {
		i := strings.IndexByte(format, '%')
		if i < 0 || i+1 == len(format) {
			break
		}
		b.WriteString(format[:i])
		verb := format[i+1]
		format = format[i+2:]
		if verb == '%' {
			b.WriteByte('%')
			continue
		}
		if len(rest) == 0 {
			return val{}, raised("not enough arguments for format string")
		}
		_, isInt := integer(rest[0])
		if verb != 's' && (verb != 'd' || !isInt || rest[0].isBool()) {
			return val{}, unsupported("format with %%%c", verb)
		}
		s, err := r.str(rest[0])
		if err != nil {
			return val{}, err
		}
		b.WriteString(s)
		rest = rest[1:]
	}
	if len(rest) > 0 || strings.Contains(format, "%") {
		return val{}, raised("not all arguments converted during string formatting")
	}
	b.WriteString(format)
	return newString(b.String()), r.spend(0, b.Len())
}

func filterTojson(r *run, args []val, kw map[string]val) (val, error) {
	p, err := params(args, kw, "x", "ensure_ascii", "indent", "separators", "sort_keys")
	if err != nil {
		return val{}, err
	}
	e := jsonEncoder{run: r, ascii: p[1].truth(), item: ", ", key: ": ", sort: p[4].truth()}
	switch n, ok := integer(p[2]); {
	case ok:
		e.indented, e.indent = true, strings.Repeat(" ", min(max(n, 0), 64))
	case p[2].isString():
		e.indented, e.indent = true, p[2].asString()
	case !p[2].isNone() && !p[2].isUndefined():
		return val{}, raised("indent must be a number or text")
	}
	if e.indented {
		e.item = ","
	}
	if s := p[3]; s.isList() && len(s.asList().items) == 2 && s.asList().items[0].isString() && s.asList().items[1].isString() {
		e.item, e.key = s.asList().items[0].asString(), s.asList().items[1].asString()
	} else if !s.isNone() && !s.isUndefined() {
		return val{}, raised("separators must be two texts")
	}
	if err := e.value(p[0], 0); err != nil {
		return val{}, err
	}
	return newString(e.b.String()), r.spend(0, e.b.Len())
}

func floatJSON(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return pyjson.FormatFloat(f)
}
