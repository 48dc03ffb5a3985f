package api

import (
	"encoding/base64"
	"encoding/binary"
	"math/bits"
	"slices"
	"sync"
)

// Base64 of token ids is decoded by our own hand: encoding/base64 takes four
// times as long, and its bytes would have to be copied once more. Two
// characters at a time are looked up as one 16-bit number; of the table's
// 128 KB, text uses 14.

// pairTable maps two characters, the first in the low byte, to the 12 bits that
// they stand for, or to noPair.
type pairTable [1 << 16]uint16

const noPair = 1 << 15

var (
	stdPairs = sync.OnceValue(func() *pairTable {
		return newPairTable("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
	})
	urlPairs = sync.OnceValue(func() *pairTable {
		return newPairTable("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
	})
)

func newPairTable(alphabet string) *pairTable {
	var t pairTable
	for i := range t {
		t[i] = noPair
	}
	for i := range len(alphabet) {
		for j := range len(alphabet) {
			t[int(alphabet[i])|int(alphabet[j])<<8] = uint16(i<<6 | j)
		}
	}
	return &t
}

// appendBase64Tokens appends the little-endian 32-bit integers that text, base64
// without padding, holds to dst. ok is false if it is not base64 of the table's
// alphabet; left is how many bytes remain behind the last whole integer.
func appendBase64Tokens(dst []uint32, text []byte, t *pairTable, enc *base64.Encoding) (out []uint32, left int, ok bool) {
	var bad uint16
	dst = slices.Grow(dst, len(text)*3/16)
	for len(text) >= 16 { // 12 bytes, 3 tokens
		x, y := binary.LittleEndian.Uint64(text), binary.LittleEndian.Uint64(text[8:])
		text = text[16:]
		a, b, c, d := t[uint16(x)], t[uint16(x>>16)], t[uint16(x>>32)], t[uint16(x>>48)]
		e, f, g, h := t[uint16(y)], t[uint16(y>>16)], t[uint16(y>>32)], t[uint16(y>>48)]
		bad |= a | b | c | d | e | f | g | h
		// The bytes in their order, first the highest: 8 and 4 of them.
		hi := uint64(a)<<52 | uint64(b)<<40 | uint64(c)<<28 | uint64(d)<<16 | uint64(e)<<4 | uint64(f)>>8
		lo := uint32(f)<<24 | uint32(g)<<12 | uint32(h)
		dst = append(dst, bits.ReverseBytes32(uint32(hi>>32)), bits.ReverseBytes32(uint32(hi)), bits.ReverseBytes32(lo))
	}
	if bad&noPair != 0 {
		return dst, 0, false
	}
	var rest [12]byte
	n, err := enc.Decode(rest[:], text)
	// That decoder passes over line ends, which a JSON string cannot have.
	if err != nil || n != enc.DecodedLen(len(text)) || len(text)%4 == 1 {
		return dst, 0, false
	}
	for i := 0; i+4 <= n; i += 4 {
		dst = append(dst, binary.LittleEndian.Uint32(rest[i:]))
	}
	return dst, n % 4, true
}
