package jinja

import (
	"math"
	"math/bits"
	"strings"

	aj "github.com/ardanlabs/jinja"
)

// arith is a op b on numbers.
func arith(op string, a, b aj.Value) (aj.Value, error) {
	x, okA := number(a)
	y, okB := number(b)
	if !okA || !okB {
		return aj.Undefined(), raised("unsupported operand type(s) for %s: '%s' and '%s'", op, typeName(a), typeName(b))
	}
	if (op == "/" || op == "//" || op == "%") && y == 0 {
		return aj.Undefined(), raised("division by zero")
	}
	if a.IsFloat() || b.IsFloat() || op == "/" {
		return arithFloat(op, x, y)
	}
	i, _ := integer(a)
	j, _ := integer(b)
	return arithInt(op, int64(i), int64(j))
}

func arithFloat(op string, x, y float64) (aj.Value, error) {
	switch op {
	case "+":
		return aj.NewFloat(x + y), nil
	case "-":
		return aj.NewFloat(x - y), nil
	case "*":
		return aj.NewFloat(x * y), nil
	case "/":
		return aj.NewFloat(x / y), nil
	}
	return aj.Undefined(), unsupported("%s of floats", op)
}

func arithInt(op string, i, j int64) (aj.Value, error) {
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
		return aj.Undefined(), unsupported("the operator %s", op)
	}
	if overflow {
		return aj.Undefined(), unsupported("a number of more than 64 bits")
	}
	return aj.NewInt(n), nil
}

func magnitude(i int64) uint64 {
	if i < 0 {
		return -uint64(i)
	}
	return uint64(i)
}

// opCompare is a op b for all but == and !=.
func opCompare(r *run, args []aj.Value, _ map[string]aj.Value) (aj.Value, error) {
	op, a, b := args[0].AsString(), args[1], args[2]
	if op == "in" || op == "not in" {
		in, err := contains(r, b, a)
		return aj.NewBool(in == (op == "in")), err
	}
	c, err := order(a, b)
	return aj.NewBool(compared(op, c)), err
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
func order(a, b aj.Value) (int, error) {
	if a.IsString() && b.IsString() {
		// The order of UTF-8 is the order of code points.
		return strings.Compare(a.AsString(), b.AsString()), nil
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
		if a.IsList() && b.IsList() {
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
func contains(r *run, v, x aj.Value) (bool, error) {
	switch {
	case v.IsString():
		if !x.IsString() {
			return false, raised("'in <string>' requires string as left operand, not %s", typeName(x))
		}
		return strings.Contains(v.AsString(), x.AsString()), r.spend(0, len(v.AsString()))
	case v.IsDict():
		if x.IsList() || x.IsDict() {
			return false, raised("unhashable type: '%s'", typeName(x))
		}
		return x.IsString() && v.AsDict().Has(x.AsString()), nil
	case v.IsList():
		for _, item := range v.AsList().Items {
			if item.Equals(x) {
				return true, nil
			}
		}
		return false, r.spend(v.AsList().Len()/4, 0)
	case v.IsUndefined():
		return false, nil
	}
	return false, raised("argument of type '%s' is not iterable", typeName(v))
}

func opRange(r *run, args []aj.Value, _ map[string]aj.Value) (aj.Value, error) {
	var n [3]int
	for i, a := range args[:min(len(args), 3)] {
		var ok bool
		if n[i], ok = integer(a); !ok {
			return aj.Undefined(), raised("'%s' object cannot be interpreted as an integer", typeName(a))
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
		return aj.Undefined(), raised("range expected 1 to 3 arguments, got %d", len(args))
	}
	if step == 0 {
		return aj.Undefined(), raised("range() arg 3 must not be zero")
	}
	var items []aj.Value
	for i := lo; (step > 0 && i < hi) || (step < 0 && i > hi); i += step {
		if len(items) == 100_000 {
			// The sandbox of Jinja refuses here, counting from 0.
			return aj.Undefined(), raised("range too big")
		}
		items = append(items, aj.NewInt(int64(i)))
	}
	return aj.NewList(items), r.spend(len(items), 0)
}

func opRaise(r *run, args []aj.Value, _ map[string]aj.Value) (aj.Value, error) {
	if len(args) != 1 {
		return aj.Undefined(), raised("raise_exception takes one argument")
	}
	text, err := r.str(args[0])
	if err != nil {
		return aj.Undefined(), err
	}
	return aj.Undefined(), &RaisedError{Why: text}
}
