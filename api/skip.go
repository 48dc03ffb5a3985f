package api

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"unicode/utf8"
)

// Most of a chat's request is text that the API passes on to a tokenizer. It
// has to be valid JSON all the same, and to say so is a third of the work of
// such a query if every byte is looked at alone. What is plain is therefore
// passed over eight bytes at a time; all else, and whatever is wrong, is
// jsontext's to judge.

// maxSkipDepth is how deep values may be nested to be passed over quickly, and
// maxSkipNames how many members an object may have: their names are compared
// with each other.
const (
	maxSkipDepth = 16
	maxSkipNames = 16
)

// skip consumes any value and reports whether it starts with kind: '"', '[',
// '{' and so on.
func (s *scanner) skip() (kind byte, err error) {
	kind = s.peek()
	if end := plainValue(s.b, s.i, 0); end > 0 {
		s.i = end
		return kind, nil
	}
	_, err = s.value()
	return kind, err
}

// plainValue returns the offset behind the value at b[i:], or -1 where it is not
// plain: then it may be invalid, or be valid all the same.
func plainValue(b []byte, i, depth int) int {
	if i = space(b, i); i >= len(b) || depth > maxSkipDepth {
		return -1
	}
	switch b[i] {
	case '"':
		return plainString(b, i)
	case '{':
		return plainObject(b, i, depth)
	case '[':
		return plainArray(b, i, depth)
	case 't':
		return literal(b, i, "true")
	case 'f':
		return literal(b, i, "false")
	case 'n':
		return literal(b, i, "null")
	}
	return plainNumber(b, i)
}

func plainObject(b []byte, i, depth int) int {
	var names [maxSkipNames][]byte
	if i = space(b, i+1); i < len(b) && b[i] == '}' {
		return i + 1
	}
	for n := range names {
		if i >= len(b) || b[i] != '"' {
			return -1
		}
		end := plainString(b, i)
		if end < 0 {
			return -1
		}
		names[n] = b[i+1 : end-1]
		// Names may be equal only in what they mean, if one has an escape.
		if slices.Contains(names[n], '\\') || slices.ContainsFunc(names[:n], func(o []byte) bool { return string(o) == string(names[n]) }) {
			return -1
		}
		if i = space(b, end); i >= len(b) || b[i] != ':' {
			return -1
		}
		if i = plainValue(b, i+1, depth+1); i < 0 {
			return -1
		}
		if i = space(b, i); i >= len(b) {
			return -1
		}
		switch b[i] {
		case '}':
			return i + 1
		case ',':
			i = space(b, i+1)
		default:
			return -1
		}
	}
	return -1
}

func plainArray(b []byte, i, depth int) int {
	if i = space(b, i+1); i < len(b) && b[i] == ']' {
		return i + 1
	}
	for {
		if i = plainValue(b, i, depth+1); i < 0 {
			return -1
		}
		if i = space(b, i); i >= len(b) {
			return -1
		}
		switch b[i] {
		case ']':
			return i + 1
		case ',':
			i++
		default:
			return -1
		}
	}
}

// plainString returns the offset behind the string at b[i:]: of valid UTF-8,
// with no escapes but those of one character.
func plainString(b []byte, i int) int {
	for i++; ; {
		for i+8 <= len(b) {
			m := notPlain(binary.LittleEndian.Uint64(b[i:]))
			if m != 0 {
				i += bits.TrailingZeros64(m) / 8
				break
			}
			i += 8
		}
		if i >= len(b) {
			return -1
		}
		switch c := b[i]; {
		case c == '"':
			return i + 1
		case c == '\\':
			if i+1 >= len(b) || !shortEscape(b[i+1]) {
				return -1
			}
			i += 2
		case c < 0x20:
			return -1
		case c < utf8.RuneSelf:
			i++
		default:
			if i = afterRunes(b, i); i < 0 {
				return -1
			}
		}
	}
}

// notPlain returns a word whose lowest set bit is in the first byte of x that is
// a quote, a backslash, a control character or not ASCII. Bits above may be
// wrong: borrows go upwards.
func notPlain(x uint64) uint64 {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	quote, backslash := x^'"'*ones, x^'\\'*ones
	return (x | (x - 0x20*ones) | (quote - ones) | (backslash - ones)) & tops
}

// afterRunes returns the offset of the first byte from i on that is ASCII, -1 if
// those before are not UTF-8. Where there is one such character there are more,
// and most scripts have three bytes a character.
func afterRunes(b []byte, i int) int {
	for i < len(b) && b[i] >= utf8.RuneSelf {
		// Not E0, of which some are overlong, nor ED, which has the surrogates.
		if c := b[i]; i+2 < len(b) && c-0xe1 < 15 && c != 0xed && b[i+1]&0xc0 == 0x80 && b[i+2]&0xc0 == 0x80 {
			i += 3
			continue
		}
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return -1
		}
		i += n
	}
	return i
}

func shortEscape(c byte) bool {
	switch c {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return true
	}
	return false
}

// plainNumber returns the offset behind the number at b[i:].
func plainNumber(b []byte, i int) int {
	if b[i] == '-' {
		i++
	}
	start := i
	if i = afterDigits(b, i); i == start || b[start] == '0' && i-start > 1 {
		return -1
	}
	if i < len(b) && b[i] == '.' {
		start = i + 1
		if i = afterDigits(b, start); i == start {
			return -1
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		start = i
		if i = afterDigits(b, i); i == start {
			return -1
		}
	}
	return i
}

func afterDigits(b []byte, i int) int {
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	return i
}

func literal(b []byte, i int, want string) int {
	if len(b)-i < len(want) || string(b[i:i+len(want)]) != want {
		return -1
	}
	return i + len(want)
}

// space returns the offset of the first byte from i on that is no white space.
func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}
