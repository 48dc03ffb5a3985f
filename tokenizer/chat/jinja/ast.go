package jinja

// The tree of a template. Statements first, then expressions.

type stmt any // one of the *Stmt types and textStmt

type (
	textStmt   struct{ text string }
	outputStmt struct{ x expr }
	ifStmt     struct {
		tests  []expr // if, elif, ...
		bodies [][]stmt
		els    []stmt
	}
	forStmt struct {
		targets []string
		tuple   bool // written as a, b
		iter    expr
		test    expr // may be nil
		body    []stmt
		els     []stmt
	}
	setStmt struct {
		targets []string
		tuple   bool
		object  string // set object.targets[0]
		x       expr
	}
	setBlockStmt struct {
		target string
		body   []stmt
	}
	macroStmt struct {
		name   string
		params []param
		body   []stmt
	}
	callStmt struct {
		params []string
		call   *callExpr
		body   []stmt
	}
	// generationStmt marks what the assistant wrote; only training looks at it.
	generationStmt struct{ body []stmt }
	breakStmt      struct{}
	continueStmt   struct{}
)

type param struct {
	name string
	def  expr // may be nil
}

type expr any // one of the *Expr types

type (
	nameExpr  struct{ id string }
	constExpr struct{ v any } // nil, bool, int64, float64, string
	attrExpr  struct {
		x    expr
		name string
	}
	itemExpr  struct{ x, key expr }
	sliceExpr struct{ x, lo, hi, step expr }
	callExpr  struct {
		fn   expr
		args []expr
		kw   []kwarg
	}
	filterExpr struct {
		x    expr
		name string
		args []expr
		kw   []kwarg
	}
	testExpr struct {
		x    expr
		name string
		args []expr
	}
	notExpr  struct{ x expr }
	signExpr struct {
		op string
		x  expr
	}
	binaryExpr struct {
		op   string // and, or, +, -, *, /, //, %, **
		l, r expr
	}
	concatExpr  struct{ parts []expr }
	compareExpr struct {
		first expr
		ops   []string
		rest  []expr
	}
	condExpr struct{ then, test, els expr } // els may be nil
	listExpr struct {
		items []expr
		tuple bool
	}
	dictExpr struct{ keys, items []expr }
)

type kwarg struct {
	name string
	x    expr
}

// eachStmt calls f for every statement below body, parents first, in the order
// of Jinja's find_all.
func eachStmt(body []stmt, f func(stmt)) {
	for _, s := range body {
		f(s)
		for _, b := range bodies(s) {
			eachStmt(b, f)
		}
	}
}

// bodies are the lists of statements inside s.
func bodies(s stmt) [][]stmt {
	switch s := s.(type) {
	case *ifStmt:
		// Jinja has the first body, then the branches, then else.
		return append(append([][]stmt{}, s.bodies...), s.els)
	case *forStmt:
		return [][]stmt{s.body, s.els}
	case *setBlockStmt:
		return [][]stmt{s.body}
	case *macroStmt:
		return [][]stmt{s.body}
	case *callStmt:
		return [][]stmt{s.body}
	case *generationStmt:
		return [][]stmt{s.body}
	}
	return nil
}

// exprs are the expressions of s itself.
func exprs(s stmt) []expr {
	switch s := s.(type) {
	case *outputStmt:
		return []expr{s.x}
	case *ifStmt:
		return s.tests
	case *forStmt:
		return []expr{s.iter, s.test}
	case *setStmt:
		return []expr{s.x}
	case *macroStmt:
		var xs []expr
		for _, p := range s.params {
			xs = append(xs, p.def)
		}
		return xs
	case *callStmt:
		return []expr{s.call}
	}
	return nil
}

// eachExpr calls f for x and every expression below it.
func eachExpr(x expr, f func(expr)) {
	if x == nil {
		return
	}
	f(x)
	for _, c := range children(x) {
		eachExpr(c, f)
	}
}

func children(x expr) []expr {
	kw := func(xs []expr, kw []kwarg) []expr {
		for _, k := range kw {
			xs = append(xs, k.x)
		}
		return xs
	}
	switch x := x.(type) {
	case *attrExpr:
		return []expr{x.x}
	case *itemExpr:
		return []expr{x.x, x.key}
	case *sliceExpr:
		return []expr{x.x, x.lo, x.hi, x.step}
	case *callExpr:
		return kw(append([]expr{x.fn}, x.args...), x.kw)
	case *filterExpr:
		return kw(append([]expr{x.x}, x.args...), x.kw)
	case *testExpr:
		return append([]expr{x.x}, x.args...)
	case *notExpr:
		return []expr{x.x}
	case *signExpr:
		return []expr{x.x}
	case *binaryExpr:
		return []expr{x.l, x.r}
	case *concatExpr:
		return x.parts
	case *compareExpr:
		return append([]expr{x.first}, x.rest...)
	case *condExpr:
		return []expr{x.then, x.test, x.els}
	case *listExpr:
		return x.items
	case *dictExpr:
		return append(append([]expr{}, x.keys...), x.items...)
	}
	return nil
}
