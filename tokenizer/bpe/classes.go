package bpe

import (
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/rangetable"
)

// class is the set of properties of a character that the patterns ask for.
type class uint8

const (
	upper    class = 1 << iota // Lu, Lt
	lower                      // Ll
	caseless                   // Lm, Lo
	mark                       // M
	number                     // N
	space                      // White_Space, what \s is
	punct                      // P, S
	cjk                        // the second split of DeepSeek

	letter = upper | lower | caseless // \p{L}

	// In classes.bytes: the first byte of a character of several.
	multibyte = cjk
)

// classes tells the class of every character.
type classes struct {
	bytes [256]class    // of ASCII; multibyte for all others
	page  [0x1100]uint8 // by the code point without its last 8 bits: index into pages
	pages [][256]class
}

// regexUnicode is the Unicode version of the regex engine whose classes these
// are.
const regexUnicode = "16.0.0"

// classTable builds the classes, once, in a few milliseconds.
var classTable = sync.OnceValue(func() *classes {
	flat := make([]class, len(classes{}.page)<<8)
	add := func(c class, tables ...*unicode.RangeTable) {
		for _, t := range tables {
			rangetable.Visit(t, func(r rune) { flat[r] |= c })
		}
	}
	add(upper, unicode.Lu, unicode.Lt)
	add(lower, unicode.Ll)
	add(caseless, unicode.Lm, unicode.Lo)
	add(mark, unicode.M)
	add(number, unicode.N)
	add(space, unicode.White_Space)
	add(punct, unicode.P, unicode.S)
	known := make([]bool, len(flat))
	rangetable.Visit(rangetable.Assigned(regexUnicode), func(r rune) { known[r] = true })
	flat[0x295] = lower // ʕ became Lo in Unicode 17
	for r := range flat {
		if !known[r] {
			flat[r] = 0
		}
		if r >= 0x4e00 && r <= 0x9fa5 || r >= 0x3040 && r <= 0x30ff {
			flat[r] |= cjk // a range of the pattern, assigned or not
		}
	}

	t := &classes{}
	index := make(map[[256]class]uint8)
	for p := range t.page {
		page := [256]class(flat[p<<8:])
		i, ok := index[page]
		if !ok {
			i = uint8(len(t.pages)) // about 120 differ
			index[page] = i
			t.pages = append(t.pages, page)
		}
		t.page[p] = i
	}
	for b := range t.bytes {
		t.bytes[b] = multibyte
		if b < utf8.RuneSelf {
			t.bytes[b] = flat[b]
		}
	}
	return t
})

// at returns the class of the character at s[i] and how many bytes it has.
func (t *classes) at(s string, i int) (class, int) {
	if c := t.bytes[s[i]]; c != multibyte {
		return c, 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	return t.pages[t.page[uint32(r)>>8]][uint8(r)], n
}
