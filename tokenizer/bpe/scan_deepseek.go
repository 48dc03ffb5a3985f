package bpe

// deepseekPart returns the end of the first part of s by the first two splits
// of DeepSeek, \p{N}{1,3} and [一-龥぀-ゟ゠-ヿ]+ , and whether it is of numbers.
// Numbers are one word. The third split cuts every other part by itself.
func (sc *scanner) deepseekPart(s string) (end int, numbers bool) {
	c, n := sc.at(s, 0)
	switch {
	case c&number != 0:
		return sc.numbers(s, n), true
	case c&cjk == 0:
		return sc.runNot(s, n, number|cjk), false
	}
	return sc.run(s, n, cjk), false
}

// deepseek returns the end of the first word of a part by the third split:
//
//	[!-/:-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//
// where the first class stands for ASCII's punctuation. What no alternative
// matches, control characters for example, is a word up to the next match.
func (sc *scanner) deepseek(s string) int {
	c, n := sc.at(s, 0)
	if c&punct != 0 {
		if s[0] < 0x80 && len(s) > 1 && isASCIILetter(s[1]) {
			i := 2
			for i < len(s) && isASCIILetter(s[i]) {
				i++
			}
			sc.steps += i
			return i
		}
		return sc.newlines(s, sc.run(s, n, punct))
	}
	if c&(letter|mark) != 0 {
		return sc.run(s, n, letter|mark)
	}
	if n < len(s) {
		next, m := sc.at(s, n)
		if next&(letter|mark) != 0 && !isNewline(s[0]) {
			return sc.run(s, n+m, letter|mark)
		}
		if next&punct != 0 && s[0] == ' ' {
			return sc.newlines(s, sc.run(s, n+m, punct))
		}
	}
	if c&space != 0 {
		return sc.spaces(s)
	}
	return sc.deepseekGap(s, n)
}

// deepseekGap returns where the next match of the third split begins, after a
// character of n bytes that begins none.
func (sc *scanner) deepseekGap(s string, n int) int {
	for n < len(s) {
		c, m := sc.at(s, n)
		if c&(letter|mark|punct|space) != 0 {
			break
		}
		if n+m < len(s) {
			if next, _ := sc.at(s, n+m); next&(letter|mark) != 0 {
				break
			}
		}
		n += m
	}
	sc.steps += n
	return n
}

func isASCIILetter(b byte) bool { return b|0x20 >= 'a' && b|0x20 <= 'z' }
