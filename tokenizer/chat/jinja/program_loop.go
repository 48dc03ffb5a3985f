package jinja

import (
	"errors"
)

// loopState is what a template can ask of a loop.
type loopState struct {
	items   []val
	i       int
	changed val // what loop.changed was given last
}

// loop compiles a for statement. Every round has a scope of its own.
func (c *compiler) loop(s *forStmt) exec {
	c.define(s.targets...)
	if len(s.targets) > 2 || (s.tuple && len(s.targets) == 1) {
		c.fail("a loop with %d targets", len(s.targets))
	}
	iter := c.operator([]string{"iter", "pairs"}[min(len(s.targets), 2)-1], s.iter)
	keep := c.selection(s)
	var body exec
	var slots []int
	round := c.inside(s.body, true, s.targets, func() {
		for _, t := range s.targets {
			slots = append(slots, c.scope.slot(t))
		}
		body = c.body(s.body)
	})
	var els exec
	without := c.inside(s.els, false, nil, func() { els = c.body(s.els) })
	return func(f *frame) error {
		v, err := iter(f)
		if err != nil {
			return err
		}
		items := v.asList().items
		if keep != nil {
			if items, err = keep(f, items); err != nil {
				return err
			}
		}
		state := &loopState{items: items}
		inner := frame{r: f.r, scope: round.newScope(f.scope), out: f.out}
		inner.scope.loop = state
		ended := false // a round has come to its end: Jinja runs else if none has
	rounds:
		for i, item := range items {
			state.i = i
			clear(inner.scope.vars)
			bind(inner.scope, slots, item)
			switch err := body(&inner); {
			case err == nil:
				ended = true
			case errors.Is(err, errContinue):
			case errors.Is(err, errBreak):
				break rounds
			default:
				return err
			}
		}
		if ended {
			return nil
		}
		return els(&frame{r: f.r, scope: without.newScope(f.scope), out: f.out})
	}
}

// bind gives an item of a loop to its targets.
func bind(s *scope, slots []int, item val) {
	if len(slots) == 1 {
		s.assign(slots[0], item)
		return
	}
	two, _ := iterate(item) // opPairs has seen that it can be
	for i, slot := range slots {
		s.assign(slot, two[i])
	}
}

// selection compiles the test of a loop, nil if there is none: it is applied to
// all items before the first round.
func (c *compiler) selection(s *forStmt) func(f *frame, items []val) ([]val, error) {
	if s.test == nil {
		return nil
	}
	if changes(s.body, s.test) {
		c.fail("a loop that changes what its test looks at")
	}
	var test eval
	var slots []int
	l := c.inside(nil, false, s.targets, func() {
		for _, t := range s.targets {
			slots = append(slots, c.scope.slot(t))
		}
		test = c.expr(s.test)
	})
	return func(f *frame, items []val) ([]val, error) {
		var kept []val
		inner := frame{r: f.r, scope: l.newScope(f.scope), out: f.out}
		for _, item := range items {
			bind(inner.scope, slots, item)
			v, err := test(&inner)
			if err != nil {
				return nil, err
			}
			if v.truth() {
				kept = append(kept, item)
			}
		}
		return kept, nil
	}
}

// changes reports whether body may set an attribute that x reads: Python tests an
// item just before its round, or one round earlier.
func changes(body []stmt, x expr) bool {
	found := false
	eachStmt(body, func(s stmt) {
		set, ok := s.(*setStmt)
		if !ok || set.object == "" {
			return
		}
		eachExpr(x, func(x expr) {
			n, isName := x.(*nameExpr)
			_, isCall := x.(*callExpr)
			found = found || isCall || isName && n.id == set.object
		})
	})
	return found
}

// theLoop returns how to find the loop around, nil if there is none.
func (c *compiler) theLoop() func(f *frame) *loopState {
	up := 0
	for l := c.scope; l != nil; l, up = l.parent, up+1 {
		if l.loop {
			return func(f *frame) *loopState {
				s := f.scope
				for range up {
					s = s.parent
				}
				return s.loop
			}
		}
	}
	return nil
}

// loopAttrs are the attributes of a loop.
var loopAttrs = map[string]func(l *loopState) val{
	"index":     func(l *loopState) val { return newInt(int64(l.i + 1)) },
	"index0":    func(l *loopState) val { return newInt(int64(l.i)) },
	"revindex":  func(l *loopState) val { return newInt(int64(len(l.items) - l.i)) },
	"revindex0": func(l *loopState) val { return newInt(int64(len(l.items) - l.i - 1)) },
	"first":     func(l *loopState) val { return newBool(l.i == 0) },
	"last":      func(l *loopState) val { return newBool(l.i == len(l.items)-1) },
	"length":    func(l *loopState) val { return newInt(int64(len(l.items))) },
	"depth":     func(*loopState) val { return newInt(1) }, // it counts recursion, which is refused
	"depth0":    func(*loopState) val { return newInt(0) },
	"previtem":  func(l *loopState) val { return l.at(l.i - 1) },
	"nextitem":  func(l *loopState) val { return l.at(l.i + 1) },
}

func (l *loopState) at(i int) val {
	if i < 0 || i >= len(l.items) {
		return val{}
	}
	return l.items[i]
}

// loopCall compiles loop.cycle(...) and loop.changed(...).
func (c *compiler) loopCall(name string, x *callExpr) eval {
	loop := c.theLoop()
	if loop == nil || x.kw != nil || (name != "cycle" && name != "changed") {
		c.fail("loop.%s() like this", name)
		return nil
	}
	args := c.exprs(x.args)
	return func(f *frame) (val, error) {
		values, err := f.values(args)
		if err != nil {
			return val{}, err
		}
		l := loop(f)
		if name == "cycle" {
			if len(values) == 0 {
				return val{}, raised("no items for cycling given")
			}
			return values[l.i%len(values)], nil
		}
		now := newList(values)
		changed := !now.equals(l.changed)
		l.changed = now
		return newBool(changed), nil
	}
}
