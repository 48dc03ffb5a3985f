package events

// The codes of msgpack that this package names; see
// https://github.com/msgpack/msgpack/blob/master/spec.md. The library's
// msgpcode package has them as variables, which a switch cannot use as
// constants.
const (
	codeFixMap   = 0x80 // 0x80..0x8f
	codeFixArray = 0x90 // 0x90..0x9f
	codeFixStr   = 0xa0 // 0xa0..0xbf
	codeNil      = 0xc0
	codeReserved = 0xc1
	codeFalse    = 0xc2
	codeTrue     = 0xc3
	codeBin8     = 0xc4
	codeBin16    = 0xc5
	codeBin32    = 0xc6
	codeExt8     = 0xc7
	codeExt16    = 0xc8
	codeExt32    = 0xc9
	codeFloat32  = 0xca
	codeFloat64  = 0xcb
	codeUint8    = 0xcc
	codeUint16   = 0xcd
	codeUint32   = 0xce
	codeUint64   = 0xcf
	codeInt8     = 0xd0
	codeInt16    = 0xd1
	codeInt32    = 0xd2
	codeInt64    = 0xd3
	codeFixExt1  = 0xd4
	codeFixExt16 = 0xd8
	codeStr8     = 0xd9
	codeStr16    = 0xda
	codeStr32    = 0xdb
	codeArray16  = 0xdc
	codeArray32  = 0xdd
	codeMap16    = 0xde
	codeMap32    = 0xdf
	codeNegative = 0xe0 // 0xe0..0xff: -32..-1
)

// fixedWidth is the size in bytes, code included, of every value whose code
// says it; 0 for the others, for containers and for the reserved code.
var fixedWidth = func() (w [256]uint8) {
	for code := range w {
		switch {
		case code < codeFixMap, code >= codeNegative:
			w[code] = 1
		case code >= codeFixStr && code < codeNil:
			w[code] = 1 + uint8(code&0x1f)
		}
	}
	for code, width := range map[byte]uint8{
		codeNil: 1, codeFalse: 1, codeTrue: 1, codeFloat32: 5, codeFloat64: 9,
		codeUint8: 2, codeUint16: 3, codeUint32: 5, codeUint64: 9,
		codeInt8: 2, codeInt16: 3, codeInt32: 5, codeInt64: 9,
	} {
		w[code] = width
	}
	for i := range codeFixExt16 - codeFixExt1 + 1 {
		w[codeFixExt1+i] = 2 + 1<<i // code, type, 1..16 bytes
	}
	return w
}()

// typeName names the type of a value in errors.
func typeName(code byte) string {
	switch {
	case code < codeFixMap, code >= codeNegative, code >= codeUint8 && code <= codeInt64:
		return "integer"
	case code < codeFixArray, code == codeMap16, code == codeMap32:
		return "map"
	case code < codeFixStr, code == codeArray16, code == codeArray32:
		return "array"
	case code < codeNil, code >= codeStr8 && code <= codeStr32:
		return "string"
	case code == codeNil:
		return "nil"
	case code == codeReserved:
		return "reserved byte"
	case code == codeFalse, code == codeTrue:
		return "boolean"
	case code <= codeBin32:
		return "byte string"
	case code == codeFloat32, code == codeFloat64:
		return "float"
	}
	return "extension"
}
