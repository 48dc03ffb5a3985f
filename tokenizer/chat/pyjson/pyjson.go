// Package pyjson reads JSON the way Python's json.loads does, and keeps what
// Go's own decoders throw away: the order of the keys, and whether a number
// was written as an integer or as a float.
//
// An engine puts what a client sent through json.loads, validates it and hands
// it to a chat template, which may write it out again. A prompt is then exact
// only if 14.0 is still 14.0, a repeated key has kept its first place and its
// last value, and NaN, which is no JSON, is still NaN. Dialect:
//
//   - NaN, Infinity and -Infinity are numbers; 1e400 is Infinity;
//   - control characters in strings are errors, every other byte must be UTF-8;
//   - a lone surrogate (\ud800) is a string for Python, but one that no
//     tokenizer takes: [ErrSurrogate];
//   - an integer that 64 bits do not hold, which Python keeps, is [ErrBigInt].
//
// Values are trees without maps. Strings without escapes are slices of the
// input, so that a parsed request costs little more than its text, and keeps
// all of it alive.
package pyjson

import "errors"

// Errors of [Parse] and [Parser] other than a [*SyntaxError].
var (
	// ErrSurrogate says that a string holds half of a UTF-16 pair.
	ErrSurrogate = errors.New("a string has a lone surrogate")
	// ErrBigInt says that an integer needs more than 64 bits.
	ErrBigInt = errors.New("an integer needs more than 64 bits")
	// ErrDepth says that lists and objects are nested deeper than allowed.
	ErrDepth = errors.New("nested too deep")
	// ErrSize says that there are more values than allowed.
	ErrSize = errors.New("too many values")
)

// SyntaxError says where the input stops being JSON.
type SyntaxError struct {
	Offset int    // in bytes
	Want   string // what should have stood there
}

func (e *SyntaxError) Error() string { return "expected " + e.Want + " at byte " + itoa(e.Offset) }

// Kind is what a [Value] is.
type Kind uint8

// The kinds of values. Absent is the zero Value: a key that is not there.
const (
	Absent Kind = iota
	Null
	Bool
	Int
	Float
	String
	List
	Dict
)

// Value is one JSON value. The zero Value is Absent. It must not be changed
// once others may read it.
type Value struct {
	kind Kind
	num  uint64 // Bool, Int, Float: its bits
	str  string
	tree *tree // List, Dict
}

// tree holds the values of a list, or the members of an object in order.
type tree struct {
	keys  []string // nil for a list
	items []Value
}

// NewNull is null.
func NewNull() Value { return Value{kind: Null} }

// NewBool is true or false.
func NewBool(b bool) Value {
	v := Value{kind: Bool}
	if b {
		v.num = 1
	}
	return v
}

// NewString is a string.
func NewString(s string) Value { return Value{kind: String, str: s} }

// NewList is a list of these items, which it keeps.
func NewList(items ...Value) Value { return Value{kind: List, tree: &tree{items: items}} }

// NewDict is an object with these members, which it keeps; the two are of one
// length, and no key occurs twice.
func NewDict(keys []string, items []Value) Value {
	return Value{kind: Dict, tree: &tree{keys: keys, items: items}}
}

// Kind says what the value is.
func (v Value) Kind() Kind { return v.kind }

// IsNone reports whether the value is null or absent: Python's None.
func (v Value) IsNone() bool { return v.kind <= Null }

// IsTrue reports whether the value is the boolean true.
func (v Value) IsTrue() bool { return v.kind == Bool && v.num != 0 }

// Truth is Python's bool(v).
func (v Value) Truth() bool {
	switch v.kind {
	case Bool, Int:
		return v.num != 0
	case Float:
		return v.Float() != 0
	case String:
		return v.str != ""
	case List, Dict:
		return len(v.tree.items) > 0
	default:
		return false
	}
}

// Str is the text of a string, and "" for everything else.
func (v Value) Str() string { return v.str }

// Int is the number of an Int.
func (v Value) Int() int64 { return int64(v.num) }

// Items are the values of a list or of an object, to be read only.
func (v Value) Items() []Value {
	if v.tree == nil {
		return nil
	}
	return v.tree.items
}

// Keys are the keys of an object in order, to be read only.
func (v Value) Keys() []string {
	if v.tree == nil {
		return nil
	}
	return v.tree.keys
}

// Len is the number of items of a list or of an object.
func (v Value) Len() int { return len(v.Items()) }

// Get is the value of a key of an object, or Absent.
func (v Value) Get(key string) Value {
	if v.kind != Dict {
		return Value{}
	}
	for i, k := range v.tree.keys {
		if k == key {
			return v.tree.items[i]
		}
	}
	return Value{}
}
