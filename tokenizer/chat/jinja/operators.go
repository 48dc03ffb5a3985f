package jinja

import (
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// operators are what expressions and statements compile to.
var operators = map[string]function{
	"iter":            opIter,
	"pairs":           opPairs,
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

func opCat(r *run, args []val, _ map[string]val) (val, error) {
	text, err := join(r, args)
	return newString(text), err
}

func opTuple(r *run, args []val, _ map[string]val) (val, error) {
	return newTuple(slices.Clone(args)...), nil
}

func join(r *run, args []val) (string, error) {
	if len(args) == 1 && args[0].isString() {
		s := args[0].asString()
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

// loopCost is what one round of a loop costs.
const loopCost = 10

func opIter(r *run, args []val, _ map[string]val) (val, error) {
	items, err := iterate(args[0])
	if err != nil {
		return val{}, err
	}
	if args[0].isList() {
		return args[0], r.spend(len(items)*loopCost, 0)
	}
	return newList(items), r.spend(len(items)*loopCost, 0)
}

// opPairs is opIter for loops that take every item apart in two.
func opPairs(r *run, args []val, _ map[string]val) (val, error) {
	items, err := iterate(args[0])
	if err != nil {
		return val{}, err
	}
	for _, x := range items {
		two, err := iterate(x)
		if err != nil {
			return val{}, err
		}
		if len(two) != 2 || x.isUndefined() {
			return val{}, raised("an item of a loop has not two values to unpack")
		}
	}
	return newList(items), r.spend(len(items)*loopCost, 0)
}

// opItem is a[b] where b is not a plain key.
func opItem(r *run, args []val, _ map[string]val) (val, error) {
	v, key := args[0], args[1]
	i, isInt := integer(key)
	switch {
	case v.isUndefined():
		return v, raised("an item of an undefined value")
	case v.isDict() && key.isString():
		if x, ok := v.asDict().get(key.asString()); ok {
			return x, nil
		}
		// Jinja looks for an attribute then, and finds the method.
		if dictMethods[key.asString()] {
			return newCallable(key.asString(), func([]val, map[string]val) (val, error) {
				return val{}, unsupported("a method taken by subscript is called")
			}), nil
		}
	case v.isNamespace() && key.isString():
		x, _ := v.asDict().get(key.asString())
		return x, nil
	case v.isList() && isInt:
		items := v.asList().items
		if i < 0 {
			i += len(items)
		}
		if i >= 0 && i < len(items) {
			return items[i], nil
		}
	case v.isString() && isInt:
		return charAt(r, v.asString(), i)
	}
	return val{}, nil
}

func charAt(r *run, s string, i int) (val, error) {
	if i < 0 {
		for ; i < -1 && s != ""; i++ {
			_, n := utf8.DecodeLastRuneInString(s)
			s = s[:len(s)-n]
			r.work--
		}
		if s == "" {
			return val{}, nil
		}
		_, n := utf8.DecodeLastRuneInString(s)
		return newString(s[len(s)-n:]), nil
	}
	for ; i > 0 && s != ""; i-- {
		_, n := utf8.DecodeRuneInString(s)
		s = s[n:]
		r.work--
	}
	if s == "" {
		return val{}, nil
	}
	_, n := utf8.DecodeRuneInString(s)
	return newString(s[:n]), nil
}

// opSlice is a[lo:hi:step] on a list or a string.
func opSlice(r *run, args []val, _ map[string]val) (val, error) {
	v := args[0]
	if v.isUndefined() {
		return v, raised("a slice of an undefined value")
	}
	if !v.isList() && !v.isString() {
		// Jinja takes the TypeError for a missing item.
		return val{}, nil
	}
	bounds := [3]int{0, 0, 1}
	var given [3]bool
	for i, b := range args[1:] {
		if b.isNone() {
			continue
		}
		n, ok := integer(b)
		if !ok {
			return val{}, raised("slice indices must be integers or None")
		}
		bounds[i], given[i] = n, true
	}
	if bounds[2] == 0 {
		return val{}, raised("slice step cannot be zero")
	}
	var items []val
	var runes []rune
	var n int
	if v.isList() {
		items = v.asList().items
		n = len(items)
	} else {
		runes = []rune(v.asString())
		n = len(runes)
	}
	lo, hi, step := resolve(bounds, given, n)
	if err := r.spend(n/4, 0); err != nil {
		return val{}, err
	}
	if v.isList() {
		part := newList(pick(items, lo, hi, step))
		part.asList().tuple = v.asList().tuple
		return part, nil
	}
	return newString(string(pick(runes, lo, hi, step))), nil
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
	to := make([]T, 0, max(0, (hi-lo)/step+1))
	for i := lo; (step > 0 && i < hi) || (step < 0 && i > hi); i += step {
		to = append(to, from[i])
	}
	return to
}

// opAdd is a + b + ...
func opAdd(r *run, args []val, kw map[string]val) (val, error) {
	if !slices.ContainsFunc(args, func(v val) bool { return !v.isString() }) {
		return opCat(r, args, kw)
	}
	sum := args[0]
	for _, x := range args[1:] {
		var err error
		if sum, err = add(r, sum, x); err != nil {
			return val{}, err
		}
	}
	return sum, nil
}

func add(r *run, a, b val) (val, error) {
	switch {
	case a.isCallable() || b.isCallable():
		return addMarkup(r, a, b)
	case a.isString() && b.isString():
		return opCat(r, []val{a, b}, nil)
	case a.isList() && b.isList():
		if a.asList().tuple != b.asList().tuple {
			return val{}, raised("can only concatenate list to list")
		}
		sum := newList(slices.Concat(a.asList().items, b.asList().items))
		sum.asList().tuple = a.asList().tuple
		return sum, r.spend(len(sum.asList().items), 0)
	}
	return arith("+", a, b)
}

func opSign(_ *run, args []val, _ map[string]val) (val, error) {
	v := args[1]
	if v.isFloat() && args[0].asString() == "-" {
		return newFloat(-v.asFloat()), nil
	}
	i, ok := integer(v)
	if !ok && !v.isFloat() {
		return v, raised("bad operand type for unary: '%s'", typeName(v))
	}
	if v.isFloat() {
		return v, nil
	}
	if args[0].asString() == "-" {
		if i == math.MinInt64 {
			return v, unsupported("a number of more than 64 bits")
		}
		i = -i
	}
	return newInt(int64(i)), nil
}

func opArith(r *run, args []val, _ map[string]val) (val, error) {
	op, a, b := args[0].asString(), args[1], args[2]
	if op == "*" {
		if _, ok := integer(a); ok && (b.isString() || b.isList()) {
			a, b = b, a
		}
		if n, ok := integer(b); ok && (a.isString() || a.isList()) {
			return repeat(r, a, max(n, 0))
		}
	}
	if op == "%" && a.isString() {
		return a, unsupported("text formatted with %%")
	}
	return arith(op, a, b)
}

func repeat(r *run, v val, n int) (val, error) {
	if v.isString() {
		s := v.asString()
		if len(s) > 0 && n > r.output/len(s) {
			return v, unsupported("the text is longer than allowed")
		}
		return newString(strings.Repeat(s, n)), r.spend(0, n*len(s))
	}
	items := v.asList().items
	if len(items) > 0 && n > r.work/len(items) {
		return v, unsupported("rendering costs more than allowed")
	}
	return newList(slices.Repeat(items, n)), r.spend(n*len(items), 0)
}
