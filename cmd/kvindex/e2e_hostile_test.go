package main_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestE2EHostileTexts: a running kvindex answers requests that are as large as
// it takes them, hostile as text, as JSON or as a template, with tokens,
// with "unknown" or with a 4xx, quotes none of them, and lives.
func TestE2EHostileTexts(t *testing.T) {
	const (
		secret = "Zq9-secret"
		room   = 8<<20 - 1000 // below the limit of a body
	)
	s := serve(t, fmt.Sprintf("models: [{name: m, tokenizer: %q}]", "../../tokenizer/testdata/demo-model"))
	s.eventually(func() string {
		if code, body := s.do(http.MethodGet, "/readyz", ""); code != http.StatusOK {
			return body
		}
		return ""
	})
	fill := func(unit string, size int) string { return strings.Repeat(unit, size/len(unit)) }
	prompt := func(text string) string { return `{"model":"m","prompt":"` + secret + text + `"}` }
	say := func(text string) string {
		return `{"model":"m","messages":[{"role":"user","content":"` + secret + text + `"}]}`
	}
	message := `{"role":"user","content":"` + secret + `"}`
	tools := func(parameters string) string {
		return `{"model":"m","messages":[` + message + `],"tools":[{"type":"function","function":{"name":"f","parameters":` + parameters + `}}]}`
	}
	type want struct {
		body string
		code int  // of the answer; 0 for 200 or 4xx
		may  bool // the tokens may be told
	}
	for what, w := range map[string]want{
		"letters":                   {prompt(fill("qwertyuiop", room)), 200, true},
		"one letter":                {say(fill("a", room)), 200, true},
		"spaces":                    {prompt(fill(" ", room)), 200, true},
		"newlines":                  {say(fill(`\n`, room)), 200, true},
		"mixed":                     {say(fill("wörd, 中文 'LL 12 ", room)), 200, true},
		"combining marks":           {prompt(fill("\u0323\u0301", room)), 200, true},
		"emoji":                     {say(fill("👩‍👩‍👧", room)), 200, true},
		"NUL":                       {prompt(fill(`\u0000`, room)), 200, true},
		"escaped letters":           {say(fill(`\u0041`, room)), 200, true},
		"100,000 special tokens":    {say(strings.Repeat("<|im_start|>", 100_000)), 200, true},
		"nearly tokens":             {prompt(fill("<|im_star", room)), 200, true},
		"100,000 messages":          {`{"model":"m","messages":[` + strings.TrimSuffix(strings.Repeat(message+",", 100_000), ",") + `]}`, 200, true},
		"a lone surrogate":          {prompt(`\ud800`), 0, false},
		"a lone surrogate, said":    {say(`\udfff`), 0, false},
		"invalid UTF-8":             {prompt("\xff\xc0\x80"), 0, false},
		"invalid UTF-8, said":       {say("\xed\xa0\x80"), 0, false},
		"a raw NUL":                 {prompt("\x00"), 0, false},
		"tools 10,000 deep":         {tools(strings.Repeat(`{"a":`, 10_000) + "1" + strings.Repeat("}", 10_000)), 0, false},
		"tools without end":         {tools(fill("[", room/2)), 0, false},
		"many tools":                {tools(strings.Repeat(`{}}},{"type":"function","function":{"name":"g","parameters":`, 50_000) + `{}`), http.StatusOK, true},
		"a number of a megabyte":    {tools("1" + fill("0", 1<<20)), 0, false},
		"a template of the request": {`{"model":"m","messages":[` + message + `],"chat_template":"{% for a in range(9999999) %}{% for b in range(9999999) %}x{% endfor %}{% endfor %}"}`, 0, false},
		"kwargs of a megabyte":      {`{"model":"m","messages":[` + message + `],"chat_template_kwargs":{"x":"` + fill("y", 1<<20) + `"}}`, 0, true},
		"over the limit":            {prompt(fill("a", 9<<20)), http.StatusRequestEntityTooLarge, false},
		"a cut body":                {say("x")[:40], 0, false},
	} {
		code, text := s.do(http.MethodPost, "/v1/query", w.body)
		var a struct {
			State  string `json:"state"`
			Reason string `json:"reason"`
			Tokens int    `json:"prompt_tokens"`
		}
		if err := json.Unmarshal([]byte(text), &a); err != nil {
			t.Errorf("%s: %d %v: %.300s", what, code, err, text)
		}
		switch {
		case w.code != 0 && code != w.code, code != http.StatusOK && code/100 != 4:
			t.Errorf("%s: %d %.300s", what, code, text)
		case strings.Contains(text, secret):
			t.Errorf("%s is quoted: %.300s", what, text)
		case code == http.StatusOK && a.State == "unknown" && a.Reason == "":
			t.Errorf("%s: unknown without a reason", what)
		case code == http.StatusOK && a.State != "unknown" && (!w.may || a.Tokens == 0):
			t.Errorf("%s: %+v", what, a)
		}
		t.Logf("%s: %d %s, %d tokens, %.150s", what, code, a.State, a.Tokens, a.Reason)
		if code, body := s.do(http.MethodPost, "/v1/query", `{"model":"m","prompt":"Hello there"}`); code != http.StatusOK {
			t.Fatalf("after %s: %d %s", what, code, body)
		}
	}
	if strings.Contains(s.log.String(), secret) {
		t.Error("the log quotes a request")
	}
}
