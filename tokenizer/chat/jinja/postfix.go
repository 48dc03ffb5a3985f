package jinja

import (
	"slices"
	"strconv"
)

// postfix reads what follows a primary: .a, [i], (args).
func (p *parser) postfix(x expr) (expr, error) {
	for {
		var err error
		switch {
		case p.takeOp("."):
			t := p.peek()
			p.skip()
			switch t.kind {
			case tokName:
				x = &attrExpr{x, t.text}
			case tokInt:
				i, _ := strconv.ParseInt(t.text, 10, 64)
				x = &itemExpr{x, &constExpr{i}}
			default:
				return nil, p.fail("a dot without a name")
			}
		case p.takeOp("["):
			x, err = p.subscript(x)
		case p.takeOp("("):
			c := &callExpr{fn: x}
			c.args, c.kw, err = p.callArgs()
			x = c
		default:
			return x, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (p *parser) subscript(x expr) (expr, error) {
	var parts [3]expr
	n := 0
	for {
		t := p.peek()
		switch {
		case p.takeOp("]"):
			if n == 0 {
				if parts[0] == nil {
					return nil, p.fail("an empty subscript")
				}
				return &itemExpr{x, parts[0]}, nil
			}
			return &sliceExpr{x, parts[0], parts[1], parts[2]}, nil
		case p.takeOp(":"):
			if n++; n > 2 {
				return nil, p.fail("a slice of four parts")
			}
		case parts[n] != nil || t.kind == tokEnd:
			return nil, p.fail("a subscript of this form")
		default:
			var err error
			if parts[n], err = p.expression(); err != nil {
				return nil, err
			}
		}
	}
}

func (p *parser) callArgs() (args []expr, kw []kwarg, err error) {
	for first := true; !p.takeOp(")"); first = false {
		if !first {
			if !p.takeOp(",") {
				return nil, nil, p.fail("a call is not closed")
			}
			if p.takeOp(")") {
				break
			}
		}
		if t := p.peek(); t.kind == tokOp && (t.text == "*" || t.text == "**") {
			return nil, nil, p.fail("a call with %s", t.text)
		}
		if t := p.peek(); t.kind == tokName && len(p.toks) > 1 && p.toks[1] == (token{tokOp, "="}) {
			p.skip()
			p.skip()
			x, err := p.expression()
			if err != nil {
				return nil, nil, err
			}
			kw = append(kw, kwarg{t.text, x})
			continue
		}
		x, err := p.expression()
		if err != nil {
			return nil, nil, err
		}
		if kw != nil {
			return nil, nil, p.fail("an argument after a named one")
		}
		args = append(args, x)
	}
	return args, kw, nil
}

// filters reads | filter, is test and (args) behind an expression.
func (p *parser) filters(x expr) (expr, error) {
	for {
		switch {
		case p.takeOp("|"):
			t := p.peek()
			p.skip()
			if t.kind != tokName {
				return nil, p.fail("a filter without a name")
			}
			f := &filterExpr{x: x, name: t.text}
			if p.takeOp("(") {
				var err error
				if f.args, f.kw, err = p.callArgs(); err != nil {
					return nil, err
				}
			}
			x = f
		case p.takeName("is"):
			var err error
			if x, err = p.test(x); err != nil {
				return nil, err
			}
		case p.takeOp("("):
			c := &callExpr{fn: x}
			var err error
			if c.args, c.kw, err = p.callArgs(); err != nil {
				return nil, err
			}
			x = c
		default:
			return x, nil
		}
	}
}

func (p *parser) test(x expr) (expr, error) {
	not := p.takeName("not")
	t := p.peek()
	p.skip()
	if t.kind != tokName {
		return nil, p.fail("a test without a name")
	}
	test := &testExpr{x: x, name: t.text}
	next := p.peek()
	switch {
	case p.takeOp("("):
		args, kw, err := p.callArgs()
		if err != nil {
			return nil, err
		}
		if kw != nil {
			return nil, p.fail("a test with a named argument")
		}
		test.args = args
	case next.kind == tokOp && (next.text == "[" || next.text == "{"),
		next.kind == tokString, next.kind == tokInt, next.kind == tokFloat,
		next.kind == tokName && !slices.Contains([]string{"else", "or", "and", "if", "in", "not", "is", "recursive"}, next.text):
		arg, err := p.primary()
		if err == nil {
			arg, err = p.postfix(arg)
		}
		if err != nil {
			return nil, err
		}
		test.args = []expr{arg}
	}
	if not {
		return &notExpr{test}, nil
	}
	return test, nil
}
