package bpe

// scanner cuts text into words. It is the state of one call; texts are valid
// UTF-8 and not empty wherever one is an argument.
type scanner struct {
	*classes
	pattern
	steps int // bytes looked at, for tests
}

// run returns where the run of characters of the classes c that goes on at
// s[i] ends.
func (sc *scanner) run(s string, i int, c class) int {
	from := i
	for i < len(s) {
		k := sc.bytes[s[i]]
		n := 1
		if k == multibyte {
			k, n = sc.at(s, i)
		}
		if k&c == 0 {
			break
		}
		i += n
	}
	sc.steps += i - from + 1
	return i
}

// runNot is run for characters of none of the classes c.
func (sc *scanner) runNot(s string, i int, c class) int {
	from := i
	for i < len(s) {
		k := sc.bytes[s[i]]
		n := 1
		if k == multibyte {
			k, n = sc.at(s, i)
		}
		if k&c != 0 {
			break
		}
		i += n
	}
	sc.steps += i - from + 1
	return i
}

// numbers returns the end of \p{N}{1,digits} at the begin of s, whose first
// character has n bytes and is one.
func (sc *scanner) numbers(s string, n int) int {
	for k := 1; k < sc.digits && n < len(s); k++ {
		c, m := sc.at(s, n)
		if c&number == 0 {
			break
		}
		n += m
	}
	return n
}

// newlines returns where the run of \r and \n, and of slashes if the pattern
// says so, that goes on at s[i] ends.
func (sc *scanner) newlines(s string, i int) int {
	from := i
	for i < len(s) && (isNewline(s[i]) || sc.slash && s[i] == '/') {
		i++
	}
	sc.steps += i - from + 1
	return i
}

func isNewline(b byte) bool { return b == '\n' || b == '\r' }

// symbolsOrSpace returns the end of the first word of s by the alternatives
// that end the patterns of cl100k and o200k:
//
//	?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//
// The first character, of class c and n bytes, is no number and none that words
// are made of.
func (sc *scanner) symbolsOrSpace(s string, c class, n int) int {
	if c&space == 0 {
		return sc.newlines(s, sc.runNot(s, n, space|sc.word|number))
	}
	if s[0] == ' ' && n < len(s) {
		if c, m := sc.at(s, n); c&(space|sc.word|number) == 0 {
			return sc.newlines(s, sc.runNot(s, n+m, space|sc.word|number))
		}
	}
	return sc.spaces(s)
}

// spaces returns the end of the first word of s, which begins with white
// space, by \s*[\r\n]+|\s+(?!\S)|\s+ : up to the last newline of the run of
// white space; without any, all of it at the end of the text, else all but
// its last character, which goes to the word after unless it is alone.
func (sc *scanner) spaces(s string) int {
	newline, last, i := 0, 0, 0
	for i < len(s) {
		c, n := sc.at(s, i)
		if c&space == 0 {
			break
		}
		if isNewline(s[i]) {
			newline = i + 1
		}
		last = i
		i += n
	}
	sc.steps += i + 1
	switch {
	case newline > 0:
		return newline
	case i == len(s) || last == 0:
		return i
	}
	return last
}

// contraction returns the length of the match of (?i:'s|'t|'re|'ve|'m|'ll|'d)
// at s[i], or 0. The only letter beyond ASCII that folds to one of these is ſ.
func contraction(s string, i int) int {
	if len(s) < i+2 || s[i] != '\'' {
		return 0
	}
	switch s[i+1] | 0x20 {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v':
		if len(s) > i+2 && s[i+2]|0x20 == 'e' {
			return 3
		}
	case 'l':
		if len(s) > i+2 && s[i+2]|0x20 == 'l' {
			return 3
		}
	}
	const longS = "\u017f"
	if s[i+1] == longS[0] && len(s) > i+2 && s[i+2] == longS[1] {
		return 3
	}
	return 0
}

// cl100k returns the end of the first word of s by the patterns qwen2, qwen3_5
// and llama3.
func (sc *scanner) cl100k(s string) int {
	if n := contraction(s, 0); n > 0 {
		return n
	}
	c, n := sc.at(s, 0)
	switch {
	case c&sc.word != 0: // a mark may as well be the character before the word
		return sc.run(s, n, sc.word)
	case c&number != 0:
		return sc.numbers(s, n)
	}
	if n < len(s) && !isNewline(s[0]) {
		if c, m := sc.at(s, n); c&sc.word != 0 {
			return sc.run(s, n+m, sc.word)
		}
	}
	return sc.symbolsOrSpace(s, c, n)
}
