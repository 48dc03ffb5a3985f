package bpe

import "unicode/utf8"

// SafeCut returns the largest position p of text, at most at, where cutting is
// exact: for text and for every text that begins with it, the ids of text[:p]
// followed by those of the rest are the ids of the whole. It returns 0 if there
// is none. So a long piece can be encoded, and its parts kept, one by one.
//
// These positions are after the last \r or \n of a run of white space, if the
// run ends within text (more white space to come could have a newline). There
// every known pattern ends a word, whatever is before, for \s*[\r\n]+ takes
// the run up to its last newline, or what [\r\n]* of the symbols before left of it.
// Where the pattern lets a slash follow the symbols too, the run must not end
// at a slash right after the newline. Nothing composes with a newline, so
// normalizing changes nothing.
func (e *Encoder) SafeCut(text string, at int) int {
	for at = min(at, len(text)); at > 0; {
		if !isNewline(text[at-1]) {
			at--
			continue
		}
		if e.lastNewline(text, at) {
			return at
		}
		at-- // the others of this run are not its last newline either
		for at > 0 {
			_, n := utf8.DecodeLastRuneInString(text[:at])
			if c, _ := e.classes.at(text, at-n); c&space == 0 {
				break
			}
			at -= n
		}
	}
	return 0
}

// lastNewline reports whether the newline before text[p] is the last of its
// run of white space and p is a safe cut.
func (e *Encoder) lastNewline(text string, p int) bool {
	for i := p; i < len(text); {
		c, n := e.classes.at(text, i)
		if c&space == 0 {
			return !e.slash || text[p] != '/'
		}
		if isNewline(text[i]) {
			return false
		}
		i += n
	}
	return false
}
