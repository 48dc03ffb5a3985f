package pyjson

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// show is Python's repr for the values of testdata/loads.jsonl.
func show(v Value) string {
	switch v.Kind() {
	case Null:
		return "None"
	case Bool:
		return map[bool]string{true: "True", false: "False"}[v.IsTrue()]
	case Int:
		return strconv.FormatInt(v.Int(), 10)
	case Float:
		return FormatFloat(v.Float())
	case String:
		return "'" + v.Str() + "'"
	}
	var parts []string
	for i, x := range v.Items() {
		s := show(x)
		if v.Kind() == Dict {
			s = "'" + v.Keys()[i] + "': " + s
		}
		parts = append(parts, s)
	}
	brackets := map[Kind]string{List: "[]", Dict: "{}"}[v.Kind()]
	return brackets[:1] + strings.Join(parts, ", ") + brackets[1:]
}

// TestAgainstPython reads what Python's json.loads read.
func TestAgainstPython(t *testing.T) {
	f, err := os.Open(filepath.Join("testdata", "loads.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var c struct {
			In   string
			Repr *string
		}
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		v, err := Parse(c.In, Limits{})
		var syntax *SyntaxError
		switch {
		case c.Repr == nil && !errors.As(err, &syntax):
			t.Errorf("Parse(%q) = %s, %v, but Python refuses it", c.In, show(v), err)
		case c.Repr != nil && err != nil:
			t.Errorf("Parse(%q): %v, but Python has %s", c.In, err, *c.Repr)
		case c.Repr != nil && show(v) != *c.Repr:
			t.Errorf("Parse(%q) = %s, but Python has %s", c.In, show(v), *c.Repr)
		}
	}
}

func TestLimits(t *testing.T) {
	for in, want := range map[string]error{
		"[[[[1]]]]":                       ErrDepth,
		`{"a":{"b":{"c":{}}}}`:            ErrDepth,
		"[[[1]]]":                         nil,
		"[1,2,3,4,5,6,7,8,9,10]":          ErrSize,
		"12345678901234567890":            ErrBigInt,
		`"\ud800"`:                        ErrSurrogate,
		`"\ud800\ud800"`:                  ErrSurrogate,
		`"\udc00\ud800"`:                  ErrSurrogate,
		`{"\udfff":1}`:                    ErrSurrogate,
		"[[[" + strings.Repeat("[", 1000): ErrDepth,
	} {
		if _, err := Parse(in, Limits{Depth: 3, Values: 10}); !errors.Is(err, want) {
			t.Errorf("Parse(%.20q): %v, want %v", in, err, want)
		}
	}
}

func TestKeysOfLargeObjects(t *testing.T) {
	var b strings.Builder
	b.WriteByte('{')
	for i := range 100 {
		for range 2 {
			b.WriteString(`"k` + strconv.Itoa(i%60) + `":` + strconv.Itoa(i) + ",")
		}
	}
	v, err := Parse(b.String()+`"k5":-1}`, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if v.Len() != 60 || v.Keys()[5] != "k5" || v.Get("k5").Int() != -1 || v.Get("k59").Int() != 59 || v.Get("k39").Int() != 99 {
		t.Errorf("got %s", show(v))
	}
}

// FuzzParse agrees with encoding/json on what JSON is, but for what Python
// takes besides.
func FuzzParse(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5,"x\u00e9",null,true]}`, `[NaN]`, `"\ud83d\ude00"`, `{"a":1,"a":2}`, "-0", "1e5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) {
			return
		}
		v, err := Parse(s, Limits{Depth: 1000})
		if json.Valid([]byte(s)) {
			same, e := Parse(s, Limits{Depth: 1000, Valid: true})
			if !errors.Is(e, err) || !reflect.DeepEqual(same, v) {
				t.Errorf("%q: %s, %v; known to be valid: %s, %v", s, show(v), err, show(same), e)
			}
		}
		if strings.Contains(s, "N") || strings.Contains(s, "I") || errors.Is(err, ErrDepth) ||
			errors.Is(err, ErrBigInt) || errors.Is(err, ErrSurrogate) {
			return
		}
		if valid := json.Valid([]byte(s)); valid != (err == nil) {
			t.Errorf("Parse(%q): %v, but json.Valid is %v", s, err, valid)
		}
		if err == nil && v.Kind() == String {
			var want string
			if json.Unmarshal([]byte(s), &want) != nil || want != v.Str() {
				t.Errorf("Parse(%q) = %q, want %q", s, v.Str(), want)
			}
		}
		skip := NewParser(s, Limits{Depth: 1000})
		if e := skip.Skip(); err == nil && (e != nil || skip.End() != nil) {
			t.Errorf("Skip(%q): %v, but Parse takes it", s, e)
		}
	})
}
