package jinja

import (
	"slices"
	"strconv"
)

// The grammar of jinja2/parser.py, lowest precedence first.

// tuple reads an expression, or a tuple if commas follow.
func (p *parser) tuple(cond bool) (expr, error) {
	one := p.expression
	if !cond {
		one = p.or
	}
	first, err := one()
	if err != nil {
		return nil, err
	}
	if t := p.peek(); t.kind != tokOp || t.text != "," {
		return first, nil
	}
	items := []expr{first}
	for p.takeOp(",") {
		if t := p.peek(); t.kind == tokEnd || (t.kind == tokOp && t.text == ")") {
			break
		}
		x, err := one()
		if err != nil {
			return nil, err
		}
		items = append(items, x)
	}
	return &listExpr{items: items, tuple: true}, nil
}

func (p *parser) expression() (expr, error) {
	if p.depth++; p.depth > maxNesting {
		return nil, p.fail("nested too deep")
	}
	defer func() { p.depth-- }()
	x, err := p.or()
	if err != nil {
		return nil, err
	}
	for p.takeName("if") {
		test, err := p.or()
		if err != nil {
			return nil, err
		}
		c := &condExpr{then: x, test: test}
		if p.takeName("else") {
			if c.els, err = p.expression(); err != nil {
				return nil, err
			}
		}
		x = c
	}
	return x, nil
}

func (p *parser) or() (expr, error)  { return p.logic("or", p.and) }
func (p *parser) and() (expr, error) { return p.logic("and", p.not) }

func (p *parser) logic(word string, next func() (expr, error)) (expr, error) {
	x, err := next()
	for err == nil && p.takeName(word) {
		var r expr
		r, err = next()
		x = &binaryExpr{word, x, r}
	}
	return x, err
}

func (p *parser) not() (expr, error) {
	n := 0
	for p.takeName("not") {
		n++
	}
	x, err := p.compare()
	for ; n > 0; n-- {
		x = &notExpr{x}
	}
	return x, err
}

func (p *parser) compare() (expr, error) {
	first, err := p.binary([]string{"+", "-"}, p.concat)
	if err != nil {
		return nil, err
	}
	c := &compareExpr{first: first}
	for {
		var op string
		switch t := p.peek(); {
		case t.kind == tokOp && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, t.text):
			op = t.text
		case t.kind == tokName && t.text == "in":
			op = "in"
		case t.kind == tokName && t.text == "not" && len(p.toks) > 1 && p.toks[1] == token{tokName, "in"}:
			op = "not in"
			p.skip()
		default:
			if len(c.ops) == 0 {
				return first, nil
			}
			return c, nil
		}
		p.skip()
		x, err := p.binary([]string{"+", "-"}, p.concat)
		if err != nil {
			return nil, err
		}
		c.ops, c.rest = append(c.ops, op), append(c.rest, x)
	}
}

func (p *parser) binary(ops []string, next func() (expr, error)) (expr, error) {
	x, err := next()
	for err == nil {
		t := p.peek()
		if t.kind != tokOp || !slices.Contains(ops, t.text) {
			break
		}
		p.skip()
		var r expr
		r, err = next()
		x = &binaryExpr{t.text, x, r}
	}
	return x, err
}

func (p *parser) concat() (expr, error) {
	x, err := p.product()
	if t := p.peek(); err != nil || t.kind != tokOp || t.text != "~" {
		return x, err
	}
	c := &concatExpr{parts: []expr{x}}
	for p.takeOp("~") {
		if x, err = p.product(); err != nil {
			return nil, err
		}
		c.parts = append(c.parts, x)
	}
	return c, nil
}

func (p *parser) product() (expr, error) {
	return p.binary([]string{"*", "/", "//", "%"}, p.power)
}

func (p *parser) power() (expr, error) {
	return p.binary([]string{"**"}, func() (expr, error) { return p.unary(true) })
}

func (p *parser) unary(filters bool) (expr, error) {
	if p.depth++; p.depth > maxNesting {
		return nil, p.fail("nested too deep")
	}
	defer func() { p.depth-- }()
	var x expr
	var err error
	if t := p.peek(); t.kind == tokOp && (t.text == "-" || t.text == "+") {
		p.skip()
		if x, err = p.unary(false); err != nil {
			return nil, err
		}
		x = &signExpr{t.text, x}
	} else if x, err = p.primary(); err != nil {
		return nil, err
	}
	if x, err = p.postfix(x); err != nil || !filters {
		return x, err
	}
	return p.filters(x)
}

func (p *parser) primary() (expr, error) {
	t := p.peek()
	p.skip()
	switch t.kind {
	case tokName:
		switch t.text {
		case "true", "True":
			return &constExpr{true}, nil
		case "false", "False":
			return &constExpr{false}, nil
		case "none", "None":
			return &constExpr{nil}, nil
		}
		return &nameExpr{t.text}, nil
	case tokString:
		s := t.text
		for p.peek().kind == tokString {
			s += p.peek().text
			p.skip()
		}
		return &constExpr{s}, nil
	case tokInt:
		i, err := strconv.ParseInt(t.text, 10, 64)
		if err != nil || (len(t.text) > 1 && t.text[0] == '0') {
			return nil, p.fail("the number %s", t.text)
		}
		return &constExpr{i}, nil
	case tokFloat:
		f, err := strconv.ParseFloat(t.text, 64)
		if err != nil {
			return nil, p.fail("the number %s", t.text)
		}
		return &constExpr{f}, nil
	case tokOp:
		switch t.text {
		case "(":
			if p.takeOp(")") {
				return &listExpr{tuple: true}, nil
			}
			x, err := p.tuple(true)
			if err == nil && !p.takeOp(")") {
				err = p.fail("a bracket is not closed")
			}
			return x, err
		case "[":
			items, err := p.items("]")
			return &listExpr{items: items}, err
		case "{":
			return p.dict()
		}
	}
	return nil, p.fail("unexpected %q", t.text)
}

func (p *parser) items(end string) ([]expr, error) {
	var items []expr
	for !p.takeOp(end) {
		if len(items) > 0 {
			if !p.takeOp(",") {
				return nil, p.fail("expected %q", end)
			}
			if p.takeOp(end) {
				break
			}
		}
		x, err := p.expression()
		if err != nil {
			return nil, err
		}
		items = append(items, x)
	}
	return items, nil
}

func (p *parser) dict() (expr, error) {
	d := &dictExpr{}
	for !p.takeOp("}") {
		if len(d.keys) > 0 {
			if !p.takeOp(",") {
				return nil, p.fail("a dict is not closed")
			}
			if p.takeOp("}") {
				break
			}
		}
		k, err := p.expression()
		if err != nil {
			return nil, err
		}
		if !p.takeOp(":") {
			return nil, p.fail("a dict without values")
		}
		v, err := p.expression()
		if err != nil {
			return nil, err
		}
		d.keys, d.items = append(d.keys, k), append(d.items, v)
	}
	return d, nil
}
