package pyjson

import (
	"math"
	"strconv"
	"strings"
)

func newFloat(f float64) Value { return Value{kind: Float, num: math.Float64bits(f)} }

// NewFloat is a float: 1 is written 1.0.
func NewFloat(f float64) Value { return newFloat(f) }

// NewInt is an integer.
func NewInt(i int64) Value { return Value{kind: Int, num: uint64(i)} }

// Float is the number of a Float.
func (v Value) Float() float64 { return math.Float64frombits(v.num) }

// FormatFloat is Python's repr of a float: the shortest digits that read back
// as f, a ".0" for whole numbers, an exponent from 1e16 and below 1e-4.
func FormatFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	format := byte('f')
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		format = 'e'
	}
	s := strconv.FormatFloat(f, format, -1, 64)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return s
}

func itoa(n int) string { return strconv.Itoa(n) }
