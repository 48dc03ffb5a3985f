package remote

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvindex/kvindex/tokenizer"
)

func TestRender(t *testing.T) {
	e := newEngine(t, map[string]answer{
		chatRender:       rendered12,
		completionRender: {body: `[{"token_ids":[3,4294967295]}]`},
	})
	r := newRig(t, Options{}, e.target("a"))
	f := func(kind Kind, body, path string, tokens ...uint32) {
		t.Helper()
		got, err := r.Tokens(t.Context(), "m", kind, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		want(t, "tokens", got, tokens)
		want(t, "requests", e.requests(), []asked{{path, body}})
	}
	f(Chat, chatBody, chatRender, 1, 2)
	f(Completion, completionBody, completionRender, 3, 4294967295)

	// One object is as good as a list of one.
	e.set(completionRender, answer{body: `{"token_ids":[5]}`})
	f(Completion, completionBody, completionRender, 5)
	want(t, "results", r.Stats().Results, map[Result]uint64{ResultOK: 3})
}

// The client's spelling reaches the engine: order of keys, form of numbers, and
// escapes change what a template prints.
func TestBodyIsKeptByteByByte(t *testing.T) {
	const odd = `{"z":14.0, "a":1e2, "\u00e9":"\ud83d\ude00\u2028</", "dup":1,"dup":2}`
	e := newEngine(t, map[string]answer{chatRender: rendered12, completionRender: rendered12})
	r := newRig(t, Options{}, e.target("a"))
	f := func(model string, kind Kind, body, sent string) {
		t.Helper()
		target := e.target("a")
		target.Model = model
		if _, err := r.TokensFrom(t.Context(), target, kind, []byte(body)); err != nil {
			t.Fatal(err)
		}
		got := e.requests()
		want(t, "body", got[len(got)-1].Body, sent)
	}
	messages := ` "messages" : [ {"content":"x","role":"user"} ]`

	// With /render: as it is, but for streams and the name.
	same := " {" + messages + `,"chat_template_kwargs":` + odd + `, "stream":false, "n":1.0}` + "\n"
	f("", Chat, same, same)
	f("", Chat, `{"stream":true,`+messages+`,"stream_options":{"include_usage":true}}`,
		`{"stream":false,`+messages+`,"stream_options":null}`)
	f("served", Chat, `{"model" : "x",`+messages+`, "model":"y"}`, `{"model" : "served",`+messages+`, "model":"served"}`)
	f("a\"b", Chat, `{`+messages+`}`, `{"model":"a\"b",`+messages+`}`)
	f("served", Completion, `{"prompt":"x","stream":1}`, `{"model":"served","prompt":"x","stream":false}`)
	f("served", Completion, ` { } `, ` {"model":"served" } `)

	// With /tokenize: the client's values.
	e.set(chatRender, noRoute)
	e.set(completionRender, noRoute)
	e.set(pathTokenize, tokenized12)
	f("", Chat, `{"model":"x","tools":[`+odd+`],"n":2,`+messages+`,"chat_template_kwargs":`+odd+`,"add_generation_prompt":false,"continue_final_message":true}`,
		`{"model":"x","messages":[ {"content":"x","role":"user"} ],"add_generation_prompt":false,"continue_final_message":true,`+
			`"add_special_tokens":false,"chat_template_kwargs":`+odd+`,"tools":[`+odd+`]}`)
	f("served", Chat, `{"model":"x",`+messages+`,"add_special_tokens":true,"chat_template":"{{ x }}"}`,
		`{"model":"served","messages":[ {"content":"x","role":"user"} ],"add_special_tokens":true,"chat_template":"{{ x }}"}`)
	f("", Completion, `{"prompt":"\u00e9","temperature":0.0}`, `{"prompt":"\u00e9"}`)
	f("", Completion, `{"prompt":["\u00e9"],"add_special_tokens":false}`, `{"prompt":"\u00e9","add_special_tokens":false}`)
}

func TestFallbackAndRecheck(t *testing.T) {
	for _, status := range []int{404, 405, 501} {
		e := newEngine(t, map[string]answer{
			chatRender:       {status, noRoute.body},
			completionRender: rendered12,
			pathTokenize:     tokenized12,
		})
		r := newRig(t, Options{RecheckRender: 10 * time.Minute}, e.target("a"))
		f := func(paths ...string) {
			t.Helper()
			got, err := r.chat()
			if err != nil {
				t.Fatal(err)
			}
			want(t, "tokens", got, ids(1, 2))
			want(t, "paths", e.paths(), paths)
		}
		f(chatRender, pathTokenize)
		f(pathTokenize) // it is remembered
		want(t, "endpoint", r.targetStats(t, "a").Chat, pathTokenize)
		if _, err := r.Tokens(t.Context(), "m", Completion, []byte(completionBody)); err != nil {
			t.Error(err)
		}
		want(t, "paths of a completion", e.paths(), []string{completionRender})

		r.clock.add(10*time.Minute - time.Nanosecond)
		f(pathTokenize)
		r.clock.add(time.Nanosecond)
		f(chatRender, pathTokenize)
		e.set(chatRender, rendered12)
		r.clock.add(10 * time.Minute)
		f(chatRender)
		want(t, "endpoint", r.targetStats(t, "a").Chat, chatRender)
	}
}

// An engine that does not know the model answers 404 like one that does not know
// the endpoint.
func TestModelMissing(t *testing.T) {
	for _, body := range []string{
		noModel.body,
		`{"object":"error","message":"The model does not exist.","type":"NotFoundError","code":404}`,
	} {
		e := newEngine(t, map[string]answer{chatRender: {404, body}, pathTokenize: tokenized12})
		r := newRig(t, Options{}, e.target("a"))
		_, err := r.chat()
		if !errors.Is(err, ErrRefused) {
			t.Errorf("%s: error %v, want ErrRefused", body, err)
		}
		want(t, "paths", e.paths(), []string{chatRender})
	}
}

func TestUnsupported(t *testing.T) {
	e := newEngine(t, map[string]answer{pathTokenize: tokenized12})
	target := e.target("a")
	r := newRig(t, Options{})
	f := func(kind Kind, body, reason string, paths ...string) {
		t.Helper()
		_, err := r.TokensFrom(t.Context(), target, kind, []byte(body))
		unknown := (*tokenizer.UnknownError)(nil)
		switch {
		case reason == "" && err != nil:
			t.Errorf("%s: error %v, want none", body, err)
		case reason != "" && (!errors.Is(err, ErrUnsupported) || !errors.As(err, &unknown) || !strings.Contains(unknown.Reason, reason)):
			t.Errorf("%s: error %v, want ErrUnsupported because of %s", body, err, reason)
		}
		want(t, "paths for "+body, e.paths(), paths)
	}
	chat := func(with string) string { return `{"messages":[{"role":"user","content":"x"}],` + with + `}` }

	// /tokenize does not know these.
	f(Chat, chat(`"reasoning_effort":"low"`), "reasoning_effort", chatRender)
	f(Chat, chat(`"documents":[{"text":"x"}]`), "documents")
	f(Chat, chat(`"truncate_prompt_tokens":5`), "truncate_prompt_tokens")
	f(Chat, chat(`"kv_transfer_params":{"prompt_token_ids":[1]}`), "kv_transfer_params")
	f(Chat, chat(`"tools":[{}],"tool_choice":"none"`), "tool_choice")
	f(Chat, `{"messages":[{"role":"assistant","reasoning_content":"x","content":"y"}]}`, "reasoning_content")
	f(Chat, `{"messages":{}}`, "messages of an unusual form")
	f(Completion, `{"prompt":[1,2]}`, "token ids", completionRender)
	f(Completion, `{"prompt":[[1,2]]}`, "token ids")
	f(Completion, `{"prompt_embeds":"x"}`, "prompt_embeds")
	f(Completion, `{"prompt":"x","truncate_prompt_tokens":5}`, "truncate_prompt_tokens")

	// Null is as good as nothing.
	f(Chat, chat(`"reasoning_effort":null,"documents":null`), "", pathTokenize)
	f(Chat, `{"messages":[{"role":"assistant","reasoning_content":null,"content":null}]}`, "", pathTokenize)
	f(Chat, `{"messages":[{"role":"user","content":["x",{"type":"text","text":"y"}]}]}`, "", pathTokenize)
	f(Chat, chat(`"tool_choice":"none"`), "", pathTokenize)

	// Nobody is asked about these.
	f(Chat, `{"messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"image_url","image_url":{"url":"u"}}]}]}`, "more than text")
	f(Chat, `{"messages":[{"role":"user","content":[{"image_url":"u"}]}]}`, "more than text")
	f(Completion, `{"prompt":["x","y"]}`, "several prompts")
	f(numKinds, `{}`, "no kind")

	target.RenderOnly = true
	f(Chat, chatBody, "tells other tokens")
	e.set(pathTokenize, noRoute)
	target.RenderOnly = false
	f(Chat, chatBody, "neither", pathTokenize)
}

// An engine that can tell is asked before and after one that cannot.
func TestUnsupportedGoesElsewhere(t *testing.T) {
	old := newEngine(t, map[string]answer{pathTokenize: tokenized12})
	current := newEngine(t, map[string]answer{chatRender: rendered12})
	r := newRig(t, Options{}, old.target("old"), current.target("current"))
	r.setLoad(old.target("old"), 0, 0)
	r.setLoad(current.target("current"), 5, 5)
	body := []byte(`{"messages":[],"reasoning_effort":"low"}`)
	f := func(oldPaths, currentPaths []string) {
		t.Helper()
		got, err := r.Tokens(context.Background(), "m", Chat, body)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "tokens", got, ids(1, 2))
		want(t, "paths at the old engine", old.paths(), oldPaths)
		want(t, "paths at the current engine", current.paths(), currentPaths)
	}
	f([]string{chatRender}, []string{chatRender})
	f(nil, []string{chatRender})
}

func TestBodyIsNoObject(t *testing.T) {
	r := newRig(t, Options{})
	for _, body := range []string{"", "x", "[]", "null", `{"a":}`, `{"a":1`, `{} {}`, `{"a":1}x`, `{"a":NaN}`, `{1:2}`} {
		for _, kind := range []Kind{Completion, Chat} {
			_, err := r.TokensFrom(t.Context(), Target{ID: "a", URL: "http://127.0.0.1:1"}, kind, []byte(body))
			if !errors.Is(err, ErrBody) {
				t.Errorf("%s %q: error %v, want ErrBody", kind, body, err)
			}
		}
	}
}

// TestTokenizeIsForwarded: requests for /tokenize go there, whatever they hold
// that only rendering would know, with the engine's name of the model.
func TestTokenizeIsForwarded(t *testing.T) {
	var bodies []string
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/tokenize" {
			http.NotFound(w, r)
			return
		}
		bodies = append(bodies, string(b))
		_, _ = io.WriteString(w, `{"count":2,"tokens":[5,6]}`)
	}))
	defer engine.Close()
	c, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for kind, body := range map[Kind]string{
		TokenizePrompt: `{"model":"mine","prompt":"x","n":14.0}`,
		TokenizeChat:   `{"model":"mine","messages":[{"role":"assistant","reasoning_content":"r"}],"documents":[],"n":14.0}`,
	} {
		bodies = nil
		ids, err := c.TokensFrom(t.Context(), Target{ID: "a", URL: engine.URL, Model: "its"}, kind, []byte(body))
		if err != nil || !slices.Equal(ids, []uint32{5, 6}) {
			t.Errorf("%v: %v, %v", kind, ids, err)
		}
		if want := strings.Replace(body, "mine", "its", 1); !slices.Equal(bodies, []string{want}) {
			t.Errorf("%v: sent %q, want %q", kind, bodies, want)
		}
	}
}
