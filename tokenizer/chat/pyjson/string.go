package pyjson

import (
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// string reads a string that begins here: a slice of the input if nothing in
// it is escaped.
func (p *Parser) string(keep bool) (string, error) {
	p.pos++
	raw := p.s[p.pos:]
	end, escaped := closing(raw)
	if end < 0 {
		p.pos = len(p.s)
		return "", p.fail(`"`)
	}
	raw = raw[:end]
	if i := control(raw); i >= 0 {
		p.pos += i
		return "", p.fail("no control character")
	}
	if !escaped {
		p.pos += end + 1
		return raw, nil
	}
	return p.unescape(raw, keep)
}

// closing is the place of the quote that ends a string, or -1, and whether
// there is a backslash before it.
func closing(s string) (end int, escaped bool) {
	for end = 0; ; end++ {
		i := strings.IndexByte(s[end:], '"')
		if i < 0 {
			return -1, false
		}
		end += i
		n := 0
		for n < end && s[end-1-n] == '\\' {
			n++
		}
		if n%2 == 0 {
			return end, strings.IndexByte(s[:end], '\\') >= 0
		}
	}
}

// unescape reads the inside of a string; the parser stands at its front.
func (p *Parser) unescape(raw string, keep bool) (string, error) {
	var b strings.Builder
	if keep {
		if text, ok := simple(raw); ok {
			p.pos += len(raw) + 1
			return text, nil
		}
		b.Grow(len(raw))
	}
	lone := false
	for i := 0; ; {
		n := strings.IndexByte(raw[i:], '\\')
		if n < 0 {
			if keep {
				b.WriteString(raw[i:])
			}
			break
		}
		r, width := escape(raw[i+n:])
		if width == 0 {
			p.pos += i + n
			return "", p.fail("an escape")
		}
		if keep {
			b.WriteString(raw[i : i+n])
			b.WriteRune(r)
			lone = lone || utf16.IsSurrogate(r)
		}
		i += n + width
	}
	if lone {
		return "", ErrSurrogate
	}
	p.pos += len(raw) + 1
	return b.String(), nil
}

// escape reads the escape at the front of s, a pair of them if they form one
// character, and says how long it is: 0 if it is none.
func escape(s string) (r rune, n int) {
	if len(s) < 2 {
		return 0, 0
	}
	if i := strings.IndexByte(`"\/bfnrt`, s[1]); i >= 0 {
		return rune("\"\\/\b\f\n\r\t"[i]), 2
	}
	r = hex4(s)
	if r < 0 {
		return 0, 0
	}
	if utf16.IsSurrogate(r) && len(s) > 6 {
		if both := utf16.DecodeRune(r, hex4(s[6:])); both != utf8.RuneError {
			return both, 12
		}
	}
	return r, 6
}

// hex4 is the number of a \uXXXX at the front of s, or -1.
func hex4(s string) rune {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return -1
	}
	var r rune
	for _, c := range []byte(s[2:6]) {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// control is the place of the first control character in s, or -1. It looks at
// eight bytes at a time: this is most of what reading a long chat takes.
func control(s string) int {
	const ones = 0x0101010101010101
	i := 0
	for ; i+8 <= len(s); i += 8 {
		w := uint64(s[i]) | uint64(s[i+1])<<8 | uint64(s[i+2])<<16 | uint64(s[i+3])<<24 |
			uint64(s[i+4])<<32 | uint64(s[i+5])<<40 | uint64(s[i+6])<<48 | uint64(s[i+7])<<56
		if (w-0x20*ones)&^w&(0x80*ones) != 0 { // some byte is below 0x20
			break
		}
	}
	for ; i < len(s); i++ {
		if s[i] < 0x20 {
			return i
		}
	}
	return -1
}

// simple unescapes a string whose escapes are all of two characters, which is
// nearly all of them; ok is false for others.
func simple(raw string) (text string, ok bool) {
	var b strings.Builder
	b.Grow(len(raw))
	for {
		n := strings.IndexByte(raw, '\\')
		if n < 0 {
			b.WriteString(raw)
			return b.String(), true
		}
		if n+1 == len(raw) {
			return "", false
		}
		c := simpleEscapes[raw[n+1]]
		if c == 0 {
			return "", false
		}
		b.WriteString(raw[:n])
		b.WriteByte(c)
		raw = raw[n+2:]
	}
}

// simpleEscapes are what stands for what after a backslash; 0 is none of them.
var simpleEscapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}
