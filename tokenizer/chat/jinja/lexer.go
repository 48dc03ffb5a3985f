package jinja

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// pieceKind is what stands between two delimiters.
type pieceKind uint8

const (
	pieceText  pieceKind = iota // text to print as it is
	piecePrint                  // {{ ... }}
	pieceBlock                  // {% ... %}
)

type piece struct {
	kind pieceKind
	text string
	toks []token
	line int
}

type tokenKind uint8

const (
	tokEnd tokenKind = iota
	tokName
	tokString // text is the string itself, unescaped
	tokInt
	tokFloat
	tokOp
)

type token struct {
	kind tokenKind
	text string
}

// lexer cuts a template into pieces by the rules of jinja2/lexer.py: which
// white space around a tag is dropped is decided here.
type lexer struct {
	src    string
	pos    int
	pieces []piece
	// lineStart is whether what was consumed last ended in a newline; text
	// that follows begins a line then.
	lineStart bool
}

var (
	rawBegin = regexp.MustCompile(`^\{%[-+]?\s*raw\s*(?:-%\}\s*|%\})`)
	rawEnd   = regexp.MustCompile(`\{%([-+]?)\s*endraw\s*(?:\+%\}|-%\}\s*|%\}\n?)`)
	// Digits may be grouped by underscores in Jinja: refused, nobody does.
	numberToken = regexp.MustCompile(`^[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?`)
	nameToken   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*`)
	stringToken = regexp.MustCompile(`^(?s:'[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*")`)
	opToken     = regexp.MustCompile(`^(?://|\*\*|==|!=|>=|<=|[-+/*%~\[\](){}><=.:|,;])`)
)

func lex(src string) ([]piece, error) {
	src = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(src)
	src = strings.TrimSuffix(src, "\n")
	l := &lexer{src: src, lineStart: true}
	for l.pos < len(l.src) {
		if err := l.next(); err != nil {
			return nil, err
		}
	}
	return l.pieces, nil
}

// next consumes the text up to the next tag, and the tag.
func (l *lexer) next() error {
	at := opener(l.src, l.pos)
	if at < 0 {
		l.emitText(l.src[l.pos:])
		l.pos = len(l.src)
		return nil
	}
	kind := l.src[at+1]
	sign := signAt(l.src, at+2)
	l.emitText(l.trimBefore(l.src[l.pos:at], sign, kind == '{'))
	if kind == '%' {
		if n := len(rawBegin.FindString(l.src[at:])); n > 0 {
			return l.raw(at + n)
		}
	}
	l.pos = at + 2
	if sign != 0 {
		l.pos++
	}
	if kind == '#' {
		return l.comment()
	}
	return l.tag(kind == '{')
}

// opener is the place of the next {{, {% or {#, or -1.
func opener(s string, from int) int {
	for i := from; i+1 < len(s); i++ {
		j := strings.IndexByte(s[i:], '{')
		if j < 0 || i+j+1 >= len(s) {
			return -1
		}
		i += j
		if c := s[i+1]; c == '{' || c == '%' || c == '#' {
			return i
		}
	}
	return -1
}

func signAt(s string, i int) byte {
	if i < len(s) && (s[i] == '-' || s[i] == '+') {
		return s[i]
	}
	return 0
}

// trimBefore drops what a tag's sign, or lstrip_blocks, takes from the text
// before it.
func (l *lexer) trimBefore(text string, sign byte, variable bool) string {
	if sign == '-' {
		return strings.TrimRightFunc(text, isSpace)
	}
	if sign == '+' || variable {
		return text
	}
	line := strings.LastIndexByte(text, '\n') + 1
	if (line > 0 || l.lineStart) && strings.TrimLeftFunc(text[line:], isSpace) == "" {
		return text[:line]
	}
	return text
}

func (l *lexer) emitText(text string) {
	if text == "" {
		return
	}
	if n := len(l.pieces); n > 0 && l.pieces[n-1].kind == pieceText {
		l.pieces[n-1].text += text
		return
	}
	l.pieces = append(l.pieces, piece{kind: pieceText, text: text})
}

// consumed moves on to end, which follows what was read since from.
func (l *lexer) consumed(end int) {
	l.pos = end
	l.lineStart = end > 0 && l.src[end-1] == '\n'
}

func (l *lexer) comment() error {
	i := strings.Index(l.src[l.pos:], "#}")
	if i < 0 {
		return l.fail("a comment is not closed")
	}
	end := l.pos + i
	sign := byte(0)
	if i > 0 {
		sign = signAt(l.src, end-1)
	}
	l.consumed(l.trimAfter(end+2, sign, true))
	return nil
}

// trimAfter is where the text goes on after a tag that ends before end.
func (l *lexer) trimAfter(end int, sign byte, block bool) int {
	switch {
	case sign == '-':
		return len(l.src) - len(strings.TrimLeftFunc(l.src[end:], isSpace))
	case sign == 0 && block && strings.HasPrefix(l.src[end:], "\n"):
		return end + 1
	}
	return end
}

func (l *lexer) raw(from int) error {
	l.consumed(from)
	m := rawEnd.FindStringSubmatchIndex(l.src[from:])
	if m == nil {
		return l.fail("{% raw %} is not closed")
	}
	l.emitText(l.trimBefore(l.src[from:from+m[0]], signAt(l.src, from+m[2]), false))
	l.consumed(from + m[1])
	return nil
}

// tag reads tokens up to the end of the tag, which does not count inside
// brackets.
func (l *lexer) tag(variable bool) error {
	p := piece{kind: pieceBlock, line: l.line()}
	closer := "%}"
	if variable {
		p.kind, closer = piecePrint, "}}"
	}
	var open []byte
	for {
		l.pos = len(l.src) - len(strings.TrimLeftFunc(l.src[l.pos:], isSpace))
		rest := l.src[l.pos:]
		if rest == "" {
			return l.fail("a tag is not closed")
		}
		if len(open) == 0 {
			sign := byte(0)
			if !strings.HasPrefix(rest, closer) {
				if sign = signAt(rest, 0); sign == '+' && variable {
					sign = 0
				}
			}
			if (sign != 0 && strings.HasPrefix(rest[1:], closer)) || strings.HasPrefix(rest, closer) {
				end := l.pos + len(closer)
				if sign != 0 {
					end++
				}
				l.consumed(l.trimAfter(end, sign, !variable))
				l.pieces = append(l.pieces, p)
				return nil
			}
		}
		t, n, err := l.token(rest)
		if err != nil {
			return err
		}
		if t.kind == tokOp {
			if open, err = l.balance(open, t.text); err != nil {
				return err
			}
		}
		p.toks = append(p.toks, t)
		l.pos += n
	}
}

func (l *lexer) balance(open []byte, op string) ([]byte, error) {
	switch op {
	case "(", "[", "{":
		return append(open, op[0]), nil
	case ")", "]", "}":
		pair := map[string]byte{")": '(', "]": '[', "}": '{'}[op]
		if len(open) == 0 || open[len(open)-1] != pair {
			return nil, l.fail("unexpected %q", op)
		}
		return open[:len(open)-1], nil
	}
	return open, nil
}

// token reads the token at the front of s and its length.
func (l *lexer) token(s string) (token, int, error) {
	if m := nameToken.FindString(s); m != "" {
		return token{tokName, m}, len(m), nil
	}
	if m := numberToken.FindString(s); m != "" {
		// What follows must not belong to it: 0x10, 1_000.
		if r, _ := utf8.DecodeRuneInString(s[len(m):]); r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) {
			return token{}, 0, l.fail("a number of this form")
		}
		if strings.ContainsAny(m, ".eE") {
			return token{tokFloat, m}, len(m), nil
		}
		return token{tokInt, m}, len(m), nil
	}
	if m := stringToken.FindString(s); m != "" {
		text, err := unescape(m[1 : len(m)-1])
		if err != nil {
			return token{}, 0, err
		}
		return token{tokString, text}, len(m), nil
	}
	if m := opToken.FindString(s); m != "" {
		return token{tokOp, m}, len(m), nil
	}
	return token{}, 0, l.fail("unexpected %.10q", s)
}

func (l *lexer) line() int { return 1 + strings.Count(l.src[:l.pos], "\n") }

func (l *lexer) fail(format string, args ...any) error {
	return unsupported("line %d of the template: "+format, append([]any{l.line()}, args...)...)
}

// isSpace is Python's str.isspace, which the regular expressions of Jinja use
// too.
func isSpace(r rune) bool { return unicode.IsSpace(r) || (r >= 0x1c && r <= 0x1f) }
