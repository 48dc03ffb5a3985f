package chat

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

const chatML = `{%- for m in messages %}
    {{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{% endif %}`

// render gives the text of a body, or fails the test.
func render(t *testing.T, r *Renderer, kind Kind, body string) string {
	t.Helper()
	text, err := renderBody(r, nil, []byte(body), kind)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return text
}

func check(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\nwant %q\ngot  %q", what, want, got)
	}
}

// The tests below are the ways in which other routers lost the engine's text,
// each found in production somewhere.

func TestToolsKeepOrderSpacesAndCharacters(t *testing.T) {
	r := compile(t, "{{ tools | tojson }}")
	got := render(t, r, ChatCompletions, `{"messages":[{"role":"user","content":"x"}],"tools":[{"function":{"parameters":{"z":1,"a":{"q":14.0,"b":[1e3,null,true]}},`+
		`"name":"f<>&'\"","description":"é\u4e2d\ud83d\ude00"},"type":"function"}]}`)
	check(t, "tools", got, `[{"type": "function", "function": {"name": "f<>&'\"", "description": "é中😀", `+
		`"parameters": {"z": 1, "a": {"q": 14.0, "b": [1000.0, null, true]}}}}]`)
}

func TestTojsonKeepsUnicode(t *testing.T) {
	r := compile(t, "{{ messages[0].content | tojson }}|{{ messages[0].content | tojson(ensure_ascii=true) }}")
	got := render(t, r, Tokenize, `{"messages":[{"role":"user","content":"é\u0007\u007f\n😀"}]}`)
	check(t, "text", got, `"é\u0007`+"\x7f"+`\n😀"|"\u00e9\u0007\u007f\n\ud83d\ude00"`)
}

func TestDotNumberIndexing(t *testing.T) {
	r := compile(t, "{{ messages.0.content }}{{ (messages | first).role }}")
	check(t, "text", render(t, r, Tokenize, `{"messages":[{"role":"user","content":"x"}]}`), "xuser")
}

// A dash belongs to the text before it only: {%- after }} must not eat the text
// that the }} printed, or the text before that.
func TestWhiteSpaceAroundTags(t *testing.T) {
	for template, want := range map[string]string{
		"text {{ x }}{%- if true %}y{%- endif %}":                     "text y",
		"text {{ messages[0].content }}{%- if true %} y {%- endif %}": "text  x  y",
		"a {% if true %}\n  b\n  {% endif %}\nc":                      "a   b\nc",
		"{{ 1 -}}  \n {{- 2 }}\n":                                     "12",
	} {
		check(t, template, render(t, compile(t, template), Tokenize, `{"messages":[{"role":"user","content":" x "}]}`), want)
	}
}

// Templates write the special tokens of a chat themselves.
func TestChatAddsNoSpecialTokens(t *testing.T) {
	r := compile(t, "{{ bos_token }}"+chatML)
	for body, want := range map[string]bool{
		`{"messages":[{"role":"user","content":"x"}]}`:                            false,
		`{"messages":[{"role":"user","content":"x"}],"add_special_tokens":true}`:  true,
		`{"messages":[{"role":"user","content":"x"}],"add_special_tokens":false}`: false,
	} {
		req, err := ParseRequest([]byte(body), ChatCompletions)
		if err != nil {
			t.Fatal(err)
		}
		out, err := r.Render(req)
		if err != nil || out.AddSpecial != want || !strings.HasPrefix(out.Text, "<s><|im_start|>") {
			t.Errorf("%s: %+v, %v", body, out, err)
		}
	}
}

func TestFieldsThatChangeThePrompt(t *testing.T) {
	r := compile(t, chatML+"{{ tools }}{{ documents }}{{ enable_thinking }}{{ keep }}{{ reasoning_effort }}"+
		"{% for m in messages %}{{ m.name }}{{ m.reasoning_content }}{{ m.tool_calls }}{{ m.tool_call_id }}{% endfor %}")
	const message = `{"role":"assistant","content":"x"`
	bodies := []string{
		`{"messages":[` + message + `}]}`,
		`{"messages":[` + message + `,"reasoning_content":"r"}]}`,
		`{"messages":[` + message + `,"name":"n"}]}`,
		`{"messages":[` + message + `,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]}]}`,
		`{"messages":[` + message + `}],"tools":[{"type":"function","function":{"name":"f"}}]}`,
		`{"messages":[` + message + `}],"chat_template_kwargs":{"keep":1}}`,
		`{"messages":[` + message + `}],"chat_template_kwargs":{"keep":1.0}}`,
		`{"messages":[` + message + `}],"reasoning_effort":"low"}`,
		`{"messages":[` + message + `}],"add_generation_prompt":false}`,
		`{"messages":[` + message + `}],"documents":[{"title":"t"}]}`,
		`{"messages":[{"role":"tool","content":"x","tool_call_id":"7"}]}`,
	}
	seen := map[string]string{}
	for _, b := range bodies {
		text := render(t, r, ChatCompletions, b)
		if other, ok := seen[text]; ok {
			t.Errorf("%s and %s give one text", b, other)
		}
		seen[text] = b
	}
}

func TestTextAfterNULIsKept(t *testing.T) {
	got := render(t, compile(t, chatML), Tokenize, `{"messages":[{"role":"user","content":"a\u0000b"}],"add_generation_prompt":false}`)
	check(t, "text", got, "<|im_start|>user\na\x00b<|im_end|>\n")
}

func TestDeveloperBecomesSystem(t *testing.T) {
	body := `{"messages":[{"role":"user","content":"u"},{"role":"developer","content":"D"},{"role":"system","content":""},{"role":"system","content":"S"}],"add_generation_prompt":false}`
	check(t, "a template without the role", render(t, compile(t, chatML), ChatCompletions, body),
		"<|im_start|>system\nD\n\nS<|im_end|>\n<|im_start|>user\nu<|im_end|>\n")
	knows := compile(t, chatML+"{# 'developer' #}")
	check(t, "a template with the role", render(t, knows, ChatCompletions, body),
		"<|im_start|>user\nu<|im_end|>\n<|im_start|>developer\nD<|im_end|>\n<|im_start|>system\n<|im_end|>\n<|im_start|>system\nS<|im_end|>\n")
}

// transformers cuts at a tag; templates that strip the message strip its space.
func TestContinuedMessageKeepsItsSpace(t *testing.T) {
	body := `{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"The answer is \n "}],"add_generation_prompt":false,"continue_final_message":true}`
	const head = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\nThe answer is"
	check(t, "a template that keeps", render(t, compile(t, chatML), Tokenize, body), head+" \n ")
	strips := compile(t, strings.ReplaceAll(chatML, "m.content", "(m.content | trim)"))
	check(t, "a template that strips", render(t, strips, Tokenize, body), head)
	drops := compile(t, "{% for m in messages %}{{ m.role }}{% endfor %}{# content #}")
	_, err := renderBody(drops, nil, []byte(body), Tokenize)
	var invalid *InvalidError
	if !errors.As(err, &invalid) {
		t.Errorf("a template that drops the message: %v", err)
	}
}

func TestEmptyToolsAreNotNoTools(t *testing.T) {
	r := compile(t, "{{ 'none' if tools is none else tools | length }}")
	check(t, "no tools", render(t, r, Tokenize, `{"messages":[{"role":"user","content":"x"}]}`), "none")
	check(t, "empty tools", render(t, r, Tokenize, `{"messages":[{"role":"user","content":"x"}],"tools":[]}`), "0")
	_, err := renderBody(r, nil, []byte(`{"messages":[{"role":"user","content":"x"}],"tools":[]}`), ChatCompletions)
	var invalid *InvalidError
	if !errors.As(err, &invalid) {
		t.Errorf("empty tools of a chat completion: %v", err)
	}
}

func TestTemplateChoice(t *testing.T) {
	config := Config{Templates: map[string]string{"default": "D", "tool_use": "T"}}
	const plain = `{"messages":[{"role":"user","content":"x"}]`
	const tools = plain + `,"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"none"}`
	for _, c := range []struct {
		what    string
		change  func(*Config, *Options)
		plain   string
		tooluse string
	}{
		{"named templates", func(*Config, *Options) {}, "D", "T"},
		{"one template", func(c *Config, _ *Options) { c.Templates = map[string]string{"default": "D"} }, "D", "D"},
		{"a processor's", func(c *Config, _ *Options) { c.ProcessorTemplate = "P" }, "P", "T"},
		{"the command line's", func(_ *Config, o *Options) { o.Template = "C" }, "C", "C"},
		{"no tools on none", func(_ *Config, o *Options) { o.ExcludeToolsWhenChoiceNone = true }, "D", "D"},
	} {
		config, options := config, Options{}
		c.change(&config, &options)
		r, err := Compile(config, options)
		if err != nil {
			t.Fatal(err)
		}
		check(t, c.what, render(t, r, ChatCompletions, plain+"}"), c.plain)
		check(t, c.what+", with tools", render(t, r, ChatCompletions, tools), c.tooluse)
	}
}

func TestParseConfig(t *testing.T) {
	c, err := ParseConfig(Files{
		TokenizerConfig: []byte(`{"chat_template":[{"name":"default","template":"D"},{"name":"tool_use","template":"T"}],
			"bos_token":{"content":"<s>","lstrip":false},"eos_token":"</s>","pad_token":null,"add_bos_token":true,
			"model_max_length":1000000000000000019884624838656,"tokenizer_class":"X","clean_up_tokenization_spaces":true}`),
		SpecialTokensMap: []byte(`{"pad_token":"<pad>","eos_token":"other"}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	check(t, "config", fmt.Sprintln(c.Templates, c.SpecialTokens, *c.AddBOS, c.AddEOS, c.TokenizerClass, c.CleanUpSpaces),
		"map[default:D tool_use:T] map[bos_token:<s> eos_token:</s> pad_token:<pad>] true <nil> X true\n")
	c, err = ParseConfig(Files{TokenizerConfig: []byte(`{"chat_template":"D"}`), ChatTemplateJinja: []byte("J"),
		ChatTemplateJSON: []byte(`{"chat_template":"P"}`)})
	if err != nil || c.Templates["default"] != "J" || c.ProcessorTemplate != "P" {
		t.Errorf("chat_template.jinja beats the configuration: %v, %v", c, err)
	}
	for _, bad := range []string{"", "[]", `{"chat_template":5}`, `{"chat_template":[{"name":"x"}]}`, `{"bos_token":`} {
		if _, err := ParseConfig(Files{TokenizerConfig: []byte(bad)}); err == nil {
			t.Errorf("ParseConfig(%q) succeeds", bad)
		}
	}
}

func TestWhatOnlyAnEngineKnows(t *testing.T) {
	for what, err := range map[string]error{
		"no template":       compileErr(Config{}, Options{}),
		"an unknown filter": compileErr(Config{Templates: map[string]string{"default": "{{ x | nope }}"}}, Options{}),
		"a broken template": compileErr(Config{Templates: map[string]string{"default": "{% if %}"}}, Options{}),
		"mistral-common":    compileErr(Config{Templates: map[string]string{"default": "x"}}, Options{TokenizerMode: "mistral"}),
		"a renderer of its own": compileErr(Config{Templates: map[string]string{"default": "x"}},
			Options{Architectures: []string{"DeepseekV32ForCausalLM"}}),
	} {
		var unsupported *UnsupportedError
		if !errors.As(err, &unsupported) {
			t.Errorf("%s: %v", what, err)
		}
	}
	r := compile(t, chatML)
	harmony, err := Compile(Config{Templates: map[string]string{"default": chatML}}, Options{ModelType: "gpt_oss"})
	if err != nil {
		t.Fatal(err)
	}
	const x = `{"messages":[{"role":"user","content":"x"}]`
	for body, r := range map[string]*Renderer{
		`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}}]}]}`: r,
		`{"messages":[{"role":"user","content":[{"type":"prompt_embeds","data":"u"}]}]}`:          r,
		x + `,"chat_template":"{{ 1 }}"}`:                            r,
		x + `,"chat_template_kwargs":{"chat_template":"{{ 1 }}"}}`:   r,
		x + `,"chat_template_kwargs":{"tools":[]}}`:                  r,
		x + `,"truncate_prompt_tokens":5}`:                           r,
		x + `,"kv_transfer_params":{"prompt_token_ids":[1]}}`:        r,
		x + `,"chat_template_kwargs":{"a":12345678901234567890123}}`: r,
		x + `}`: harmony,
	} {
		_, err := renderBody(r, nil, []byte(body), ChatCompletions)
		var unsupported *UnsupportedError
		if !errors.As(err, &unsupported) {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func compileErr(c Config, o Options) error {
	_, err := Compile(c, o)
	return err
}

func TestRaiseExceptionIsInvalid(t *testing.T) {
	r := compile(t, "{{ raise_exception('roles must alternate') }}")
	_, err := renderBody(r, nil, []byte(`{"messages":[{"role":"user","content":"x"}]}`), Tokenize)
	var invalid *InvalidError
	if !errors.As(err, &invalid) || invalid.Why != "roles must alternate" {
		t.Errorf("raise_exception: %v", err)
	}
}

func TestClock(t *testing.T) {
	zone := time.FixedZone("engine", -5*3600)
	r, err := Compile(Config{Templates: map[string]string{"default": "{{ strftime_now('%d %b %Y') }}"}},
		Options{Now: func() time.Time { return time.Date(2026, 1, 1, 2, 0, 0, 0, time.UTC).In(zone) }})
	if err != nil {
		t.Fatal(err)
	}
	check(t, "date", render(t, r, Tokenize, `{"messages":[{"role":"user","content":"x"}]}`), "31 Dec 2025")
	req, err := ParseRequest([]byte(`{"messages":[{"role":"user","content":"x"}]}`), ChatCompletions)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := r.Render(req); err != nil || !out.Dated {
		t.Errorf("%+v, %v: it does not say that the date is in it", out, err)
	}
}

func TestConcurrentRenders(t *testing.T) {
	r := compile(t, chatML)
	req, err := ParseRequest([]byte(`{"messages":[{"role":"user","content":"x"},{"role":"developer","content":"d"}]}`), ChatCompletions)
	if err != nil {
		t.Fatal(err)
	}
	want, err := r.Render(req)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 200 {
				if got, err := r.Render(req); err != nil || got != want {
					t.Errorf("got %v, %v", got, err)
					return
				}
			}
		})
	}
	all.Wait()
}
