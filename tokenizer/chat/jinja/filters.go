package jinja

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	aj "github.com/ardanlabs/jinja"

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
	return func(r *run, args []aj.Value, kw map[string]aj.Value) (aj.Value, error) {
		if _, err := params(args, kw, "s"); err != nil {
			return aj.Undefined(), err
		}
		s, err := r.str(args[0])
		if err != nil {
			return aj.Undefined(), err
		}
		if s, err = f(s); err != nil {
			return aj.Undefined(), err
		}
		return aj.NewString(s), r.spend(0, len(s))
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

func filterString(r *run, args []aj.Value, kw map[string]aj.Value) (aj.Value, error) {
	if _, ok := markupText(args[0]); ok || args[0].IsString() {
		return args[0], nil
	}
	return textFilter(func(s string) (string, error) { return s, nil })(r, args, kw)
}

func filterTrim(r *run, args []aj.Value, kw map[string]aj.Value) (aj.Value, error) {
	p, err := params(args, kw, "value", "chars")
	if err != nil {
		return aj.Undefined(), err
	}
	s, err := r.str(p[0])
	if err != nil {
		return aj.Undefined(), err
	}
	return strip(r, s, p[1], true, true)
}

func filterLength(r *run, args []aj.Value, _ map[string]aj.Value) (aj.Value, error) {
	n, err := length(args[0])
	if err == nil && args[0].IsString() {
		err = r.spend(0, n)
	}
	return aj.NewInt(int64(n)), err
}

func filterDefault(_ *run, args []aj.Value, kw map[string]aj.Value) (aj.Value, error) {
	p, err := params(args, kw, "value", "default_value", "boolean")
	if err != nil {
		return aj.Undefined(), err
	}
	if !p[0].IsUndefined() && (!p[2].IsTruthy() || p[0].IsTruthy()) {
		return p[0], nil
	}
	if len(args) < 2 && kw["default_value"].IsUndefined() {
		return aj.NewString(""), nil
	}
	return p[1], nil
}

func filterFirst(_ *run, args []aj.Value, _ map[string]aj.Value) (aj.Value, error) {
	items, err := iterate(args[0])
	if err != nil || len(items) == 0 {
		return aj.Undefined(), err
	}
	return items[0], nil
}

func filterLast(_ *run, args []aj.Value, _ map[string]aj.Value) (aj.Value, error) {
	items, err := iterate(args[0])
	if err != nil || len(items) == 0 {
		return aj.Undefined(), err
	}
	return items[len(items)-1], nil
}

func filterList(r *run, args []aj.Value, _ map[string]aj.Value) (aj.Value, error) {
	items, err := iterate(args[0])
	if err != nil {
		return aj.Undefined(), err
	}
	return aj.NewList(slices.Clone(items)), r.spend(len(items), 0)
}

func filterReverse(r *run, args []aj.Value, _ map[string]aj.Value) (aj.Value, error) {
	items, err := iterate(args[0])
	if err != nil {
		return aj.Undefined(), err
	}
	items = slices.Clone(items)
	slices.Reverse(items)
	if err := r.spend(len(items), 0); err != nil {
		return aj.Undefined(), err
	}
	if args[0].IsString() {
		return opCat(r, items, nil)
	}
	return aj.NewList(items), nil
}

func filterItems(r *run, args []aj.Value, _ map[string]aj.Value) (aj.Value, error) {
	v := args[0]
	if v.IsUndefined() {
		return aj.NewList(nil), nil
	}
	if !v.IsDict() {
		return v, raised("Can only get item pairs from a mapping.")
	}
	d := v.AsDict()
	items := make([]aj.Value, len(d.Keys))
	for i, k := range d.Keys {
		items[i] = r.tuple(aj.NewString(k), d.Data[k])
	}
	return aj.NewList(items), r.spend(len(items), 0)
}

func filterJoin(r *run, args []aj.Value, kw map[string]aj.Value) (aj.Value, error) {
	p, err := params(args, kw, "value", "d", "attribute")
	if err != nil {
		return aj.Undefined(), err
	}
	items, err := iterate(p[0])
	if err != nil {
		return aj.Undefined(), err
	}
	sep, err := r.str(p[1])
	if err != nil {
		return aj.Undefined(), err
	}
	parts := make([]string, len(items))
	n := 0
	for i, x := range items {
		if p[2].IsString() {
			if x, err = attribute(x, p[2].AsString()); err != nil {
				return aj.Undefined(), err
			}
		}
		if parts[i], err = r.str(x); err != nil {
			return aj.Undefined(), err
		}
		n += len(parts[i]) + len(sep)
	}
	if err := r.spend(len(items), n); err != nil {
		return aj.Undefined(), err
	}
	return aj.NewString(strings.Join(parts, sep)), nil
}

func filterReplace(r *run, args []aj.Value, kw map[string]aj.Value) (aj.Value, error) {
	p, err := params(args, kw, "s", "old", "new", "count")
	if err != nil {
		return aj.Undefined(), err
	}
	var text [3]string
	for i := range text {
		if text[i], err = r.str(p[i]); err != nil {
			return aj.Undefined(), err
		}
	}
	return replace(r, text[0], text[1], text[2], p[3])
}

func filterInt(_ *run, args []aj.Value, kw map[string]aj.Value) (aj.Value, error) {
	p, err := params(args, kw, "value", "default", "base")
	if err != nil {
		return aj.Undefined(), err
	}
	if i, ok := integer(p[0]); ok {
		return aj.NewInt(int64(i)), nil
	}
	if p[0].IsFloat() && math.Abs(p[0].AsFloat()) < 1<<53 {
		return aj.NewInt(int64(p[0].AsFloat())), nil
	}
	if p[0].IsString() && p[2].IsUndefined() {
		s := strings.TrimFunc(p[0].AsString(), isSpace)
		if i, err := strconv.ParseInt(s, 10, 64); err == nil {
			return aj.NewInt(i), nil
		}
	}
	return aj.Undefined(), unsupported("an int made of this value")
}

func filterFloat(_ *run, args []aj.Value, _ map[string]aj.Value) (aj.Value, error) {
	if f, ok := number(args[0]); ok && math.Abs(f) < 1<<53 {
		return aj.NewFloat(f), nil
	}
	return aj.Undefined(), unsupported("a float made of this value")
}

func filterAbs(_ *run, args []aj.Value, _ map[string]aj.Value) (aj.Value, error) {
	if args[0].IsFloat() {
		return aj.NewFloat(math.Abs(args[0].AsFloat())), nil
	}
	i, ok := integer(args[0])
	if !ok || i == math.MinInt64 {
		return aj.Undefined(), raised("bad operand type for abs(): '%s'", typeName(args[0]))
	}
	return aj.NewInt(max(int64(i), -int64(i))), nil
}

func filterRound(_ *run, args []aj.Value, kw map[string]aj.Value) (aj.Value, error) {
	p, err := params(args, kw, "value", "precision", "method")
	if err != nil {
		return aj.Undefined(), err
	}
	n, ok := integer(p[1])
	if !ok && !p[1].IsUndefined() || n < 0 || n > 300 || !p[2].IsUndefined() {
		return aj.Undefined(), unsupported("round of this form")
	}
	if i, ok := integer(p[0]); ok {
		return aj.NewInt(int64(i)), nil
	}
	if !p[0].IsFloat() {
		return aj.Undefined(), raised("type %s doesn't define __round__ method", typeName(p[0]))
	}
	f, err := strconv.ParseFloat(strconv.FormatFloat(p[0].AsFloat(), 'f', n, 64), 64)
	if err != nil {
		return aj.Undefined(), unsupported("round of this number")
	}
	return aj.NewFloat(f), nil
}

// filterFormat is printf with %s and %d only.
func filterFormat(r *run, args []aj.Value, kw map[string]aj.Value) (aj.Value, error) {
	format, err := r.str(args[0])
	if err != nil || len(kw) > 0 {
		return aj.Undefined(), unsupported("format with names")
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
			return aj.Undefined(), raised("not enough arguments for format string")
		}
		_, isInt := integer(rest[0])
		if verb != 's' && (verb != 'd' || !isInt || rest[0].IsBool()) {
			return aj.Undefined(), unsupported("format with %%%c", verb)
		}
		s, err := r.str(rest[0])
		if err != nil {
			return aj.Undefined(), err
		}
		b.WriteString(s)
		rest = rest[1:]
	}
	if len(rest) > 0 || strings.Contains(format, "%") {
		return aj.Undefined(), raised("not all arguments converted during string formatting")
	}
	b.WriteString(format)
	return aj.NewString(b.String()), r.spend(0, b.Len())
}

func filterTojson(r *run, args []aj.Value, kw map[string]aj.Value) (aj.Value, error) {
	p, err := params(args, kw, "x", "ensure_ascii", "indent", "separators", "sort_keys")
	if err != nil {
		return aj.Undefined(), err
	}
	e := jsonEncoder{run: r, ascii: p[1].IsTruthy(), item: ", ", key: ": ", sort: p[4].IsTruthy()}
	switch n, ok := integer(p[2]); {
	case ok:
		e.indented, e.indent = true, strings.Repeat(" ", min(max(n, 0), 64))
	case p[2].IsString():
		e.indented, e.indent = true, p[2].AsString()
	case !p[2].IsNone() && !p[2].IsUndefined():
		return aj.Undefined(), raised("indent must be a number or text")
	}
	if e.indented {
		e.item = ","
	}
	if s := p[3]; s.IsList() && s.AsList().Len() == 2 && s.AsList().Get(0).IsString() && s.AsList().Get(1).IsString() {
		e.item, e.key = s.AsList().Get(0).AsString(), s.AsList().Get(1).AsString()
	} else if !s.IsNone() && !s.IsUndefined() {
		return aj.Undefined(), raised("separators must be two texts")
	}
	if err := e.value(p[0], 0); err != nil {
		return aj.Undefined(), err
	}
	return aj.NewString(e.b.String()), r.spend(0, e.b.Len())
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
