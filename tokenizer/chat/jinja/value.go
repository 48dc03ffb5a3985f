package jinja

import (
	"math"
	"slices"
)

// kind is what a val is.
type kind uint8

// The kinds of values. kindUndefined is the zero val.
const (
	kindUndefined kind = iota
	kindNone
	kindBool
	kindInt
	kindFloat
	kindString
	kindList
	kindDict
	kindNamespace // of namespace(): the only thing whose attributes a template can set
	kindCallable
)

// val is a value of a template: one of Python's, or Jinja's undefined. The zero
// val is undefined. Lists and dicts are references, as in Python.
type val struct {
	kind kind
	num  uint64 // a bool, int or float: its bits
	str  string
	ref  any // *list, *dict (a namespace, too) or *callable
}

// list is a list, or a tuple.
type list struct {
	items []val
	tuple bool
}

// callable is a function with a name for people.
type callable struct {
	name string
	fn   func(args []val, kw map[string]val) (val, error)
}

func newNone() val { return val{kind: kindNone} }

func newBool(b bool) val {
	v := val{kind: kindBool}
	if b {
		v.num = 1
	}
	return v
}

func newInt(n int64) val     { return val{kind: kindInt, num: uint64(n)} }
func newFloat(f float64) val { return val{kind: kindFloat, num: math.Float64bits(f)} }
func newString(s string) val { return val{kind: kindString, str: s} }

// newList makes a list of items, which it keeps.
func newList(items []val) val { return val{kind: kindList, ref: &list{items: items}} }

func newTuple(items ...val) val { return val{kind: kindList, ref: &list{items: items, tuple: true}} }

func newDict() val { return val{kind: kindDict, ref: &dict{}} }

func newCallable(name string, fn func(args []val, kw map[string]val) (val, error)) val {
	return val{kind: kindCallable, ref: &callable{name, fn}}
}

func (v val) isUndefined() bool { return v.kind == kindUndefined }
func (v val) isNone() bool      { return v.kind == kindNone }
func (v val) isBool() bool      { return v.kind == kindBool }
func (v val) isInt() bool       { return v.kind == kindInt }
func (v val) isFloat() bool     { return v.kind == kindFloat }
func (v val) isString() bool    { return v.kind == kindString }
func (v val) isList() bool      { return v.kind == kindList }
func (v val) isDict() bool      { return v.kind == kindDict }
func (v val) isNamespace() bool { return v.kind == kindNamespace }
func (v val) isCallable() bool  { return v.kind == kindCallable }

// The as methods give what a val of the kind holds, and panic for others: that
// ends a render as unsupported.

func (v val) asBool() bool          { return v.of(kindBool).num != 0 }
func (v val) asInt() int64          { return int64(v.of(kindInt).num) }
func (v val) asFloat() float64      { return math.Float64frombits(v.of(kindFloat).num) }
func (v val) asString() string      { return v.of(kindString).str }
func (v val) asList() *list         { return v.ref.(*list) }
func (v val) asDict() *dict         { return v.ref.(*dict) }
func (v val) asCallable() *callable { return v.ref.(*callable) }

func (v val) of(k kind) val {
	if v.kind != k {
		panic("a value of another kind")
	}
	return v
}

// truth is Python's bool(v).
func (v val) truth() bool {
	switch v.kind {
	case kindBool, kindInt:
		return v.num != 0
	case kindFloat:
		return v.asFloat() != 0
	case kindString:
		return v.str != ""
	case kindList:
		return len(v.asList().items) > 0
	case kindDict:
		return len(v.asDict().keys) > 0
	}
	return v.kind == kindNamespace || v.kind == kindCallable
}

// equals is Python's ==: 1 == 1.0 == True, and a list is no tuple.
func (v val) equals(o val) bool {
	if v.kind != o.kind {
		return v.isNumeric() && o.isNumeric() && equalNumbers(v, o)
	}
	switch v.kind {
	case kindFloat:
		return v.asFloat() == o.asFloat()
	case kindString:
		return v.str == o.str
	case kindList:
		a, b := v.asList(), o.asList()
		return a == b || a.tuple == b.tuple && slices.EqualFunc(a.items, b.items, val.equals)
	case kindDict:
		a, b := v.asDict(), o.asDict()
		return a == b || a.equals(b)
	case kindNamespace:
		return v.asDict() == o.asDict()
	case kindCallable:
		return false
	}
	return v.num == o.num
}

func (v val) isNumeric() bool { return v.kind == kindBool || v.kind == kindInt || v.kind == kindFloat }

// equalNumbers compares numbers of two kinds, without rounding integers.
func equalNumbers(a, b val) bool {
	if a.isFloat() {
		a, b = b, a
	}
	if !b.isFloat() {
		return a.num == b.num // a bool and an int
	}
	f := b.asFloat()
	return f >= -0x1p63 && f < 0x1p63 && math.Trunc(f) == f && int64(a.num) == int64(f)
}

// dict is a dict with texts for keys, in order.
type dict struct {
	keys  []string
	items []val
	index map[string]int // of keys, once there are many
}

// manyKeys is from how many keys on they are looked up in a map.
const manyKeys = 16

func (d *dict) find(key string) int {
	if len(d.keys) < manyKeys {
		return slices.Index(d.keys, key)
	}
	if d.index == nil {
		d.index = make(map[string]int, 2*len(d.keys))
		for i, k := range d.keys {
			d.index[k] = i
		}
	}
	if i, ok := d.index[key]; ok {
		return i
	}
	return -1
}

// get returns the value of a key; undefined and false if there is none.
func (d *dict) get(key string) (val, bool) {
	if i := d.find(key); i >= 0 {
		return d.items[i], true
	}
	return val{}, false
}

// set gives a key a value; a new one is the last.
func (d *dict) set(key string, v val) {
	if i := d.find(key); i >= 0 {
		d.items[i] = v
		return
	}
	if d.index != nil {
		d.index[key] = len(d.keys)
	}
	d.keys, d.items = append(d.keys, key), append(d.items, v)
}

func (d *dict) equals(o *dict) bool {
	if len(d.keys) != len(o.keys) {
		return false
	}
	for i, k := range d.keys {
		if v, ok := o.get(k); !ok || !d.items[i].equals(v) {
			return false
		}
	}
	return true
}
