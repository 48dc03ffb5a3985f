package bpe

import (
	"cmp"
	"slices"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
	"golang.org/x/text/unicode/rangetable"
)

// nfcUnicode is the Unicode version of the library's normalization.
const nfcUnicode = "9.0.0"

// nfcTable is what normalizing to NFC as the library does needs beyond package
// norm, which differs in two respects: it knows a later Unicode, and it breaks
// runs of more than 30 marks with a joiner. Text that package norm says is
// normal is normal in the earlier Unicode as well, where characters assigned
// later compose with nothing and nothing is reordered across them.
type nfcTable struct {
	known   *unicode.RangeTable // assigned in that version
	compose map[[2]rune]rune    // primary composites, but for Hangul
}

// nfcTables builds the table, once, in some 10 milliseconds.
var nfcTables = sync.OnceValue(func() *nfcTable {
	t := &nfcTable{known: rangetable.Assigned(nfcUnicode), compose: make(map[[2]rune]rune)}
	rangetable.Visit(t.known, func(r rune) {
		if r < 0xc0 || r >= hangulS && r < hangulS+hangulCount {
			return
		}
		s := string(r)
		d := []rune(norm.NFD.String(s))
		if len(d) < 2 || norm.NFC.String(s) != s {
			return // no decomposition into two, or excluded from composition
		}
		last := len(d) - 1
		first := []rune(norm.NFC.String(string(d[:last])))
		t.compose[[2]rune{first[0], d[last]}] = r
	})
	return t
})

// Hangul syllables compose by arithmetic.
const (
	hangulL, hangulV, hangulT, hangulS = 0x1100, 0x1161, 0x11a7, 0xac00
	hangulLs, hangulVs, hangulTs       = 19, 21, 28
	hangulCount                        = hangulLs * hangulVs * hangulTs
)

// pair returns what a and b compose to.
func (t *nfcTable) pair(a, b rune) (rune, bool) {
	switch {
	case a >= hangulL && a < hangulL+hangulLs && b >= hangulV && b < hangulV+hangulVs:
		return hangulS + ((a-hangulL)*hangulVs+b-hangulV)*hangulTs, true
	case a >= hangulS && a < hangulS+hangulCount && (a-hangulS)%hangulTs == 0 && b > hangulT && b < hangulT+hangulTs:
		return a + b - hangulT, true
	}
	r, ok := t.compose[[2]rune{a, b}]
	return r, ok
}

// normalize returns s, which is valid UTF-8, in NFC.
func (t *nfcTable) normalize(s string) string {
	i := norm.NFC.QuickSpanString(s)
	if i == len(s) {
		return s
	}
	out := make([]byte, 0, len(s)+len(s)/8)
	var seg []classed
	for len(s) > 0 {
		out = append(out, s[:i]...)
		s = s[i:]
		if len(s) == 0 {
			break
		}
		var n int
		seg, n = t.segment(seg[:0], s)
		out = t.appendComposed(out, seg)
		s = s[n:]
		i = norm.NFC.QuickSpanString(s)
	}
	return string(out)
}

// classed is a character and its canonical combining class.
type classed struct {
	r   rune
	ccc uint8
}

// segment appends the decomposition of the first character of s and of those
// after it that may compose or be reordered with it, and returns the number of
// their bytes.
func (t *nfcTable) segment(seg []classed, s string) ([]classed, int) {
	n := 0
	for n < len(s) {
		r, size := utf8.DecodeRuneInString(s[n:])
		if !unicode.Is(t.known, r) {
			if n == 0 {
				return append(seg, classed{r, 0}), size
			}
			break
		}
		p := norm.NFC.PropertiesString(s[n:])
		if n > 0 && p.BoundaryBefore() {
			break
		}
		n += size
		if d := norm.NFD.PropertiesString(s[n-size:]).Decomposition(); d != nil {
			for len(d) > 0 {
				r, size := utf8.DecodeRune(d)
				seg = append(seg, classed{r, norm.NFD.Properties(d).CCC()})
				d = d[size:]
			}
			continue
		}
		seg = append(seg, classed{r, p.CCC()})
	}
	return seg, n
}

// appendComposed appends the composition of a decomposed segment.
func (t *nfcTable) appendComposed(out []byte, seg []classed) []byte {
	for i := 0; i < len(seg); i++ {
		j := i
		for j < len(seg) && seg[j].ccc != 0 {
			j++
		}
		sortMarks(seg[i:j])
		i = j
	}
	starter := -1   // index in kept
	between := -1   // class of the last one kept after the starter
	kept := seg[:0] // never longer than what was read
	for _, c := range seg {
		if starter >= 0 && between < int(c.ccc) { // else blocked; -1: nothing is between
			if r, ok := t.pair(kept[starter].r, c.r); ok {
				kept[starter].r = r
				continue
			}
		}
		if c.ccc == 0 {
			starter, between = len(kept), -1
		} else {
			between = int(c.ccc)
		}
		kept = append(kept, c)
	}
	for _, c := range kept {
		out = utf8.AppendRune(out, c.r)
	}
	return out
}

// sortMarks sorts a run of marks by class, keeping the order within a class.
func sortMarks(run []classed) {
	if len(run) <= 32 {
		slices.SortStableFunc(run, func(a, b classed) int { return cmp.Compare(a.ccc, b.ccc) })
		return
	}
	// By counting: a text may be one run of a million marks.
	var ends [256]int
	for _, c := range run {
		ends[c.ccc]++
	}
	for i := 1; i < len(ends); i++ {
		ends[i] += ends[i-1]
	}
	sorted := make([]classed, len(run))
	for _, c := range slices.Backward(run) {
		ends[c.ccc]--
		sorted[ends[c.ccc]] = c
	}
	copy(run, sorted)
}
