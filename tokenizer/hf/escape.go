//go:build cgo && !nohf && (amd64 || arm64)

package hf

import (
	"strings"
	"unicode/utf8"
)

// How a NUL gets through a C string.
//
// Escaping spells NUL as escapeMark + markNUL, and escapeMark itself as escapeMark + markMark. All three are Unicode
// noncharacters, which no text is meant to hold, but text that holds them is handled too. In escaped text every
// escapeMark is followed by one of the other two, so that two Replace steps at the head of the normalizer restore
// exactly the original: the first turns each escaped NUL into NUL, after which the second finds just the escaped marks.
// Everything behind them sees what it would see in the original text:
//
//   - Added tokens that match before the normalizer (normalized=false) see the escaped text. It matches at the same
//     places as the original, unless a token holds NUL or one of the three marks: then there is no escaping. Nor do
//     their options differ: lstrip and rstrip look for white space and single_word for word characters around a match,
//     and neither NUL nor any of the marks is either.
//   - The normalizer proper, added tokens that match behind it, pre-tokenizer and model work on the restored text.
//   - Metaspace with prepend_scheme "first" asks for the position of a piece in the text before normalization, which a
//     replaced first character shifts: no escaping there either.
//
// The escaped text can be followed by sentinel, an added token of the escaping instance alone: it occurs in no escaped
// text, and cannot begin within one, because its first character is an escapeMark in front of something else.
const (
	escapeMark = "\uFDD0"
	markNUL    = "\uFDD1"
	markMark   = "\uFDD2"
	sentinel   = escapeMark + "\uFDD3"

	reservedRunes = "\x00" + escapeMark + markNUL + markMark + "\uFDD3"
)

// escapeSteps are the two steps of the normalizer that undo escape.
const escapeSteps = `{"type":"Replace","pattern":{"String":"` + escapeMark + markNUL + `"},"content":"\u0000"},` +
	`{"type":"Replace","pattern":{"String":"` + escapeMark + markMark + `"},"content":"` + escapeMark + `"}`

// escape spells text without NUL bytes.
func escape(text string) string {
	if strings.IndexByte(text, 0) < 0 && !strings.Contains(text, escapeMark) {
		return text
	}
	// One pass: what it writes is not escaped again.
	return strings.NewReplacer("\x00", escapeMark+markNUL, escapeMark, escapeMark+markMark).Replace(text)
}

// repairUTF8 returns text with U+FFFD in place of each byte that belongs to no valid character, as encoding/json
// replaces them. Valid text, the common case, is returned as it is.
func repairUTF8(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	b.Grow(len(text) + len(text)/8)
	for _, r := range text { // an invalid byte reads as U+FFFD of width 1
		b.WriteRune(r)
	}
	return b.String()
}
