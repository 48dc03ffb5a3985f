package pyjson

import (
	"strings"
	"testing"
)

// TestControlCharactersAnywhere: they are looked for eight bytes at a time.
func TestControlCharactersAnywhere(t *testing.T) {
	for n := range 20 {
		for at := range n {
			for _, c := range []byte{0, 1, '\n', 0x1f} {
				s := []byte(strings.Repeat("\u00ff ~\x7f", n)[:n])
				s[at] = c
				if got := control(string(s)); got != at {
					t.Fatalf("%q: found at %d, want %d", s, got, at)
				}
			}
			if got := control(strings.Repeat(" \x7f\x80\xff!", n)[:n]); got != -1 {
				t.Fatalf("found at %d in a string without any", got)
			}
		}
	}
}

func TestSimpleEscapes(t *testing.T) {
	f := func(raw, want string, ok bool) {
		t.Helper()
		if got, is := simple(raw); is != ok || ok && got != want {
			t.Errorf("%q: %q, %v", raw, got, is)
		}
	}
	f(``, "", true)
	f(`plain`, "plain", true)
	f(`\n\t\r\b\f\"\\\/`, "\n\t\r\b\f\"\\/", true)
	f(`a\\nb\n`, "a\\nb\n", true)
	f(`\u0041`, "", false)
	f(`\x`, "", false)
	f(`a\`, "", false)
}
