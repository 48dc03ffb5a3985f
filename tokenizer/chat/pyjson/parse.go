package pyjson

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// Limits bound what a [Parser] builds. Zero fields mean no bound.
type Limits struct {
	Depth  int // lists and objects around a value
	Values int // values in all, kept ones only

	// Valid says that the input is known to be JSON: what a string must not
	// contain is then not looked for.
	Valid bool
}

// Parse reads one value that fills s but for white space.
func Parse(s string, l Limits) (Value, error) {
	p := NewParser(s, l)
	v, err := p.Value()
	if err != nil {
		return Value{}, err
	}
	return v, p.End()
}

// Parser reads s from front to back. After an error it is of no more use.
type Parser struct {
	s      string
	pos    int
	depth  int
	values int
	limits Limits
	quote  int             // where Valid: the next quote, unless it has been passed
	text   strings.Builder // strings that were escaped, one behind the other
}

// NewParser reads s, which must be valid UTF-8 for its strings to be.
func NewParser(s string, l Limits) *Parser {
	if l.Depth <= 0 {
		l.Depth = math.MaxInt
	}
	if l.Values <= 0 {
		l.Values = math.MaxInt
	}
	return &Parser{s: s, limits: l}
}

// End reports anything but white space that is left.
func (p *Parser) End() error {
	if p.space(); p.pos < len(p.s) {
		return p.fail("the end")
	}
	return nil
}

// Object reads an object and calls member for each key; member has to read
// the value, with Value or Skip.
func (p *Parser) Object(member func(key string) error) error {
	if err := p.open('{'); err != nil {
		return err
	}
	for first := true; ; first = false {
		key, ok, err := p.key(first)
		if err != nil || !ok {
			return err
		}
		if err := member(key); err != nil {
			return err
		}
	}
}

// open reads the bracket that begins a list or an object.
func (p *Parser) open(bracket byte) error {
	p.space()
	if !p.take(bracket) {
		return p.fail(string(bracket))
	}
	if p.depth++; p.depth > p.limits.Depth {
		return ErrDepth
	}
	return nil
}

// key reads the next key of an object and its colon; ok is false at its end.
func (p *Parser) key(first bool) (key string, ok bool, err error) {
	p.space()
	if p.take('}') {
		p.depth--
		return "", false, nil
	}
	if !first {
		if !p.take(',') {
			return "", false, p.fail(", or }")
		}
		p.space()
	}
	if p.pos >= len(p.s) || p.s[p.pos] != '"' {
		return "", false, p.fail("a key")
	}
	if key, err = p.string(true); err != nil {
		return "", false, err
	}
	if p.space(); !p.take(':') {
		return "", false, p.fail(":")
	}
	return key, true, nil
}

// Value reads the next value.
func (p *Parser) Value() (Value, error) { return p.value(true) }

// Skip reads over the next value and keeps nothing of it.
func (p *Parser) Skip() error {
	_, err := p.value(false)
	return err
}

func (p *Parser) value(keep bool) (Value, error) {
	if keep {
		if p.values++; p.values > p.limits.Values {
			return Value{}, ErrSize
		}
	}
	p.space()
	if p.pos >= len(p.s) {
		return Value{}, p.fail("a value")
	}
	switch c := p.s[p.pos]; c {
	case '"':
		s, err := p.string(keep)
		return NewString(s), err
	case '{':
		return p.dict(keep)
	case '[':
		return p.list(keep)
	case 't':
		return NewBool(true), p.word("true")
	case 'f':
		return NewBool(false), p.word("false")
	case 'n':
		return NewNull(), p.word("null")
	case 'N':
		return newFloat(math.NaN()), p.word("NaN")
	case 'I':
		return newFloat(math.Inf(1)), p.word("Infinity")
	default:
		if c == '-' && strings.HasPrefix(p.s[p.pos:], "-I") {
			return newFloat(math.Inf(-1)), p.word("-Infinity")
		}
		return p.number(keep)
	}
}

// dict reads an object. A key that occurs twice keeps its first place and gets
// its last value, as in a Python dict.
func (p *Parser) dict(keep bool) (Value, error) {
	if err := p.open('{'); err != nil {
		return Value{}, err
	}
	t := &tree{}
	var seen map[string]int // only for objects too large to look through
	for first := true; ; first = false {
		key, ok, err := p.key(first)
		if err != nil || !ok {
			return Value{kind: Dict, tree: t}, err
		}
		v, err := p.value(keep)
		if err != nil {
			return Value{}, err
		}
		if !keep {
			continue
		}
		if first {
			t.keys, t.items = make([]string, 0, 4), make([]Value, 0, 4)
		}
		if at := t.find(key, &seen); at >= 0 {
			t.items[at] = v
			continue
		}
		t.keys, t.items = append(t.keys, key), append(t.items, v)
	}
}

// find is the place of a key, or -1. Once there are many, it keeps them in
// seen, and takes key to be added if it is not there.
func (t *tree) find(key string, seen *map[string]int) int {
	const many = 32
	if len(t.keys) < many {
		return slices.Index(t.keys, key)
	}
	if *seen == nil {
		*seen = make(map[string]int, 2*many)
		for i, k := range t.keys {
			(*seen)[k] = i
		}
	}
	if at, ok := (*seen)[key]; ok {
		return at
	}
	(*seen)[key] = len(t.keys)
	return -1
}

func (p *Parser) list(keep bool) (Value, error) {
	if err := p.open('['); err != nil {
		return Value{}, err
	}
	t := &tree{}
	if p.space(); p.take(']') {
		p.depth--
		return Value{kind: List, tree: t}, nil
	}
	for {
		v, err := p.value(keep)
		if err != nil {
			return Value{}, err
		}
		if keep {
			t.items = append(t.items, v)
		}
		p.space()
		if p.take(']') {
			p.depth--
			return Value{kind: List, tree: t}, nil
		}
		if !p.take(',') {
			return Value{}, p.fail(", or ]")
		}
	}
}

// number reads a number: an integer unless it has a fraction or an exponent.
func (p *Parser) number(keep bool) (Value, error) {
	start := p.pos
	p.take('-')
	digits := p.digits()
	if digits == 0 || (digits > 1 && p.s[p.pos-digits] == '0') {
		p.pos = start
		return Value{}, p.fail("a value")
	}
	end := p.pos
	if p.take('.') {
		if p.digits() > 0 {
			end = p.pos
		}
	}
	// What does not continue the number is left for the caller to refuse.
	p.pos = end
	if p.take('e') || p.take('E') {
		if !p.take('+') {
			p.take('-')
		}
		if p.digits() > 0 {
			end = p.pos
		}
	}
	p.pos = end
	text := p.s[start:end]
	if !keep {
		return Value{}, nil
	}
	if strings.ContainsAny(text, ".eE") {
		// A number out of range is an infinity or zero, as in Python.
		f, _ := strconv.ParseFloat(text, 64)
		return newFloat(f), nil
	}
	i, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return Value{}, ErrBigInt
	}
	return Value{kind: Int, num: uint64(i)}, nil
}

func (p *Parser) digits() int {
	start := p.pos
	for p.pos < len(p.s) && p.s[p.pos] >= '0' && p.s[p.pos] <= '9' {
		p.pos++
	}
	return p.pos - start
}

func (p *Parser) word(w string) error {
	if !strings.HasPrefix(p.s[p.pos:], w) {
		return p.fail("a value")
	}
	p.pos += len(w)
	return nil
}

func (p *Parser) space() {
	for p.pos < len(p.s) {
		switch p.s[p.pos] {
		case ' ', '\t', '\n', '\r':
			p.pos++
		default:
			return
		}
	}
}

func (p *Parser) take(c byte) bool {
	if p.pos < len(p.s) && p.s[p.pos] == c {
		p.pos++
		return true
	}
	return false
}

func (p *Parser) fail(want string) error { return &SyntaxError{Offset: p.pos, Want: want} }
