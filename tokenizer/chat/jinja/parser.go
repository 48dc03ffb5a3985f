package jinja

import "slices"

// maxNesting bounds statements in statements and expressions in expressions.
const maxNesting = 200

type parser struct {
	pieces []piece
	at     int     // the piece being read
	toks   []token // what is left of it
	depth  int
}

func parse(src string) ([]stmt, error) {
	pieces, err := lex(src)
	if err != nil {
		return nil, err
	}
	p := &parser{pieces: pieces}
	body, end, err := p.body()
	if err == nil && end != "" {
		err = p.fail("unexpected %q", end)
	}
	return body, err
}

// body reads statements up to a tag whose first word is in ends, reads that
// word and returns it; without ends, up to the end of the template.
func (p *parser) body(ends ...string) (body []stmt, end string, err error) {
	if p.depth++; p.depth > maxNesting {
		return nil, "", p.fail("nested too deep")
	}
	defer func() { p.depth-- }()
	for ; p.at < len(p.pieces); p.at++ {
		piece := p.pieces[p.at]
		p.toks = piece.toks
		switch piece.kind {
		case pieceText:
			body = append(body, &textStmt{piece.text})
		case piecePrint:
			x, err := p.tuple(true)
			if err != nil {
				return nil, "", err
			}
			if err := p.done(); err != nil {
				return nil, "", err
			}
			body = append(body, &outputStmt{x})
		case pieceBlock:
			word := p.peek()
			if word.kind != tokName {
				return nil, "", p.fail("a tag without a name")
			}
			p.skip()
			if slices.Contains(ends, word.text) {
				return body, word.text, nil
			}
			s, err := p.statement(word.text)
			if err != nil {
				return nil, "", err
			}
			if err := p.done(); err != nil {
				return nil, "", err
			}
			body = append(body, s)
		}
	}
	if len(ends) > 0 {
		p.at = len(p.pieces) - 1
		return nil, "", p.fail("{%% %s %%} is missing", ends[len(ends)-1])
	}
	return body, "", nil
}

// inside reads the body of the statement whose tag was just read.
func (p *parser) inside(ends ...string) ([]stmt, string, error) {
	if err := p.done(); err != nil {
		return nil, "", err
	}
	p.at++
	return p.body(ends...)
}

func (p *parser) statement(word string) (stmt, error) {
	switch word {
	case "if":
		return p.ifStatement()
	case "for":
		return p.forStatement()
	case "set":
		return p.setStatement()
	case "macro":
		return p.macroStatement()
	case "call":
		return p.callStatement()
	case "generation":
		body, _, err := p.inside("endgeneration")
		return &generationStmt{body}, err
	case "break":
		return &breakStmt{}, nil
	case "continue":
		return &continueStmt{}, nil
	}
	return nil, p.fail("the tag %q", word)
}

func (p *parser) ifStatement() (stmt, error) {
	s := &ifStmt{}
	for {
		test, err := p.tuple(false)
		if err != nil {
			return nil, err
		}
		body, end, err := p.inside("elif", "else", "endif")
		if err != nil {
			return nil, err
		}
		s.tests, s.bodies = append(s.tests, test), append(s.bodies, body)
		switch end {
		case "else":
			s.els, _, err = p.inside("endif")
			return s, err
		case "endif":
			return s, nil
		}
	}
}

func (p *parser) forStatement() (stmt, error) {
	s := &forStmt{}
	var err error
	if s.targets, s.tuple, err = p.targets(); err != nil {
		return nil, err
	}
	if !p.takeName("in") {
		return nil, p.fail("a loop without in")
	}
	if s.iter, err = p.tuple(false); err != nil {
		return nil, err
	}
	if p.takeName("if") {
		if s.test, err = p.expression(); err != nil {
			return nil, err
		}
	}
	if p.takeName("recursive") {
		return nil, p.fail("a recursive loop")
	}
	body, end, err := p.inside("endfor", "else")
	if err != nil {
		return nil, err
	}
	s.body = body
	if end == "else" {
		s.els, _, err = p.inside("endfor")
	}
	return s, err
}

// targets reads a or a, b.
func (p *parser) targets() (names []string, tuple bool, err error) {
	paren := p.takeOp("(")
	for {
		t := p.peek()
		if t.kind != tokName || t.text == "in" {
			return nil, false, p.fail("a target that is no name")
		}
		p.skip()
		names = append(names, t.text)
		if !p.takeOp(",") {
			break
		}
		tuple = true
		if t := p.peek(); t.kind != tokName || t.text == "in" {
			break
		}
	}
	if paren && !p.takeOp(")") {
		return nil, false, p.fail("a target that is no name")
	}
	return names, tuple, nil
}

func (p *parser) setStatement() (stmt, error) {
	s := &setStmt{}
	var err error
	if s.targets, s.tuple, err = p.targets(); err != nil {
		return nil, err
	}
	if p.takeOp(".") {
		t := p.peek()
		if t.kind != tokName || s.tuple {
			return nil, p.fail("a target that is no name")
		}
		p.skip()
		s.object, s.targets = s.targets[0], []string{t.text}
	}
	if p.takeOp("=") {
		s.x, err = p.tuple(true)
		return s, err
	}
	if s.object != "" || s.tuple {
		return nil, p.fail("a block set to something that is no name")
	}
	body, _, err := p.inside("endset")
	return &setBlockStmt{s.targets[0], body}, err
}

func (p *parser) macroStatement() (stmt, error) {
	t := p.peek()
	p.skip()
	s := &macroStmt{name: t.text}
	if t.kind != tokName || !p.takeOp("(") {
		return nil, p.fail("a macro without a name")
	}
	for !p.takeOp(")") {
		if len(s.params) > 0 && !p.takeOp(",") {
			return nil, p.fail("a macro's parameters")
		}
		t := p.peek()
		if t.kind != tokName {
			return nil, p.fail("a macro's parameters")
		}
		p.skip()
		param := param{name: t.text}
		if p.takeOp("=") {
			var err error
			if param.def, err = p.expression(); err != nil {
				return nil, err
			}
		}
		s.params = append(s.params, param)
	}
	var err error
	s.body, _, err = p.inside("endmacro")
	return s, err
}

func (p *parser) callStatement() (stmt, error) {
	s := &callStmt{}
	if p.takeOp("(") && !p.takeOp(")") {
		var err error
		if s.params, _, err = p.targets(); err != nil {
			return nil, err
		}
		if !p.takeOp(")") {
			return nil, p.fail("the parameters of a call block")
		}
	}
	x, err := p.expression()
	if err != nil {
		return nil, err
	}
	call, ok := x.(*callExpr)
	if !ok {
		return nil, p.fail("a call block that calls nothing")
	}
	s.call = call
	s.body, _, err = p.inside("endcall")
	return s, err
}

func (p *parser) peek() token {
	if len(p.toks) == 0 {
		return token{}
	}
	return p.toks[0]
}

func (p *parser) skip() {
	if len(p.toks) > 0 {
		p.toks = p.toks[1:]
	}
}

func (p *parser) takeOp(op string) bool {
	if t := p.peek(); t.kind != tokOp || t.text != op {
		return false
	}
	p.skip()
	return true
}

func (p *parser) takeName(name string) bool {
	if t := p.peek(); t.kind != tokName || t.text != name {
		return false
	}
	p.skip()
	return true
}

func (p *parser) done() error {
	if len(p.toks) > 0 {
		return p.fail("unexpected %q", p.toks[0].text)
	}
	return nil
}

func (p *parser) fail(format string, args ...any) error {
	line := 0
	if p.at >= 0 && p.at < len(p.pieces) {
		line = p.pieces[p.at].line
	}
	return unsupported("line %d of the template: "+format, append([]any{line}, args...)...)
}
