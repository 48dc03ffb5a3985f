package jinja

import (
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	aj "github.com/ardanlabs/jinja"
)

// operators are what expressions and statements compile to.
var operators = map[string]function{
	"out":             opOut,
	"print":           opPrint,
	"printsum":        opPrintSum,
	"iter":            opIter,
	"pairs":           opPairs,
	"enter":           opEnter,
	"leave":           opLeave,
	"generation":      opGeneration,
	"item":            opItem,
	"slice":           opSlice,
	"add":             opAdd,
	"cat":             opCat,
	"tuple":           opTuple,
	"sign":            opSign,
	"arith":           opArith,
	"compare":         opCompare,
	"test":            opTest,
	"range":           opRange,
	"raise_exception": opRaise,
	"strftime_now":    opStrftime,
}

// opPrint adds to the text of the chat.
func opPrint(r *run, args []aj.Value, _ map[string]aj.Value) (aj.Value, error) {
	for _, v := range args {
		s, err := r.str(v)
		if err != nil {
			return aj.Undefined(), err
		}
		if r.output -= len(s); r.output < 0 {
			return aj.Undefined(), unsupported("the text is longer than allowed")
		}
		if err := r.spend(1, len(s)); err != nil {
			return aj.Undefined(), err
		}
		r.text.WriteString(s)
	}
	return aj.Undefined(), nil
}

// opPrintSum prints a + b + ...
func opPrintSum(r *run, args []aj.Value, kw map[string]aj.Value) (aj.Value, error) {
	if slices.ContainsFunc(args, func(v aj.Value) bool { return !v.IsString() }) {
		sum, err := opAdd(r, args, kw)
		if err != nil {
			return aj.Undefined(), err
		}
		args = []aj.Value{sum}
	}
	return opPrint(r, args, kw)
}

// opOut is the text of what is printed in one go inside a macro or a block.
func opOut(r *run, args []aj.Value, _ map[string]aj.Value) (aj.Value, error) {
	text, err := join(r, args)
	if err != nil {
		return aj.Undefined(), err
	}
	if r.output -= len(text); r.output < 0 {
		return aj.Undefined(), unsupported("the text is longer than allowed")
	}
	return aj.NewString(text), nil
}

func opCat(r *run, args []aj.Value, _ map[string]aj.Value) (aj.Value, error) {
	text, err := join(r, args)
	return aj.NewString(text), err
}

func opTuple(r *run, args []aj.Value, _ map[string]aj.Value) (aj.Value, error) {
	return r.tuple(args...), nil
}

func join(r *run, args []aj.Value) (string, error) {
	if len(args) == 1 && args[0].IsString() {
		s := args[0].AsString()
		return s, r.spend(0, len(s))
	}
	var small [8]string
	parts := small[:0]
	n := 0
	for _, v := range args {
		s, err := r.str(v)
		if err != nil {
			return "", err
		}
		parts = append(parts, s)
		n += len(s)
	}
	if n > r.output {
		return "", unsupported("the text is longer than allowed")
	}
	if err := r.spend(len(args), n); err != nil {
		return "", err
	}
	return strings.Join(parts, ""), nil
}

// loopCost is what one round of a loop costs: the library makes half a dozen
// values for each.
const loopCost = 10

func opIter(r *run, args []aj.Value, _ map[string]aj.Value) (aj.Value, error) {
	items, err := iterate(args[0])
	if err != nil {
		return aj.Undefined(), err
	}
	if args[0].IsList() {
		return args[0], r.spend(len(items)*loopCost, 0)
	}
	return aj.NewList(items), r.spend(len(items)*loopCost, 0)
}

// opPairs is opIter for loops that take every item apart in two.
func opPairs(r *run, args []aj.Value, _ map[string]aj.Value) (aj.Value, error) {
	items, err := iterate(args[0])
	if err != nil {
		return aj.Undefined(), err
	}
	pairs := make([]aj.Value, len(items))
	for i, x := range items {
		two, err := iterate(x)
		if err != nil {
			return aj.Undefined(), err
		}
		if len(two) != 2 || x.IsUndefined() {
			return aj.Undefined(), raised("an item of a loop has not two values to unpack")
		}
		pairs[i] = aj.NewList(two)
	}
	return aj.NewList(pairs), r.spend(len(items)*loopCost, 0)
}

func opEnter(r *run, _ []aj.Value, _ map[string]aj.Value) (aj.Value, error) {
	if r.depth++; r.depth > maxNesting {
		return aj.Undefined(), unsupported("macros call one another too deep")
	}
	return aj.NewString(""), nil
}

func opLeave(r *run, _ []aj.Value, _ map[string]aj.Value) (aj.Value, error) {
	r.depth--
	return aj.NewString(""), nil
}

func opGeneration(_ *run, _ []aj.Value, kw map[string]aj.Value) (aj.Value, error) {
	return kw["caller"].AsCallable().Fn(nil, nil)
}

// opItem is a[b] where b is not a plain key.
func opItem(r *run, args []aj.Value, _ map[string]aj.Value) (aj.Value, error) {
	v, key := args[0], args[1]
	i, isInt := integer(key)
	switch {
	case v.IsUndefined():
		return v, raised("an item of an undefined value")
	case v.IsDict() && key.IsString():
		if x, ok := v.AsDict().Get(key.AsString()); ok {
			return x, nil
		}
		// Jinja looks for an attribute then, and finds the method.
		if dictMethods[key.AsString()] {
			return aj.NewCallable(key.AsString(), func([]aj.Value, map[string]aj.Value) (aj.Value, error) {
				return aj.Undefined(), unsupported("a method taken by subscript is called")
			}), nil
		}
	case v.IsList() && isInt:
		items := v.AsList().Items
		if i < 0 {
			i += len(items)
		}
		if i >= 0 && i < len(items) {
			return items[i], nil
		}
	case v.IsString() && isInt:
		return charAt(r, v.AsString(), i)
	}
	return aj.Undefined(), nil
}

func charAt(r *run, s string, i int) (aj.Value, error) {
	if i < 0 {
		for ; i < -1 && s != ""; i++ {
			_, n := utf8.DecodeLastRuneInString(s)
			s = s[:len(s)-n]
			r.work--
		}
		if s == "" {
			return aj.Undefined(), nil
		}
		_, n := utf8.DecodeLastRuneInString(s)
		return aj.NewString(s[len(s)-n:]), nil
	}
	for ; i > 0 && s != ""; i-- {
		_, n := utf8.DecodeRuneInString(s)
		s = s[n:]
		r.work--
	}
	if s == "" {
		return aj.Undefined(), nil
	}
	_, n := utf8.DecodeRuneInString(s)
	return aj.NewString(s[:n]), nil
}

// opSlice is a[lo:hi:step] on a list or a string.
func opSlice(r *run, args []aj.Value, _ map[string]aj.Value) (aj.Value, error) {
	v := args[0]
	if v.IsUndefined() {
		return v, raised("a slice of an undefined value")
	}
	if !v.IsList() && !v.IsString() {
		// Jinja takes the TypeError for a missing item.
		return aj.Undefined(), nil
	}
	bounds := [3]int{0, 0, 1}
	var given [3]bool
	for i, b := range args[1:] {
		if b.IsNone() {
			continue
		}
		n, ok := integer(b)
		if !ok {
			return aj.Undefined(), raised("slice indices must be integers or None")
		}
		bounds[i], given[i] = n, true
	}
	if bounds[2] == 0 {
		return aj.Undefined(), raised("slice step cannot be zero")
	}
	var items []aj.Value
	var runes []rune
	var n int
	if v.IsList() {
		items = v.AsList().Items
		n = len(items)
	} else {
		runes = []rune(v.AsString())
		n = len(runes)
	}
	lo, hi, step := resolve(bounds, given, n)
	if err := r.spend(n/4, 0); err != nil {
		return aj.Undefined(), err
	}
	if v.IsList() {
		return aj.NewList(pick(items, lo, hi, step)), nil
	}
	return aj.NewString(string(pick(runes, lo, hi, step))), nil
}

// resolve is Python's slice.indices(n).
func resolve(b [3]int, given [3]bool, n int) (lo, hi, step int) {
	step = b[2]
	low, high := 0, n
	lo, hi = 0, n
	if step < 0 {
		low, high = -1, n-1
		lo, hi = n-1, -1
	}
	for i, at := range []*int{&lo, &hi} {
		if given[i] {
			x := b[i]
			if x < 0 {
				x += n
			}
			*at = min(max(x, low), high)
		}
	}
	return lo, hi, step
}

func pick[T any](from []T, lo, hi, step int) []T {
	if step == 1 {
		if lo >= hi {
			return nil
		}
		return slices.Clone(from[lo:hi])
	}
	var to []T
	for i := lo; (step > 0 && i < hi) || (step < 0 && i > hi); i += step {
		to = append(to, from[i])
	}
	return to
}

// opAdd is a + b + ...
func opAdd(r *run, args []aj.Value, kw map[string]aj.Value) (aj.Value, error) {
	if !slices.ContainsFunc(args, func(v aj.Value) bool { return !v.IsString() }) {
		return opCat(r, args, kw)
	}
	sum := args[0]
	for _, x := range args[1:] {
		var err error
		if sum, err = add(r, sum, x); err != nil {
			return aj.Undefined(), err
		}
	}
	return sum, nil
}

func add(r *run, a, b aj.Value) (aj.Value, error) {
	switch {
	case a.IsCallable() || b.IsCallable():
		return addMarkup(r, a, b)
	case a.IsString() && b.IsString():
		return opCat(r, []aj.Value{a, b}, nil)
	case a.IsList() && b.IsList():
		if r.tuples[a.AsList()] != r.tuples[b.AsList()] {
			return aj.Undefined(), raised("can only concatenate list to list")
		}
		items := slices.Concat(a.AsList().Items, b.AsList().Items)
		return aj.NewList(items), r.spend(len(items), 0)
	}
	return arith("+", a, b)
}

func opSign(_ *run, args []aj.Value, _ map[string]aj.Value) (aj.Value, error) {
	v := args[1]
	if v.IsFloat() && args[0].AsString() == "-" {
		return aj.NewFloat(-v.AsFloat()), nil
	}
	i, ok := integer(v)
	if !ok && !v.IsFloat() {
		return v, raised("bad operand type for unary: '%s'", typeName(v))
	}
	if v.IsFloat() {
		return v, nil
	}
	if args[0].AsString() == "-" {
		if i == math.MinInt64 {
			return v, unsupported("a number of more than 64 bits")
		}
		i = -i
	}
	return aj.NewInt(int64(i)), nil
}

func opArith(r *run, args []aj.Value, _ map[string]aj.Value) (aj.Value, error) {
	op, a, b := args[0].AsString(), args[1], args[2]
	if op == "*" {
		if _, ok := integer(a); ok && (b.IsString() || b.IsList()) {
			a, b = b, a
		}
		if n, ok := integer(b); ok && (a.IsString() || a.IsList()) {
			return repeat(r, a, max(n, 0))
		}
	}
	if op == "%" && a.IsString() {
		return a, unsupported("text formatted with %%")
	}
	return arith(op, a, b)
}

func repeat(r *run, v aj.Value, n int) (aj.Value, error) {
	if v.IsString() {
		s := v.AsString()
		if len(s) > 0 && n > r.output/len(s) {
			return v, unsupported("the text is longer than allowed")
		}
		return aj.NewString(strings.Repeat(s, n)), r.spend(0, n*len(s))
	}
	items := v.AsList().Items
	if len(items) > 0 && n > r.work/len(items) {
		return v, unsupported("rendering costs more than allowed")
	}
	return aj.NewList(slices.Repeat(items, n)), r.spend(n*len(items), 0)
}
