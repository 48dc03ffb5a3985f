package api

import (
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvindex/kvindex/indexer"
	"github.com/kvindex/kvindex/tokenizer"
	"github.com/kvindex/kvindex/tokenizer/bpe"
	"github.com/kvindex/kvindex/tokenizer/chat"
)

const demoModel = "../tokenizer/testdata/demo-model/"

// demoParts loads the demo model; its chats are rendered by its template.
func demoParts(context.Context, string) (*tokenizer.Parts, error) {
	file, err := os.ReadFile(demoModel + "tokenizer.json")
	if err != nil {
		return nil, err
	}
	e, err := bpe.New(file)
	if err != nil {
		return nil, err
	}
	config, err := os.ReadFile(demoModel + "tokenizer_config.json")
	if err != nil {
		return nil, err
	}
	parsed, err := chat.ParseConfig(chat.Files{TokenizerConfig: config})
	if err != nil {
		return nil, err
	}
	r, err := chat.Compile(parsed, chat.Options{})
	if err != nil {
		return nil, err
	}
	return &tokenizer.Parts{JSON: file, Encoder: e, Engine: "bpe/" + e.Name(), Renderer: demoRenderer{r}, MaxLen: 4096}, nil
}

type demoRenderer struct{ r *chat.Renderer }

func (d demoRenderer) Render(r tokenizer.Request) (tokenizer.Rendered, error) {
	kind := chat.ChatCompletions
	if r.Kind == tokenizer.TokenizeChat {
		kind = chat.Tokenize
	}
	req, err := chat.ParseRequest(r.Body, kind)
	if err != nil {
		return tokenizer.Rendered{}, &tokenizer.InvalidError{Reason: "not a chat"}
	}
	out, err := d.r.Render(req)
	return tokenizer.Rendered{Text: out.Text, AddSpecial: out.AddSpecial}, err
}

// withDemoTokenizer gives testModel the demo model's tokenizer.
func withDemoTokenizer(t testing.TB) func(*Options) {
	reg := tokenizer.NewRegistry(tokenizer.RegistryOptions{Load: demoParts, CacheBytes: 8 << 20})
	t.Cleanup(reg.Close)
	reg.Add(t.Context(), testModel, "the demo model")
	reg.Wait()
	return func(o *Options) { o.Tokenizers = reg }
}

type tokenAnswer struct {
	State       string `json:"state"`
	Source      string `json:"token_source"`
	Tokens      int    `json:"prompt_tokens"`
	TotalBlocks int    `json:"total_blocks"`
	Instances   map[string]struct {
		Matched int `json:"matched_tokens"`
	} `json:"instances"`
}

func askJSON(t *testing.T, r *rig, path, body string, into any) {
	t.Helper()
	answer := text(t, r.do("POST", path, body))
	if err := json.Unmarshal([]byte(answer), into); err != nil {
		t.Fatalf("%s: %v: %s", path, err, answer)
	}
}

// TestChatsMatchAsTheirTokensDo: what /tokenize says of a chat, sent as token
// ids, matches as the chat does, whichever cache the tokens come from; and a
// table of pairs is matched too.
func TestChatsMatchAsTheirTokensDo(t *testing.T) {
	r := newRig(t, withDemoTokenizer(t))
	r.live("pod-1")
	turns := `{"role":"user","content":"` + strings.Repeat("Tell me about the quiet gardens of Kyoto. ", 12) + `"}`
	var first []uint32
	for turn := range 3 {
		body := `"messages":[` + turns + `]`
		var tokenized struct {
			Count  int      `json:"count"`
			Max    int      `json:"max_model_len"`
			Tokens []uint32 `json:"tokens"`
		}
		askJSON(t, r, "/tokenize", `{`+body+`}`, &tokenized)
		if tokenized.Count != len(tokenized.Tokens) || tokenized.Count < 60 || tokenized.Max != 4096 {
			t.Fatalf("%d tokens, count %d, max %d", len(tokenized.Tokens), tokenized.Count, tokenized.Max)
		}
		if turn == 0 {
			first = tokenized.Tokens
			r.store("pod-1", 0, indexer.GPU, first)
			r.storeIn(indexer.TableKey{Model: testModel, BlockSize: 32}, indexer.Scope{}, "pod-1", 1, indexer.GPU, first[:32])
		}
		want := 0
		for want < len(first) && first[want] == tokenized.Tokens[want] {
			want++
		}
		want = want / 16 * 16
		query := `{"model":"` + testModel + `",` + body + `,"temperature":0.5}`
		for i, source := range []string{map[bool]string{true: "tokenizer", false: "prefix_cache"}[turn == 0], "request_cache"} {
			var a, byTokens tokenAnswer
			askJSON(t, r, "/v1/query", query, &a)
			askJSON(t, r, "/v1/query", `{"model":"`+testModel+`","token_ids":`+tokensJSON(tokenized.Tokens)+`}`, &byTokens)
			// /tokenize has seen the text already.
			if ok := a.Source == source || i == 0 && a.Source == "prefix_cache"; !ok {
				t.Errorf("turn %d, asked %d times before: tokens from %s, want %s", turn, i, a.Source, source)
			}
			a.Source, byTokens.Source = "", ""
			if fmt.Sprint(a) != fmt.Sprint(byTokens) || a.Instances["pod-1"].Matched != want {
				t.Errorf("turn %d: the chat matches %+v, its tokens %+v; want %d tokens", turn, a, byTokens, want)
			}
		}
		turns += `,{"role":"assistant","content":"Gladly, number ` + fmt.Sprint(turn) + `."},{"role":"user","content":"` + strings.Repeat("And then? ", 20) + `"}`
	}
}

// TestPairsOfTokensMatchChats: a table of bigrams is asked with token ids.
func TestPairsOfTokensMatchChats(t *testing.T) {
	r := newRig(t, withDemoTokenizer(t))
	r.live("pod-1")
	key := indexer.TableKey{Model: testModel, BlockSize: 16, Bigram: true}
	r.index.Table(key)
	var a tokenAnswer
	askJSON(t, r, "/v1/query", `{"model":"`+testModel+`","explain":true,"prompt":"`+strings.Repeat("one two three ", 40)+`"}`, &a)
	if a.TotalBlocks != (a.Tokens-1)/16 {
		t.Errorf("%d blocks of %d tokens", a.TotalBlocks, a.Tokens)
	}
}

func TestTokenizeRoute(t *testing.T) {
	r := newRig(t, withDemoTokenizer(t))
	f := func(body string, status int, holds string) {
		t.Helper()
		resp := r.do("POST", "/tokenize", body)
		if got := text(t, resp); resp.StatusCode != status || !strings.Contains(got, holds) {
			t.Errorf("%.80s: status %d, want %d: %s", body, resp.StatusCode, status, got)
		}
	}
	f(`{"prompt":"Hello"}`, 200, `"token_strs":null`)
	f(`{"model":"`+testModel+`","prompt":"Hello","add_special_tokens":false}`, 200, `"count":`)
	f(`{"prompt":""}`, 200, `{"count":0,"max_model_len":4096,"tokens":[],"token_strs":null}`)
	f(`{"messages":[{"role":"user","content":"Hi"}],"return_token_strs":false}`, 200, `"tokens":[`)
	f(`{"messages":[{"role":"user","content":"Hi"}],"return_token_strs":true}`, 422, "return_token_strs")
	f(`{"messages":[{"rolle":"user"}]}`, 400, "not a chat")
	f(`{"prompt":"x","messages":[]}`, 422, "both")
	f(`{"prompt":"\ud800"}`, 400, "malformed")
	f(`{"token_ids":[1]}`, 400, "nothing to tokenize")
	f(`{"model":"other","prompt":"x"}`, 503, "no tokenizer is configured")
	f(`{`, 400, "malformed")

	none := newRig(t)
	if resp := none.do("POST", "/tokenize", `{"prompt":"x"}`); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("without tokenizers: status %d", resp.StatusCode)
	}
}

// engines answers for every model, with ids that no tokenizer gives, or fails.
type engines struct{ err error }

func (e engines) Tokens(context.Context, string, tokenizer.Request) ([]uint32, error) {
	return slices.Repeat([]uint32{7}, 40), e.err
}

// TestEnginesAreAskedForOthers: a model without a tokenizer is asked of an
// engine; if that fails too the answer says so.
func TestEnginesAreAskedForOthers(t *testing.T) {
	for _, fails := range []bool{false, true} {
		e := engines{}
		if fails {
			e.err = errors.New("nobody is there")
		}
		reg := tokenizer.NewRegistry(tokenizer.RegistryOptions{Load: demoParts, CacheBytes: 1 << 20, Engines: e})
		t.Cleanup(reg.Close)
		r := newRig(t, func(o *Options) { o.Tokenizers = reg })
		r.live("pod-1")
		r.store("pod-1", 0, indexer.GPU, slices.Repeat([]uint32{7}, 32))
		answer := text(t, r.do("POST", "/v1/query", `{"model":"`+testModel+`","messages":[]}`))
		if want := `"token_source":"engine","prompt_tokens":40`; !fails && (!strings.Contains(answer, want) || !strings.Contains(answer, `"matched_tokens":32`)) {
			t.Errorf("%s", answer)
		}
		if fails && (!strings.Contains(answer, `"state":"unknown"`) || !strings.Contains(answer, "nobody is there")) {
			t.Errorf("%s", answer)
		}
	}
}

func TestReloadTokenizer(t *testing.T) {
	r := newRig(t, withDemoTokenizer(t))
	if got := text(t, r.do("POST", "/v1/tokenizers/reload", `{"model":"`+testModel+`"}`)); !strings.Contains(got, `"state":"ready"`) {
		t.Error(got)
	}
	for body, status := range map[string]int{`{"model":"other"}`: 404, `{}`: 400, `x`: 400} {
		if resp := r.do("POST", "/v1/tokenizers/reload", body); resp.StatusCode != status {
			t.Errorf("%s: status %d, want %d", body, resp.StatusCode, status)
		}
	}
}

// TestWitness: of two sampled prompts that nobody holds one is stored later.
func TestWitness(t *testing.T) {
	r := newRig(t, withDemoTokenizer(t))
	r.live("pod-1")
	r.index.Table(indexer.TableKey{Model: testModel, BlockSize: 16})
	ask := func(n int) (tokens []uint32) {
		var a struct {
			Tokens []uint32 `json:"tokens"`
		}
		prompt := strings.Repeat(fmt.Sprintf("prompt %d ", n), 20)
		askJSON(t, r, "/v1/query", `{"model":"`+testModel+`","prompt":"`+prompt+`"}`, &tokenAnswer{})
		askJSON(t, r, "/tokenize", `{"prompt":"`+prompt+`"}`, &a)
		return a.Tokens
	}
	for n := range witnessEvery + 1 {
		tokens := ask(n)
		if n == 0 {
			r.store("pod-1", 0, indexer.GPU, tokens)
		}
	}
	if w := r.srv.witness.of(testModel, time.Now()); w != (Witnessed{}) {
		t.Errorf("judged too early: %+v", w)
	}
	if w := r.srv.witness.of(testModel, time.Now().Add(witnessAfter)); w != (Witnessed{1, 1}) {
		t.Errorf("%+v, want one stored and one not", w)
	}
}
