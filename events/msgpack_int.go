package events

import (
	"encoding/binary"
	"math"

	"github.com/kvindex/kvindex/indexer"
)

// maxHashBytes bounds a hash given as bytes; the longest digest that engines
// use has 32.
const maxHashBytes = 64

// integer reads an integer of any width. u is its two's complement, negative
// says how to read it.
func (c *cursor) integer() (u uint64, negative, ok bool) {
	code := c.peek()
	width := int(fixedWidth[code])
	if width > c.remaining() {
		return 0, false, false
	}
	b := c.buf[c.pos:]
	switch code {
	case codeUint8:
		u = uint64(b[1])
	case codeUint16:
		u = uint64(binary.BigEndian.Uint16(b[1:]))
	case codeUint32:
		u = uint64(binary.BigEndian.Uint32(b[1:]))
	case codeUint64:
		u = binary.BigEndian.Uint64(b[1:])
	case codeInt8:
		u = uint64(int8(b[1]))
	case codeInt16:
		u = uint64(int16(binary.BigEndian.Uint16(b[1:])))
	case codeInt32:
		u = uint64(int32(binary.BigEndian.Uint32(b[1:])))
	case codeInt64:
		u = binary.BigEndian.Uint64(b[1:])
	default:
		if code >= codeFixMap && code < codeNegative {
			return 0, false, false
		}
		u = uint64(int8(code))
	}
	c.pos += width
	// 0xd0..0xd3 and 0xe0..0xff are signed; the other codes never set bit 63
	// other than as a large positive number.
	negative = code >= codeInt8 && int64(u) < 0
	return u, negative, true
}

// int64 reads an integer that fits into an int64.
func (c *cursor) int64() (n int64, ok bool) {
	start := c.pos
	u, negative, ok := c.integer()
	if !ok || !negative && u > math.MaxInt64 {
		c.pos = start
		return 0, false
	}
	return int64(u), true
}

// natural reads an integer of 0..limit.
func (c *cursor) natural(limit int64) (n int, ok bool) {
	start := c.pos
	i, ok := c.int64()
	if !ok || i < 0 || i > limit {
		c.pos = start
		return 0, false
	}
	return int(i), true
}

// token reads a token id. It is the slow path of tokens.
func (c *cursor) token() (uint32, bool) {
	start := c.pos
	u, negative, ok := c.integer()
	if !ok || negative || u > math.MaxUint32 {
		c.pos = start
		return 0, false
	}
	return uint32(u), true
}

// tokens fills dst with token ids.
func (c *cursor) tokens(dst []uint32) bool {
	i := 0
	// As long as the longest integer fits, no width needs a check of its own.
	for i < len(dst) && c.remaining() >= 9 {
		b := c.buf[c.pos : c.pos+9 : c.pos+9]
		switch code := b[0]; {
		case code == codeUint16:
			dst[i] = uint32(binary.BigEndian.Uint16(b[1:]))
			c.pos += 3
		case code < codeFixMap:
			dst[i] = uint32(code)
			c.pos++
		case code == codeUint32:
			dst[i] = binary.BigEndian.Uint32(b[1:])
			c.pos += 5
		case code == codeUint8:
			dst[i] = uint32(b[1])
			c.pos += 2
		default:
			token, ok := c.token()
			if !ok {
				return false
			}
			dst[i] = token
		}
		i++
	}
	for ; i < len(dst); i++ {
		token, ok := c.token()
		if !ok {
			return false
		}
		dst[i] = token
	}
	return true
}

// pairs fills dst with the token ids of pairs.
func (c *cursor) pairs(dst []uint32) bool {
	for i := 0; i < len(dst); i += 2 {
		n, ok := c.arrayLen()
		if !ok || n != 2 || !c.tokens(dst[i:i+2]) {
			return false
		}
	}
	return true
}

// hash reads the id of a block: an integer, or bytes by their last 8.
func (c *cursor) hash() (indexer.EngineHash, bool) {
	if u, _, ok := c.integer(); ok {
		return indexer.EngineHash(u), true
	}
	start := c.pos
	b, ok := c.bin()
	if !ok || len(b) == 0 || len(b) > maxHashBytes {
		c.pos = start
		return 0, false
	}
	b = b[max(0, len(b)-8):]
	var u uint64
	for _, x := range b {
		u = u<<8 | uint64(x)
	}
	return indexer.EngineHash(u), true
}

// hashes fills dst.
func (c *cursor) hashes(dst []indexer.EngineHash) bool {
	for i := range dst {
		if c.remaining() >= 9 && c.buf[c.pos] == codeUint64 { // nearly all are
			dst[i] = indexer.EngineHash(binary.BigEndian.Uint64(c.buf[c.pos+1:]))
			c.pos += 9
			continue
		}
		h, ok := c.hash()
		if !ok {
			return false
		}
		dst[i] = h
	}
	return true
}
