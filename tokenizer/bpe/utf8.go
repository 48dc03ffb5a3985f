package bpe

import "unicode/utf8"

// validUTF8 returns s with U+FFFD for each byte that is part of no valid
// UTF-8, as decoding JSON gives it.
func validUTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	b := make([]byte, 0, len(s)+len(s)/2)
	for _, r := range s {
		b = utf8.AppendRune(b, r) // ranging gives U+FFFD for each such byte
	}
	return string(b)
}
