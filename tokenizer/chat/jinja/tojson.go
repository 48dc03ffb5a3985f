package jinja

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// jsonEncoder writes what Python's json.dumps writes.
type jsonEncoder struct {
	b         strings.Builder
	run       *run
	item, key string // separators
	indented  bool
	indent    string
	ascii     bool
	sort      bool
}

func (e *jsonEncoder) value(v val, depth int) error {
	if depth > maxNesting {
		return unsupported("a value nested too deep")
	}
	if err := e.run.spend(1, 0); err != nil {
		return err
	}
	switch {
	case v.isNone():
		e.b.WriteString("null")
	case v.isBool():
		e.b.WriteString(strconv.FormatBool(v.asBool()))
	case v.isInt():
		var buf [20]byte
		e.b.Write(strconv.AppendInt(buf[:0], v.asInt(), 10))
	case v.isFloat():
		e.b.WriteString(floatJSON(v.asFloat()))
	case v.isString():
		e.string(v.asString())
	case v.isList():
		items := v.asList().items
		return e.container('[', ']', len(items), depth, func(i int) error {
			return e.value(items[i], depth+1)
		})
	case v.isDict():
		d := v.asDict()
		keys := d.keys
		if e.sort {
			keys = slices.Sorted(slices.Values(keys))
		}
		return e.container('{', '}', len(keys), depth, func(i int) error {
			e.string(keys[i])
			e.b.WriteString(e.key)
			item, _ := d.get(keys[i])
			return e.value(item, depth+1)
		})
	default:
		return raised("Object of type %s is not JSON serializable", typeName(v))
	}
	return nil
}

func (e *jsonEncoder) container(open, end byte, n, depth int, each func(i int) error) error {
	e.b.WriteByte(open)
	for i := range n {
		if i > 0 {
			e.b.WriteString(e.item)
		}
		e.newline(depth + 1)
		if err := each(i); err != nil {
			return err
		}
	}
	if n > 0 {
		e.newline(depth)
	}
	e.b.WriteByte(end)
	return nil
}

func (e *jsonEncoder) newline(depth int) {
	if e.indented {
		e.b.WriteByte('\n')
		for range depth {
			e.b.WriteString(e.indent)
		}
	}
}

func (e *jsonEncoder) string(s string) {
	e.b.WriteByte('"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' && (!e.ascii || c < 0x7f) {
			i++
			continue
		}
		e.b.WriteString(s[start:i])
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r >= 0x10000 {
				r -= 0x10000
				fmt.Fprintf(&e.b, `\u%04x`, 0xd800+r>>10)
				r = 0xdc00 + r&0x3ff
			}
			fmt.Fprintf(&e.b, `\u%04x`, r)
			i += n
		} else {
			if j := strings.IndexByte("\"\\\b\f\n\r\t", c); j >= 0 {
				e.b.WriteByte('\\')
				e.b.WriteByte(`"\bfnrt`[j])
			} else {
				fmt.Fprintf(&e.b, `\u%04x`, c)
			}
			i++
		}
		start = i
	}
	e.b.WriteString(s[start:])
	e.b.WriteByte('"')
}
