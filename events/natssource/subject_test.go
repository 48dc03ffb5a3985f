package natssource

import (
	"strings"
	"testing"
	"unicode"

	"github.com/nats-io/nats-server/v2/server"
	"pgregory.net/rapid"
)

// TestEscape: any text becomes one token of a subject, and comes back.
func TestEscape(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		special := rapid.SampledFrom([]byte(".*> %/\xc3\n"))
		checkEscape(t, string(rapid.SliceOfN(rapid.OneOf(rapid.Byte(), special), 0, 60).Draw(t, "text")))
	})
}

func TestEscapeIsReadable(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		if got := Escape(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	f("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0%2E6B")
	f("default/pod-0", "default/pod-0")
	f("10.0.0.7:8000", "10%2E0%2E0%2E7:8000")
	f("a b*>%", "a%20b%2A%3E%25")
	f("é", "%C3%A9")
	f("", "%")
}

func TestUnescapeTakesOneSpellingOnly(t *testing.T) {
	for _, token := range []string{"", "a.b", "%2e", "%41", "%", "%2", "a%", "%GG", "é", " ", "*", ">"} {
		text, err := Unescape(token)
		if token == "%" {
			if err != nil || text != "" {
				t.Errorf("%q: %q, %v", token, text, err)
			}
			continue
		}
		if err == nil {
			t.Errorf("%q is taken for %q", token, text)
		}
	}
}

type failer interface{ Fatalf(string, ...any) }

func checkEscape(t failer, text string) {
	token := Escape(text)
	if token == "" || strings.ContainsFunc(token, func(r rune) bool {
		return r == '.' || r == '*' || r == '>' || unicode.IsSpace(r) || unicode.IsControl(r) || r > unicode.MaxASCII
	}) {
		t.Fatalf("%q becomes %q", text, token)
	}
	back, err := Unescape(token)
	if err != nil || back != text {
		t.Fatalf("%q becomes %q, which is %q, %v", text, token, back, err)
	}
	n := Name{Model: text, Instance: text, Rank: len(text)}
	for _, subject := range []string{n.Events(), n.Replay(), n.Status()} {
		if _, got, err := ParseSubject(subject); err != nil || got != n || !server.IsValidLiteralSubject(subject) {
			t.Fatalf("%+v becomes %q, which is %+v, %v", n, subject, got, err)
		}
	}
}

func FuzzParseSubject(f *testing.F) {
	f.Add("kv.events.Qwen/Qwen3-0%2E6B.default/pod-0.7")
	f.Add("kv.replay.%.%.0")
	f.Add("kv.events.a.b.00")
	f.Fuzz(func(t *testing.T, subject string) {
		checkEscape(t, subject)
		kind, n, err := ParseSubject(subject)
		if err == nil && n.subject(kind) != subject {
			t.Errorf("%q is %+v, which is %q", subject, n, n.subject(kind))
		}
	})
}
