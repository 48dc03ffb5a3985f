package jinja

import (
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// unescape is what Jinja makes of the inside of a string literal: Python's
// unicode-escape.
func unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		c := s[i]
		if j := strings.IndexByte(`\'"abfnrtv`, c); j >= 0 {
			b.WriteByte("\\'\"\a\b\f\n\r\t\v"[j])
			continue
		}
		width, base := 0, 16
		switch c {
		case '\n':
			continue
		case 'x':
			width = 2
		case 'u':
			width = 4
		case 'U':
			width = 8
		case '0', '1', '2', '3', '4', '5', '6', '7':
			base = 8
			i--
			for width < 3 && i+1+width < len(s) && s[i+1+width] >= '0' && s[i+1+width] <= '7' {
				width++
			}
		case 'N':
			return "", unsupported(`the escape \N in a string of the template`)
		default:
			b.WriteByte('\\')
			b.WriteByte(c)
			continue
		}
		if i+1+width > len(s) {
			return "", unsupported("a broken escape in a string of the template")
		}
		r, err := strconv.ParseUint(s[i+1:i+1+width], base, 32)
		if err != nil || r > utf8.MaxRune || utf16.IsSurrogate(rune(r)) {
			return "", unsupported("a broken escape in a string of the template")
		}
		b.WriteRune(rune(r))
		i += width
	}
	return b.String(), nil
}
