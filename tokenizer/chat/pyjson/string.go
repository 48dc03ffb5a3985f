package pyjson

import (
	"math/bits"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// string reads a string that begins here: a slice of the input if nothing in
// it is escaped.
func (p *Parser) string(keep bool) (string, error) {
	start := p.pos + 1
	end := p.special(start)
	if end < len(p.s) && p.s[end] == '"' {
		p.pos = end + 1
		return p.s[start:end], nil
	}
	return p.unescape(start, end, keep)
}

// unescape reads a string that begins at start and is plain up to i. What it
// returns is a slice of p.text, which holds all such strings.
func (p *Parser) unescape(start, i int, keep bool) (string, error) {
	if keep && p.text.Cap() == 0 {
		p.text.Grow(len(p.s) - start) // no escape is shorter than what it stands for
	}
	begin := p.text.Len()
	lone := false
	for ; ; i = p.special(start) {
		if keep {
			p.text.WriteString(p.s[start:i])
		}
		switch {
		case i == len(p.s):
			p.pos = i
			return "", p.fail(`"`)
		case p.s[i] == '"':
			p.pos = i + 1
			if lone {
				return "", ErrSurrogate
			}
			return p.text.String()[begin:], nil
		case p.s[i] != '\\':
			p.pos = i
			return "", p.fail("no control character")
		}
		if start = i + 2; start <= len(p.s) && simpleEscapes[p.s[i+1]] != 0 {
			if keep {
				p.text.WriteByte(simpleEscapes[p.s[i+1]])
			}
			continue
		}
		r, width := unicodeEscape(p.s[i:])
		if width == 0 {
			p.pos = i
			return "", p.fail("an escape")
		}
		start = i + width
		if keep {
			p.text.WriteRune(r)
			lone = lone || utf16.IsSurrogate(r)
		}
	}
}

// special is the place of the first byte from i on that a string cannot have as
// it is, len(p.s) if there is none. In what is valid that is a quote or a
// backslash; processors look for one byte several times as fast as special does.
func (p *Parser) special(i int) int {
	if !p.limits.Valid {
		return special(p.s, i)
	}
	if p.quote < i { // else it has not been passed yet
		p.quote = len(p.s)
		if n := strings.IndexByte(p.s[i:], '"'); n >= 0 {
			p.quote = i + n
		}
	}
	if n := strings.IndexByte(p.s[i:p.quote], '\\'); n >= 0 {
		return i + n
	}
	return p.quote
}

// special is the place of the first byte from i on that a string cannot have as
// it is: a quote, a backslash, a control character. It is len(s) if there is
// none. It looks at eight bytes at a time: this is most of what reading a long
// chat takes.
func special(s string, i int) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(s); i += 8 {
		w := uint64(s[i]) | uint64(s[i+1])<<8 | uint64(s[i+2])<<16 | uint64(s[i+3])<<24 |
			uint64(s[i+4])<<32 | uint64(s[i+5])<<40 | uint64(s[i+6])<<48 | uint64(s[i+7])<<56
		quote, backslash := w^'"'*ones, w^'\\'*ones
		// The lowest bit is in the first such byte; borrows may set others above it.
		if m := ((w-0x20*ones)&^w | (quote-ones)&^quote | (backslash-ones)&^backslash) & tops; m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for ; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c == '"' || c == '\\' {
			break
		}
	}
	return i
}

// unicodeEscape reads the \uXXXX at the front of s, a pair of them if they form
// one character, and says how long it is: 0 if it is none.
func unicodeEscape(s string) (r rune, n int) {
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

// simpleEscapes are what stands for what after a backslash; 0 is none of them.
var simpleEscapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}
