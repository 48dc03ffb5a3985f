package api

import (
	"bytes"
	"math"
	"strconv"

	"github.com/kvindex/kvindex/indexer"
)

// indexQuote returns the offset of the quote that ends a string without
// escapes, -1 where there are escapes or no end.
func indexQuote(b []byte) int {
	end := bytes.IndexByte(b, '"')
	if end < 0 || bytes.IndexByte(b[:end], '\\') >= 0 {
		return -1
	}
	return end
}

// hashes parses an array of 64-bit hashes into dst[:0]. An element is a JSON
// integer or a string with a decimal or 0x number. Negative numbers are the
// same bits in two's complement: clients written for signed integers send
// them.
func hashes[H indexer.SeqHash | indexer.LocalHash](s *scanner, field string, dst []H, most int) ([]H, error) {
	dst = dst[:0]
	if s.peek() != '[' {
		if _, err := s.value(); err != nil {
			return dst, err
		}
		return dst, invalid(field, "%s is not an array of hashes", field)
	}
	err := s.array(func(n int) error {
		if n == most {
			return tooLarge(field, "%s holds more than %d hashes", field, most)
		}
		h, ok, err := s.hash()
		if err != nil {
			return err
		}
		if !ok {
			at := field + "[" + strconv.Itoa(n) + "]"
			return invalid(at, "%s is not an integer in 0..18446744073709551615 (a decimal string is safest: many JSON libraries round numbers)", at)
		}
		dst = append(dst, H(h))
		return nil
	})
	return dst, err
}

// hash consumes one hash. ok is false where the value is something else.
func (s *scanner) hash() (h uint64, ok bool, err error) {
	if s.peek() == '"' {
		if text := s.plain(); text != nil {
			s.i += len(text) + 2
			h, ok = parseHash(text)
			return h, ok, nil
		}
	} else if n := numberLen(s.b[s.i:]); n > 0 {
		h, ok = parseHash(s.b[s.i : s.i+n])
		s.i += n
		return h, ok, nil
	}
	v, err := s.value()
	if err != nil {
		return 0, false, err
	}
	if v.Kind() != '0' {
		return 0, false, nil
	}
	h, ok = parseHash(v)
	return h, ok, nil
}

// numberLen returns the length of the integer that b starts with, 0 where it
// is not plainly one: then jsontext decides.
func numberLen(b []byte) int {
	i := 0
	if len(b) > 0 && b[0] == '-' {
		i = 1
	}
	start := i
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	if i == start || i == len(b) || (b[start] == '0' && i-start > 1) {
		return 0
	}
	switch b[i] {
	case ',', ']', ' ', '\t', '\r', '\n':
		return i
	}
	return 0
}

// parseHash parses "123", "-5" (two's complement) or "0x7b".
func parseHash(b []byte) (uint64, bool) {
	if len(b) == 0 || len(b) > 20 {
		return 0, false
	}
	if len(b) > 2 && b[0] == '0' && b[1]|0x20 == 'x' {
		return parseHex(b[2:])
	}
	negative := b[0] == '-'
	if negative {
		b = b[1:]
	}
	if len(b) == 0 {
		return 0, false
	}
	var v uint64
	for _, c := range b {
		d := uint64(c - '0')
		if d > 9 || v > math.MaxUint64/10 || (v == math.MaxUint64/10 && d > math.MaxUint64%10) {
			return 0, false
		}
		v = v*10 + d
	}
	if negative {
		if v > 1<<63 {
			return 0, false
		}
		v = -v
	}
	return v, true
}

func parseHex(b []byte) (uint64, bool) {
	if len(b) > 16 {
		return 0, false
	}
	var v uint64
	for _, c := range b {
		switch {
		case c-'0' <= 9:
			v = v<<4 | uint64(c-'0')
		case c|0x20-'a' <= 5:
			v = v<<4 | uint64(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return v, true
}
