package jinja

import (
	"math"
	"math/bits"
	"strings"
)

// arith is a op b on numbers.
func arith(op string, a, b val) (val, error) {
	x, okA := number(a)
	y, okB := number(b)
	if !okA || !okB {
		return val{}, raised("unsupported operand type(s) for %s: '%s' and '%s'", op, typeName(a), typeName(b))
	}
	if (op == "/" || op == "//" || op == "%") && y == 0 {
		return val{}, raised("division by zero")
	}
	if a.isFloat() || b.isFloat() || op == "/" {
		return arithFloat(op, x, y)
	}
	i, _ := integer(a)
	j, _ := integer(b)
	return arithInt(op, int64(i), int64(j))
}

func arithFloat(op string, x, y float64) (val, error) {
	switch op {
	case "+":
		return newFloat(x + y), nil
	case "-":
		return newFloat(x - y), nil
	case "*":
		return newFloat(x * y), nil
	case "/":
		return newFloat(x / y), nil
	}
	return val{}, unsupported("%s of floats", op)
}

func arithInt(op string, i, j int64) (val, error) {
	var n int64
	overflow := false
	switch op {
	case "+":
		n = i + j
		overflow = (n > i) != (j > 0) && j != 0
	case "-":
		n = i - j
		overflow = (n < i) != (j > 0) && j != 0
	case "*":
		n = i * j
		hi, lo := bits.Mul64(magnitude(i), magnitude(j))
		overflow = hi != 0 || lo > math.MaxInt64
	case "//", "%":
		if j == -1 {
			return arithInt("*", i, map[string]int64{"//": -1, "%": 0}[op])
		}
		q, m := i/j, i%j
		if m != 0 && (m < 0) != (j < 0) {
			q, m = q-1, m+j
		}
		n = q
		if op == "%" {
			n = m
		}
	default:
		return val{}, unsupported("the operator %s", op)
	}
	if overflow {
		return val{}, unsupported("a number of more than 64 bits")
	}
	return newInt(n), nil
}

func magnitude(i int64) uint64 {
	if i < 0 {
		return -uint64(i)
	}
	return uint64(i)
}

// opCompare is a op b for all but == and !=.
func opCompare(r *run, args []val, _ map[string]val) (val, error) {
	op, a, b := args[0].asString(), args[1], args[2]
	if op == "in" || op == "not in" {
		in, err := contains(r, b, a)
		return newBool(in == (op == "in")), err
	}
	c, err := order(a, b)
	return newBool(compared(op, c)), err
}

func compared(op string, c int) bool {
	switch op {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	default:
		return c >= 0
	}
}

// order compares two numbers or two strings.
func order(a, b val) (int, error) {
	if a.isString() && b.isString() {
		// The order of UTF-8 is the order of code points.
		return strings.Compare(a.asString(), b.asString()), nil
	}
	i, okA := integer(a)
	j, okB := integer(b)
	if okA && okB {
		switch {
		case i < j:
			return -1, nil
		case i > j:
			return 1, nil
		}
		return 0, nil
	}
	x, okA := number(a)
	y, okB := number(b)
	switch {
	case !okA || !okB:
		if a.isList() && b.isList() {
			return 0, unsupported("two lists are compared")
		}
		return 0, raised("'<' not supported between instances of '%s' and '%s'", typeName(a), typeName(b))
	case math.IsNaN(x) || math.IsNaN(y) || math.Abs(x) > 1<<53 || math.Abs(y) > 1<<53:
		return 0, unsupported("numbers of this size are compared")
	case x < y:
		return -1, nil
	case x > y:
		return 1, nil
	}
	return 0, nil
}

// contains is Python's x in v.
func contains(r *run, v, x val) (bool, error) {
	switch {
	case v.isString():
		if !x.isString() {
			return false, raised("'in <string>' requires string as left operand, not %s", typeName(x))
		}
		return strings.Contains(v.asString(), x.asString()), r.spend(0, len(v.asString()))
	case v.isDict():
		if x.isList() || x.isDict() {
			return false, raised("unhashable type: '%s'", typeName(x))
		}
		if !x.isString() {
			return false, nil
		}
		_, ok := v.asDict().get(x.asString())
		return ok, nil
	case v.isList():
		for _, item := range v.asList().items {
			if item.equals(x) {
				return true, nil
			}
		}
		return false, r.spend(len(v.asList().items)/4, 0)
	case v.isUndefined():
		return false, nil
	}
	return false, raised("argument of type '%s' is not iterable", typeName(v))
}

func opRange(r *run, args []val, _ map[string]val) (val, error) {
	var n [3]int
	for i, a := range args[:min(len(args), 3)] {
		var ok bool
		if n[i], ok = integer(a); !ok {
			return val{}, raised("'%s' object cannot be interpreted as an integer", typeName(a))
		}
	}
	lo, hi, step := 0, n[0], 1
	switch len(args) {
	case 1:
	case 2, 3:
		lo, hi = n[0], n[1]
		if len(args) == 3 {
			step = n[2]
		}
	default:
		return val{}, raised("range expected 1 to 3 arguments, got %d", len(args))
	}
	if step == 0 {
		return val{}, raised("range() arg 3 must not be zero")
	}
	var items []val
	for i := lo; (step > 0 && i < hi) || (step < 0 && i > hi); i += step {
		if len(items) == 100_000 {
			// The sandbox of Jinja refuses here, counting from 0.
			return val{}, raised("range too big")
		}
		items = append(items, newInt(int64(i)))
	}
	return newList(items), r.spend(len(items), 0)
}

func opRaise(r *run, args []val, _ map[string]val) (val, error) {
	if len(args) != 1 {
		return val{}, raised("raise_exception takes one argument")
	}
	text, err := r.str(args[0])
	if err != nil {
		return val{}, err
	}
	return val{}, &RaisedError{Why: text}
}
