package pyjson

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestSpecialAnywhere: what ends the plain part of a string is looked for eight
// bytes at a time.
func TestSpecialAnywhere(t *testing.T) {
	for n := range 20 {
		for at := range n {
			for _, c := range []byte{0, 1, '\n', 0x1f, '"', '\\'} {
				s := []byte(strings.Repeat("\u00ff !#[]\x7f", n)[:n])
				s[at] = c
				for from := range n {
					want := at
					if from > at {
						want = n
					}
					if got := special(string(s), from); got != want {
						t.Fatalf("%q from %d: found at %d, want %d", s, from, got, want)
					}
				}
			}
		}
	}
}

func TestEscapes(t *testing.T) {
	f := func(inside, want string) {
		t.Helper()
		v, err := Parse(`"`+inside+`"`, Limits{})
		if err != nil || v.Str() != want {
			t.Errorf("%q: %q, %v", inside, v.Str(), err)
		}
	}
	f(``, "")
	f(`plain`, "plain")
	f(`\n\t\r\b\f\"\\\/`, "\n\t\r\b\f\"\\/")
	f(`a\\nb\n`, "a\\nb\n")
	f(`\u0041\u00fc\u20AC\ud83d\ude00`, "Aü€😀")
	f(`eight by\nte words\\ \u0041`, "eight by\nte words\\ A")

	bad := func(inside string, at int, want string) {
		t.Helper()
		_, err := Parse(`"`+inside, Limits{})
		if syntax, ok := errors.AsType[*SyntaxError](err); !ok || syntax.Offset != at+1 || syntax.Want != want {
			t.Errorf("%q: %v", inside, err)
		}
	}
	bad(`never closed`, 12, `"`)
	bad(`never closed\n`, 14, `"`)
	bad(`\`, 0, "an escape")
	bad(`plain text\`, 10, "an escape")
	bad(`\x"`, 0, "an escape")
	bad(`\u12"`, 0, "an escape")
	bad(`\u12g4"`, 0, "an escape")
	bad("a\x01b\"", 1, "no control character")
	bad("a\\n\nb\"", 3, "no control character")
}

// TestManyStrings: strings that were escaped share their memory, and do not
// write over each other.
func TestManyStrings(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	alphabet := []rune("ab \n\"\\\t/ü€😀\u0001")
	for range 200 {
		texts := make([]string, r.IntN(20))
		for i := range texts {
			text := make([]rune, r.IntN(40))
			for k := range text {
				text[k] = alphabet[r.IntN(len(alphabet))]
			}
			texts[i] = string(text)
		}
		b, err := json.Marshal(texts)
		if err != nil {
			t.Fatal(err)
		}
		for _, valid := range []bool{false, true} {
			v, err := Parse(string(b), Limits{Valid: valid})
			if err != nil || v.Len() != len(texts) {
				t.Fatalf("%s: %d texts, %v", b, v.Len(), err)
			}
			for i, x := range v.Items() {
				if x.Str() != texts[i] {
					t.Fatalf("%s: text %d is %q", b, i, x.Str())
				}
			}
		}
	}
}
