package jinja

import (
	"fmt"
	"testing"

	"github.com/kvindex/kvindex/tokenizer/chat/pyjson"
)

// TestDictOfAnySize: many keys are looked up otherwise than few; the order is that
// in which they came.
func TestDictOfAnySize(t *testing.T) {
	for n := range 3 * manyKeys {
		d := &dict{}
		for i := range n {
			d.set(fmt.Sprint("k", i), newInt(int64(i)))
			if _, ok := d.get(fmt.Sprint("k", i+1)); ok {
				t.Fatalf("%d keys: there is one more", i+1)
			}
		}
		for i := range n {
			d.set(fmt.Sprint("k", i), newInt(int64(-i)))
		}
		if len(d.keys) != n || len(d.items) != n {
			t.Fatalf("%d keys and %d items, want %d", len(d.keys), len(d.items), n)
		}
		for i, k := range d.keys {
			if v, ok := d.get(k); !ok || k != fmt.Sprint("k", i) || v.asInt() != int64(-i) {
				t.Errorf("key %d of %d is %q: %v, %v", i, n, k, v, ok)
			}
		}
	}
}

// TestRequestIsNotWrittenTo: a request can be rendered again.
func TestRequestIsNotWrittenTo(t *testing.T) {
	const source = `{"a":1,"b":[2]}`
	given, err := pyjson.Parse(source, pyjson.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	tpl, err := Compile("{% set n = namespace(d=d) %}{% set n.d = 5 %}{% for x in d.b + d.b %}{{ x }}{{ d }}{% endfor %}")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		text, err := tpl.Render([]Var{{"d", given}}, Limits{}, testNow)
		if err != nil || text != "2{'a': 1, 'b': [2]}2{'a': 1, 'b': [2]}" {
			t.Errorf("%q, %v", text, err)
		}
	}
	if given.Len() != 2 || given.Get("b").Len() != 1 {
		t.Errorf("the request has %d members, b has %d", given.Len(), given.Get("b").Len())
	}
}

func TestEquals(t *testing.T) {
	list := func(items ...val) val { return newList(items) }
	d := func(keys string, items ...val) val {
		v := newDict()
		for i, k := range keys {
			v.asDict().set(string(k), items[i])
		}
		return v
	}
	f := func(a, b val, want bool) {
		t.Helper()
		if a.equals(b) != want || b.equals(a) != want {
			t.Errorf("%v == %v is not %v", a, b, want)
		}
	}
	one := newInt(1)
	f(one, newFloat(1), true)
	f(one, newBool(true), true)
	f(newFloat(1), newBool(true), true)
	f(newFloat(0), newBool(false), true)
	f(one, newFloat(1.5), false)
	f(newInt(1<<62+1), newFloat(1<<62), false)
	f(newInt(-1<<63), newFloat(-0x1p63), true)
	f(one, newString("1"), false)
	f(val{}, newNone(), false)
	f(val{}, val{}, true)
	f(list(one, list()), list(newFloat(1), list()), true)
	f(list(one), newTuple(one), false)
	f(list(one), list(one, one), false)
	f(d("ab", one, one), d("ba", one, newBool(true)), true)
	f(d("ab", one, one), d("ac", one, one), false)
	f(d("a", one), d("ab", one, one), false)
}
