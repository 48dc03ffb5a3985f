package api

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"math/bits"
	"strconv"
)

// maxTokenDigits is the number of decimal digits of the largest token id.
const maxTokenDigits = 10

// tokens parses an array of token ids into dst[:0]. It is one pass over the
// bytes, allocates nothing once dst is large enough, and never shows a value
// in an error. field names the array in errors.
func (s *scanner) tokens(field string, dst []uint32, most int) ([]uint32, error) {
	dst = dst[:0]
	if !s.take('[') {
		return dst, invalid(field, "%s is not an array of integers", field)
	}
	if s.take(']') {
		return dst, nil
	}
	b, i := s.b, s.i
	for {
		dst, i = shortTokens(dst, b, i, most)
		for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
			i++
		}
		start := i
		v, n := leadingUint(b[i:])
		i += n
		// Leading zeros are not JSON, and what follows must end the number.
		if n == 0 || n > maxTokenDigits || v > math.MaxUint32 || (b[start] == '0' && n > 1) {
			s.i = start
			return dst, s.notAToken(field, len(dst))
		}
		if len(dst) == most {
			return dst, tooLarge(field, "%s holds more than %d tokens", field, most)
		}
		dst = append(dst, uint32(v))
		if i < len(b) && b[i] == ',' {
			i++
			continue
		}
		s.i = i
		if s.take(',') {
			i = s.i
			continue
		}
		if s.take(']') {
			return dst, nil
		}
		if s.i == i && i < len(b) { // 1.5, 1e3, 12x
			s.i = start
			return dst, s.notAToken(field, len(dst)-1)
		}
		return dst, s.unexpected("',' or ']' expected")
	}
}

// shortTokens appends the tokens that b has from offset i on, as long as each
// has at most 7 digits and the next is behind a comma, and a space maybe: what
// clients send, but for the last elements. It returns the offset of the first
// element that it leaves.
//
// Of the chain from one element to the next only a load, three operations and
// the count of zeros are left; all else the processor does beside.
func shortTokens(dst []uint32, b []byte, i, most int) ([]uint32, int) {
	for len(dst) < most && i >= 0 && i+8 <= len(b) {
		x := binary.LittleEndian.Uint64(b[i:]) ^ 0x3030303030303030
		other := (x + 0x7676767676767676 | x) & 0x8080808080808080
		top := bits.TrailingZeros64(other) // of the first byte that is no digit
		n := top / 8
		// No digit, 8 of them, a leading zero, or something else than a comma.
		if n == 0 || n > 7 || (x&0xff == 0 && n > 1) || byte(x>>(n*8&63)) != ','^0x30 {
			break
		}
		dst = append(dst, uint32(digits(x, n)))
		if i += n + 1; i < len(b) && b[i] == ' ' { // as Python's json writes
			i++
		}
	}
	return dst, i
}

// digits is the number that the n lowest bytes of x, up to 7 digits of value
// 0..9, stand for.
func digits(x uint64, n int) uint64 {
	x <<= 64 - 8*n // the last digit goes to the top byte, zeros come in below
	x = x*10 + x>>8
	return (x&0x000000ff000000ff*0x000f424000000064 + x>>16&0x000000ff000000ff*0x0000271000000001) >> 32
}

// leadingUint parses the digits that b starts with and returns how many there
// are. Of more than maxTokenDigits it looks at one more.
func leadingUint(b []byte) (v uint64, n int) {
	if len(b) >= 8 {
		// Eight bytes at once. In a byte of x that was a digit 0..9 is left, and
		// adding 0x76 sets the top bit of every other: the lowest such byte ends
		// the number (carries go upwards only).
		x := binary.LittleEndian.Uint64(b) ^ 0x3030303030303030
		if other := (x + 0x7676767676767676 | x) & 0x8080808080808080; other != 0 {
			n = bits.TrailingZeros64(other) / 8
			return digits(x, n), n
		}
	}
	for n < len(b) && b[n]-'0' <= 9 && n <= maxTokenDigits {
		v = v*10 + uint64(b[n]-'0')
		n++
	}
	return v, n
}

// notAToken is the error of the value that is next, which is element n.
func (s *scanner) notAToken(field string, n int) error {
	if _, err := s.value(); err != nil {
		return err // not even JSON
	}
	at := field + "[" + strconv.Itoa(n) + "]"
	return invalid(at, "%s is not an integer in 0..4294967295", at)
}

// base64Tokens parses a string of base64, standard or URL-safe, padded or
// not, of little-endian uint32 into dst[:0].
func (s *scanner) base64Tokens(field string, dst []uint32, most int) ([]uint32, error) {
	dst = dst[:0]
	text, err := s.longText(field)
	if err != nil {
		return dst, err
	}
	for pad := 0; pad < 2 && len(text) > 0 && text[len(text)-1] == '='; pad++ {
		text = text[:len(text)-1]
	}
	n := base64.RawStdEncoding.DecodedLen(len(text))
	if n/4 > most {
		return dst, tooLarge(field, "%s holds more than %d tokens", field, most)
	}
	dst, left, ok := appendBase64Tokens(dst, text, stdPairs(), base64.RawStdEncoding)
	if !ok {
		dst, left, ok = appendBase64Tokens(dst[:0], text, urlPairs(), base64.RawURLEncoding)
	}
	switch {
	case !ok:
		return dst[:0], invalid(field, "%s is not base64", field)
	case left != 0:
		return dst[:0], invalid(field, "%s holds %d bytes, which is not a whole number of 32-bit tokens", field, n)
	}
	return dst, nil
}

// longText consumes a string that may be long. Where it has no escapes it is
// returned as it stands in the body without a look at its characters: the
// caller's decoder must reject what does not belong.
func (s *scanner) longText(field string) ([]byte, error) {
	if s.peek() != '"' {
		if _, err := s.value(); err != nil {
			return nil, err
		}
		return nil, invalid(field, "%s is not a string", field)
	}
	rest := s.b[s.i+1:]
	if end := indexQuote(rest); end >= 0 {
		s.i += end + 2
		return rest[:end], nil
	}
	return s.text()
}
