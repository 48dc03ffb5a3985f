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
			x <<= 64 - 8*n // the last digit goes to the top byte, zeros come in below
			x = x*10 + x>>8
			x = (x&0x000000ff000000ff*0x000f424000000064 + x>>16&0x000000ff000000ff*0x0000271000000001) >> 32
			return x, n
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
// not, of little-endian uint32 into dst[:0]. buf is scratch; both are
// returned for reuse.
func (s *scanner) base64Tokens(field string, dst []uint32, buf []byte, most int) ([]uint32, []byte, error) {
	dst = dst[:0]
	text, err := s.longText(field)
	if err != nil {
		return dst, buf, err
	}
	for pad := 0; pad < 2 && len(text) > 0 && text[len(text)-1] == '='; pad++ {
		text = text[:len(text)-1]
	}
	n := base64.RawStdEncoding.DecodedLen(len(text))
	if n/4 > most {
		return dst, buf, tooLarge(field, "%s holds more than %d tokens", field, most)
	}
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	n, err = base64.RawStdEncoding.Decode(buf[:n], text)
	if err != nil {
		n, err = base64.RawURLEncoding.Decode(buf[:cap(buf)], text)
	}
	// The decoder passes over line ends, which a JSON string cannot have.
	if err != nil || n != base64.RawStdEncoding.DecodedLen(len(text)) || len(text)%4 == 1 {
		return dst, buf, invalid(field, "%s is not base64", field)
	}
	if n%4 != 0 {
		return dst, buf, invalid(field, "%s holds %d bytes, which is not a whole number of 32-bit tokens", field, n)
	}
	if cap(dst) < n/4 {
		dst = make([]uint32, 0, n/4)
	}
	dst = dst[:n/4]
	b := buf[:n]
	for i := range dst {
		dst[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return dst, buf, nil
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
