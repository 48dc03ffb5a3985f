package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/kvindex/kvindex/tokenizer"
	"github.com/kvindex/kvindex/tokenizer/hf"
)

// secret is in every hostile text. No error may quote it.
const secret = "Zq9-secret"

// hostileTexts are long texts without an end of a word, or with what brings
// down parsers.
func hostileTexts(size int) map[string]string {
	fill := func(unit string) string { return secret + strings.Repeat(unit, size/len(unit)) }
	return map[string]string{
		"one letter":       fill("a"),
		"two letters":      fill("ab"),
		"letters":          fill("qwertyuiopasdfghjklzxcvbnm"),
		"spaces":           fill(" "),
		"newlines":         fill("\n"),
		"spaced newlines":  fill("\n" + strings.Repeat(" ", 5000)),
		"mixed":            fill("wörd, 中文 'LL 12 "),
		"combining marks":  fill("\u0301\u0323"),
		"marks that move":  fill("a\u0301\u0327\u0323"),
		"emoji":            fill("👩‍👩‍👧"),
		"one emoji":        fill("🎉"),
		"one ideograph":    fill("界"),
		"conjoining jamo":  fill("ᄀ\u1161\u11a8"),
		"opened brackets":  fill("<"),
		"nearly tokens":    fill("<|im_star"),
		"NUL":              fill("\x00"),
		"special tokens":   secret + strings.Repeat("<|im_start|>", min(100_000, size/12)),
		"replacement":      fill("\ufffd"),
		"a private use":    fill("\ue000"),
		"the last of all":  fill("\U0010ffff"),
		"controls":         fill("\x01\x7f\u0085"),
		"right to left":    fill("\u202e\u05d0\u0627"),
		"quoted, escaped":  fill(`\"\u0000{}[]`),
		"template's marks": fill("{{ messages }}{% for m in messages %}"),
	}
}

// peak runs f and returns by how much the heap was larger meanwhile, in bytes.
func peak(f func()) uint64 {
	runtime.GC()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	done := make(chan struct{})
	highest := before.HeapAlloc
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			runtime.ReadMemStats(&now)
			highest = max(highest, now.HeapAlloc)
			select {
			case <-done:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	f()
	close(done)
	wg.Wait()
	return highest - before.HeapAlloc
}

// hostileRegistry holds the demo model's tokenizer.
func hostileRegistry(t *testing.T) *tokenizer.Registry {
	t.Helper()
	r := tokenizer.NewRegistry(tokenizer.RegistryOptions{Load: loadTokenizer, CacheBytes: 1 << 20})
	t.Cleanup(r.Close)
	r.Add(t.Context(), "m", demoModel)
	r.Wait()
	if st, _ := r.Status("m"); st.State != tokenizer.Ready {
		t.Fatal(st.Reason)
	}
	return r
}

// TestHostileTexts: texts of 10 MB take memory in proportion, and have the
// library's ids as far as it can be asked.
func TestHostileTexts(t *testing.T) {
	r := hostileRegistry(t)
	var library *hf.Encoder
	if hf.Available() {
		raw, err := os.ReadFile(filepath.Join(demoModel, "tokenizer.json"))
		if err != nil {
			t.Fatal(err)
		}
		if library, err = hf.New(raw, hf.Options{}); err != nil {
			t.Fatal(err)
		}
		defer library.Close()
	}
	size := 10 << 20
	if testing.Short() {
		size = 1 << 20
	}
	tokens := func(what, text string) []uint32 {
		body, err := json.Marshal(map[string]any{"prompt": text})
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := r.Tokens(t.Context(), "m", tokenizer.Request{Kind: tokenizer.Completions, Body: body})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		return got.AppendIDs(nil)
	}
	large, smaller := hostileTexts(size), hostileTexts(size/8)
	for what, text := range smaller {
		switch what {
		case "letters", "spaces", "mixed", "combining marks", "emoji":
			text = large[what]
		}
		used := peak(func() {
			if ids := tokens(what, text); len(ids) == 0 {
				t.Errorf("%s: no tokens", what)
			}
		})
		if used > 60*uint64(len(text))+128<<20 {
			t.Errorf("%s: %d MB for a text of %d MB", what, used>>20, len(text)>>20)
		}
	}
	for what, text := range hostileTexts(100_000) {
		if library == nil {
			break
		}
		want, err := library.Append(nil, text)
		if err != nil {
			t.Errorf("%s: the library: %v", what, err)
		} else if got := tokens(what, text); !slices.Equal(got, want) {
			t.Errorf("%s: %d tokens, the library has %d", what, len(got), len(want))
		}
	}
}

// hostileBodies are requests that are hostile as JSON. The value is whether
// the tokens may be told: of others it must be said that they are not.
func hostileBodies() map[string]struct {
	body string
	chat bool
	may  bool
} {
	type request = struct {
		body string
		chat bool
		may  bool
	}
	message := `{"role":"user","content":"` + secret + `"}`
	messages := `"messages":[` + message + `]`
	tool := func(parameters string) request {
		return request{`{` + messages + `,"tools":[{"type":"function","function":{"name":"f","parameters":{"a":` + parameters + `}}}]}`, true, false}
	}
	text := func(s string) request { return request{`{"prompt":"` + secret + s + `"}`, false, false} }
	say := func(s string) request {
		return request{`{"messages":[{"role":"user","content":"` + secret + s + `"}]}`, true, false}
	}
	many := func(n int, unit string) string { return strings.Repeat(unit+",", n-1) + unit }
	list := map[string]request{
		"a lone surrogate in a prompt":       text(`\ud800`),
		"a low surrogate in a prompt":        text(`\udc00x`),
		"two high surrogates in a prompt":    text(`\ud83d\ud83d`),
		"a cut escape":                       text(`\ud8`),
		"invalid UTF-8 in a prompt":          text("\xff"),
		"a coded surrogate in a prompt":      text("\xed\xa0\x80"),
		"an overlong NUL in a prompt":        text("\xc0\x80"),
		"a lone surrogate in a message":      say(`\ud800`),
		"two high surrogates in a message":   say(`\ud83d\ud83d`),
		"invalid UTF-8 in a message":         say("\xff\xfe"),
		"a coded surrogate in a message":     say("\xed\xb0\x80"),
		"a raw NUL in a message":             say("\x00"),
		"lists in tools, 10,000 deep":        tool(strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000)),
		"objects in tools, 10,000 deep":      tool(strings.Repeat(`{"a":`, 10_000) + "1" + strings.Repeat("}", 10_000)),
		"lists that never end":               tool(strings.Repeat("[", 1_000_000)),
		"a template of the request":          {`{` + messages + `,"chat_template":"{% for a in range(99999) %}{% for b in range(99999) %}` + secret + `{% endfor %}{% endfor %}"}`, true, false},
		"a number too large":                 tool("1" + strings.Repeat("0", 1_000_000)),
		"prompts":                            {`{"prompt":["` + secret + `","` + secret + `"]}`, false, false},
		"a prompt of token ids":              {`{"prompt":[1,2,3],"x":"` + secret + `"}`, false, false},
		"an object for a prompt":             {`{"prompt":{"` + secret + `":1}}`, false, false},
		"no end":                             {`{"prompt":"` + secret, false, false},
		"more behind":                        {`{"prompt":"x"} {"prompt":"` + secret + `"}`, false, false},
		"messages of no list":                {`{"messages":"` + secret + `"}`, true, false},
		"a role of no text":                  {`{"messages":[{"role":{"` + secret + `":1},"content":"x"}]}`, true, false},
		"100,000 messages":                   {`{"messages":[` + many(100_000, message) + `]}`, true, true},
		"20,000 tools":                       {`{` + messages + `,"tools":[` + many(20_000, `{"type":"function","function":{"name":"f","parameters":{}}}`) + `]}`, true, true},
		"100,000 parts of a message":         {`{"messages":[{"role":"user","content":[` + many(100_000, `{"type":"text","text":"`+secret+`"}`) + `]}]}`, true, true},
		"an unread field, 10,000 deep":       {`{"x":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `,` + messages + `}`, true, true},
		"many names":                         {`{` + strings.Repeat(`"x":1,`, 100_000) + messages + `}`, true, true},
		"arguments that are no JSON":         {`{"messages":[{"role":"assistant","content":"","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"` + strings.Repeat("[", 10_000) + secret + `"}}]},` + message + `]}`, true, true},
		"a pair of surrogates":               {`{"prompt":"` + secret + `\ud83c\udf89"}`, false, true},
		"an escaped NUL in a prompt":         {`{"prompt":"` + secret + strings.Repeat(`\u0000`, 1000) + `"}`, false, true},
		"an escaped NUL in a message":        {`{"messages":[{"role":"user","content":"` + secret + strings.Repeat(`\u0000`, 1000) + `"}]}`, true, true},
		"messages twice":                     {`{"messages":[{"role":"user","content":"x"}],` + messages + `}`, true, true},
		"special tokens of others in a text": {`{"prompt":"` + secret + strings.Repeat(`<|begin_of_text|>`, 100_000) + `"}`, false, true},
	}
	return list
}

// TestHostileBodies: what cannot be tokenized is refused with an error that
// says nothing of the request.
func TestHostileBodies(t *testing.T) {
	r := hostileRegistry(t)
	for what, c := range hostileBodies() {
		kinds := []tokenizer.Kind{tokenizer.Completions, tokenizer.TokenizePrompt}
		if c.chat {
			kinds = []tokenizer.Kind{tokenizer.ChatCompletions, tokenizer.TokenizeChat}
		}
		for _, kind := range kinds {
			used := peak(func() {
				tokens, _, err := r.Tokens(t.Context(), "m", tokenizer.Request{Kind: kind, Body: []byte(c.body)})
				invalid, unknown := (*tokenizer.InvalidError)(nil), (*tokenizer.UnknownError)(nil)
				switch {
				case err == nil && !c.may:
					t.Errorf("%s, kind %d: %d tokens", what, kind, tokens.Count)
				case err == nil && tokens.Count == 0:
					t.Errorf("%s, kind %d: no tokens", what, kind)
				case err != nil && !errors.As(err, &invalid) && !errors.As(err, &unknown):
					t.Errorf("%s, kind %d: %T %v", what, kind, err, err)
				case err != nil && (strings.Contains(err.Error(), secret) || len(err.Error()) > 500):
					t.Errorf("%s, kind %d: the error quotes: %.300s", what, kind, err)
				}
			})
			if used > 200*uint64(len(c.body))+64<<20 {
				t.Errorf("%s, kind %d: %d MB for %d bytes", what, kind, used>>20, len(c.body))
			}
		}
	}
}

// demoFiles are the demo model's files, with changes: nil takes one away.
func demoFiles(t *testing.T, changes map[string][]byte) fstest.MapFS {
	t.Helper()
	fsys := fstest.MapFS{}
	for _, name := range tokenizerFiles {
		b, err := os.ReadFile(filepath.Join(demoModel, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		fsys[name] = &fstest.MapFile{Data: b}
	}
	for name, b := range changes {
		delete(fsys, name)
		if b != nil {
			fsys[name] = &fstest.MapFile{Data: b}
		}
	}
	return fsys
}

// demoJSON is the demo model's tokenizer.json with its members changed.
func demoJSON(t *testing.T, change func(file, model map[string]any)) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(demoModel, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]any
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	change(file, file["model"].(map[string]any))
	raw, err = json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestBrokenFiles: whatever is wrong with a model's files, its tokenizer is put aside with a
// reason, or it gives the library's ids; the process lives, and one line of the log says so.
func TestBrokenFiles(t *testing.T) {
	whole := demoJSON(t, func(_, _ map[string]any) {})
	half := whole[:len(whole)/2]
	vocab := bytes.Index(whole, []byte(`"vocab":{`))
	folder := demoFiles(t, map[string][]byte{"tokenizer.json": nil})
	folder["tokenizer.json/x"] = &fstest.MapFile{Data: []byte("x")}
	templateFolder := demoFiles(t, nil)
	templateFolder["chat_template.jinja/x"] = &fstest.MapFile{Data: []byte("x")}
	only := func(b []byte) fstest.MapFS { return demoFiles(t, map[string][]byte{"tokenizer.json": b}) }
	changed := func(f func(file, model map[string]any)) fstest.MapFS { return only(demoJSON(t, f)) }
	for what, fsys := range map[string]fstest.MapFS{
		"no files":                     {},
		"no tokenizer.json":            only(nil),
		"0 bytes":                      only([]byte{}),
		"a folder":                     folder,
		"a template that is a folder":  templateFolder,
		"half":                         only(half),
		"cut in the vocabulary":        only(whole[:vocab+200]),
		"cut, and closed again":        only(append(bytes.Clone(whole[:vocab+len(`"vocab":{`)]), `}}}`...)),
		"without the last byte":        only(whole[:len(whole)-1]),
		"an error page":                only([]byte("<html>404</html>")),
		"a pointer of Git LFS":         only([]byte("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")),
		"JSON of something else":       only([]byte(`{"bos_token":"<s>","vocab_size":5}`)),
		"null":                         only([]byte("null")),
		"a list":                       only([]byte("[]")),
		"bytes":                        only(bytes.Repeat([]byte{0xff, 0, 1}, 1000)),
		"deep":                         only(bytes.Repeat([]byte("["), 1_000_000)),
		"an unknown model type":        changed(func(_, m map[string]any) { m["type"] = "Other" }),
		"no model":                     changed(func(f, _ map[string]any) { delete(f, "model") }),
		"no vocabulary":                changed(func(_, m map[string]any) { m["vocab"] = map[string]any{} }),
		"a negative id":                changed(func(_, m map[string]any) { m["vocab"].(map[string]any)["a"] = -1 }),
		"an id too large":              changed(func(_, m map[string]any) { m["vocab"].(map[string]any)["a"] = 1 << 40 }),
		"an id that is a text":         changed(func(_, m map[string]any) { m["vocab"].(map[string]any)["a"] = "1" }),
		"a merge of no token":          changed(func(_, m map[string]any) { m["merges"] = append(m["merges"].([]any), []any{"no such", "token"}) }),
		"a merge of three":             changed(func(_, m map[string]any) { m["merges"] = append(m["merges"].([]any), []any{"a", "b", "c"}) }),
		"a merge into no token":        changed(func(_, m map[string]any) { m["merges"] = append(m["merges"].([]any), []any{"zq", "xj"}) }),
		"no byte a":                    changed(func(_, m map[string]any) { delete(m["vocab"].(map[string]any), "a") }),
		"dropout":                      changed(func(_, m map[string]any) { m["dropout"] = 0.5 }),
		"an unknown normalizer":        changed(func(f, _ map[string]any) { f["normalizer"] = map[string]any{"type": "Other"} }),
		"an expression that is broken": changed(func(f, _ map[string]any) { f["pre_tokenizer"] = split("(") }),
		"an added token without text":  changed(func(f, _ map[string]any) { addToken(f, map[string]any{"id": 4999, "content": ""}) }),
		"an added token of two ids":    changed(func(f, _ map[string]any) { addToken(f, map[string]any{"id": 4998, "content": "<|im_end|>"}) }),
		"an added token far away":      changed(func(f, _ map[string]any) { addToken(f, map[string]any{"id": 999_999, "content": "<|far|>"}) }),
		"an added token of a's id":     changed(func(f, _ map[string]any) { addToken(f, map[string]any{"id": 64, "content": "<|same|>"}) }),
		"a config that is no JSON":     demoFiles(t, map[string][]byte{"tokenizer_config.json": []byte("{")}),
		"a config of 0 bytes":          demoFiles(t, map[string][]byte{"tokenizer_config.json": {}}),
		"a config that is a list":      demoFiles(t, map[string][]byte{"tokenizer_config.json": []byte("[1]")}),
		"config.json is no JSON":       demoFiles(t, map[string][]byte{"config.json": []byte("{")}),
		"no config":                    demoFiles(t, map[string][]byte{"tokenizer_config.json": nil, "config.json": nil}),
		"a template that is broken":    demoFiles(t, map[string][]byte{"chat_template.jinja": []byte("{% for x in %}")}),
		"a template of 0 bytes":        demoFiles(t, map[string][]byte{"chat_template.jinja": {}}),
		"a template that never ends":   demoFiles(t, map[string][]byte{"chat_template.jinja": []byte("{% if true %}" + strings.Repeat("{% if true %}", 10_000))}),
		"a template that is no text":   demoFiles(t, map[string][]byte{"chat_template.jinja": {0xff, 0xfe, 0}}),
	} {
		t.Run(what, func(t *testing.T) { brokenFiles(t, fsys) })
	}
}

func split(regex string) map[string]any {
	return map[string]any{"type": "Sequence", "pretokenizers": []any{
		map[string]any{"type": "Split", "pattern": map[string]any{"Regex": regex}, "behavior": "Isolated", "invert": false},
		map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
	}}
}

func addToken(file, token map[string]any) {
	maps.Copy(token, map[string]any{"single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true})
	file["added_tokens"] = append(file["added_tokens"].([]any), token)
}

// brokenFiles loads files, maybe twice, and asks for a prompt and a chat.
func brokenFiles(t *testing.T, fsys fstest.MapFS) {
	var logged bytes.Buffer
	r := tokenizer.NewRegistry(tokenizer.RegistryOptions{
		CacheBytes: 1 << 20, Logger: slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	defer r.Close()
	load := func(_ context.Context, _ string) (*tokenizer.Parts, error) {
		return loadTokenizerFrom(fsys, "here", time.Now)
	}
	r.AddLoader(t.Context(), "m", "here", load)
	r.Wait()
	if _, err := r.Reload(t.Context(), "m"); err != nil {
		t.Fatal(err)
	}
	st, _ := r.Status("m")
	lines := strings.Count(logged.String(), "\n")
	t.Logf("%s: %.300s", st.State, st.Reason)

	text := "Hello <|im_start|>there, <|far|><|same|> 12 中文\n"
	body, err := json.Marshal(map[string]any{"prompt": text})
	if err != nil {
		t.Fatal(err)
	}
	tokens, _, textErr := r.Tokens(t.Context(), "m", tokenizer.Request{Kind: tokenizer.TokenizePrompt, Body: body})
	_, _, chatErr := r.Tokens(t.Context(), "m", tokenizer.Request{
		Kind: tokenizer.ChatCompletions, Body: []byte(`{"messages":[{"role":"user","content":"Hello"}]}`),
	})
	if st.State != tokenizer.Ready {
		if st.Reason == "" || textErr == nil || chatErr == nil || lines != 1 {
			t.Errorf("%+v; a prompt: %v, a chat: %v; %d lines logged", st, textErr, chatErr, lines)
		}
		return
	}
	if textErr != nil || lines != 0 {
		t.Errorf("ready, and %v; %d lines logged", textErr, lines)
	}
	if chatErr != nil && st.Reason == "" {
		t.Errorf("chats fail without a reason: %v", chatErr)
	}
	if !hf.Available() {
		return
	}
	library, err := hf.New(fsys["tokenizer.json"].Data, hf.Options{})
	if err != nil {
		t.Fatalf("ready, and the library cannot load it: %v", err)
	}
	defer library.Close()
	want, err := library.AppendSpecial(nil, text)
	if err != nil || !slices.Equal(tokens.AppendIDs(nil), want) {
		t.Errorf("%v, the library has %v, %v", fmt.Sprint(tokens.AppendIDs(nil)), want, err)
	}
}
