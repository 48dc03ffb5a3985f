package bpe

// o200k returns the end of the first word of s by the patterns o200k and
// tekken. Their words of letters are, with U for [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
// and W for [\p{Ll}\p{Lm}\p{Lo}\p{M}],
//
//	[^\r\n\p{L}\p{N}]?U*W+|[^\r\n\p{L}\p{N}]?U+W*
//
// tried in this order: first with the optional character, then without, which
// can only help if that character is a mark.
func (sc *scanner) o200k(s string) int {
	c, n := sc.at(s, 0)
	end := 0
	switch {
	case c&letter != 0:
		first, second := sc.camel(s, 0)
		end = max(first, second) // the second is 0 if the first matched
	case c&number != 0:
		return sc.numbers(s, n)
	case !isNewline(s[0]):
		first, second := sc.camel(s, n)
		switch {
		case first > 0:
			end = first
		case c&mark != 0:
			end = n // the mark alone is a W, and no other follows within the U
		default:
			end = second
		}
	}
	if end == 0 {
		return sc.symbolsOrSpace(s, c, n)
	}
	if sc.contractions {
		end += contraction(s, end)
	}
	return end
}

// camel returns the ends of the matches of U*W+ and, if that does not match,
// of U+W* at s[i]; 0 for no match.
func (sc *scanner) camel(s string, i int) (first, second int) {
	from, both := i, 0 // both: the end of the last character of U that is in W too
	next := class(0)
	for i < len(s) {
		c, n := sc.at(s, i)
		if c&(upper|caseless|mark) == 0 {
			next = c
			break
		}
		i += n
		if c&upper == 0 {
			both = i
		}
	}
	sc.steps += i - from + 1
	switch {
	case next&lower != 0:
		return sc.run(s, i, lower|caseless|mark), 0
	case both > 0:
		return both, 0 // U* gives back what follows it, and it
	case i > from:
		return 0, i
	}
	return 0, 0
}
