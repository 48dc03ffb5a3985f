package main_test

import (
	"bytes"
	"crypto/sha1"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvindex/kvindex/events/enginesim"
)

const demoModelDir = "../../tokenizer/testdata/demo-model"

// tokenizerStatus is what GET /v1/models says of a model's tokenizer.
type tokenizerStatus struct {
	State   string `json:"state"`
	Reason  string `json:"reason"`
	Engine  string `json:"engine"`
	Source  string `json:"source"`
	Engines map[string]struct {
		Equal   int    `json:"equal"`
		Refused int    `json:"refused"`
		Differs string `json:"differs"`
		Error   string `json:"error"`
	} `json:"engines"`
	Requests   map[string]uint64 `json:"requests"`
	Samples    map[string]uint64 `json:"samples"`
	Mismatches map[string]uint64 `json:"mismatches"`
}

func (s *server) tokenizer(model string) tokenizerStatus {
	s.t.Helper()
	var v struct {
		Models []struct {
			Model     string          `json:"model"`
			Tokenizer tokenizerStatus `json:"tokenizer"`
		} `json:"models"`
	}
	s.call(http.MethodGet, "/v1/models", nil, &v)
	for _, m := range v.Models {
		if m.Model == model {
			return m.Tokenizer
		}
	}
	return tokenizerStatus{}
}

// follow registers an engine at url that publishes nothing yet.
func (s *server) follow(id, model, url string) {
	s.t.Helper()
	e, err := enginesim.Start(enginesim.EngineOptions{Pool: enginesim.PoolOptions{Blocks: 100, BlockSize: 16}, Ranks: 1})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = e.Close() })
	body, err := json.Marshal(map[string]any{
		"instance_id": id, "model": model, "url": url, "endpoint": e.Endpoint(0), "replay_endpoint": e.ReplayEndpoint(0), "block_size": 16,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	if code, answer := s.do(http.MethodPost, "/register", string(body)); code != http.StatusCreated {
		s.t.Fatalf("%d %s", code, answer)
	}
}

// askText asks a query that must be answered, and returns where its tokens
// came from, how many there are, and the reason.
func (s *server) askText(body string) (source string, tokens int, reason string) {
	s.t.Helper()
	code, text := s.do(http.MethodPost, "/v1/query", body)
	var a struct {
		Source string `json:"token_source"`
		Tokens int    `json:"prompt_tokens"`
		Reason string `json:"reason"`
	}
	if err := json.Unmarshal([]byte(text), &a); err != nil || code != http.StatusOK {
		s.t.Fatalf("%s: %d %s", body, code, text)
	}
	return a.Source, a.Tokens, a.Reason
}

// TestE2EEngineTokenizes: one kvindex, which has the tokenizer, takes the part
// of an engine, since its /tokenize is an engine's. Another one asks it for a
// model that it has no tokenizer for, and proves its own against it where it
// has one.
func TestE2EEngineTokenizes(t *testing.T) {
	engine := serve(t, fmt.Sprintf("models: [{name: m, tokenizer: %q}]", demoModelDir))
	s := serve(t, "models: [{name: m}, {name: never, tokenizer: none}]\ntokenizer: {hub: {local_files_only: true}}")
	own := serve(t, fmt.Sprintf("models: [{name: m, tokenizer: %q}]\ntokenizer: {sample_every: 2}", demoModelDir))
	engine.eventually(func() string {
		if st := engine.tokenizer("m"); st.State != "ready" {
			return fmt.Sprintf("%+v", st)
		}
		return ""
	})
	chat := `{"model":"m","messages":[{"role":"user","content":"Tell me about gardens"}]}`
	if source, _, reason := s.askText(chat); source != "none" || !strings.Contains(reason, "no engine of the model has a URL") {
		t.Errorf("without an engine: from %s: %s", source, reason)
	}
	s.follow("pod-1", "m", engine.url)
	_, want, _ := engine.askText(chat)
	if source, tokens, reason := s.askText(chat); source != "engine" || tokens != want || tokens == 0 {
		t.Errorf("%d tokens from %s, want %d from the engine: %s", tokens, source, want, reason)
	}
	ours, theirs := `{"model":"m","messages":[{"role":"user","content":"Hi"}],"add_generation_prompt":false}`, ""
	if code, answer := engine.do(http.MethodPost, "/tokenize", ours); code != http.StatusOK {
		t.Errorf("%d %s", code, answer)
	} else {
		theirs = answer
	}
	if code, answer := s.do(http.MethodPost, "/tokenize", ours); code != http.StatusOK || !sameTokens(answer, theirs) {
		t.Errorf("%d %s, want %s", code, answer, theirs)
	}
	if source, _, reason := s.askText(`{"model":"never","prompt":"x"}`); source != "none" || !strings.Contains(reason, "models[].tokenizer") {
		t.Errorf("from %s: %s", source, reason)
	}

	own.follow("pod-1", "m", engine.url)
	own.eventually(func() string {
		st := own.tokenizer("m")
		if p := st.Engines["pod-1"]; p.Equal < 19 || p.Differs != "" || p.Error != "" || st.State != "ready" {
			return fmt.Sprintf("%+v", st)
		}
		return ""
	})
	for i := range 5 {
		own.askText(fmt.Sprintf(`{"model":"m","prompt":"a prompt, number %d"}`, i))
	}
	own.eventually(func() string {
		if st := own.tokenizer("m"); st.Samples["equal"]+st.Samples["skipped"] != 3 || st.Samples["different"] != 0 {
			return fmt.Sprintf("%+v", st)
		}
		return ""
	})
}

// sameTokens compares two answers of /tokenize.
func sameTokens(a, b string) bool {
	var x, y struct {
		Tokens []uint32 `json:"tokens"`
	}
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && len(x.Tokens) > 0 && slices.Equal(x.Tokens, y.Tokens)
}

// TestE2EEngineDiffers: an engine that tokenizes otherwise puts the tokenizer
// in quarantine: seen in the answer, in /v1/models, in a metric and once in the
// log. Its own tokens are used from then on.
func TestE2EEngineDiffers(t *testing.T) {
	var asked atomic.Int64
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/tokenize" {
			http.NotFound(w, r)
			return
		}
		if b, _ := io.ReadAll(r.Body); bytes.Contains(b, []byte("gardens")) {
			asked.Add(1)
		}
		fmt.Fprint(w, `{"count":3,"max_model_len":4096,"tokens":[1,2,3]}`)
	}))
	defer engine.Close()
	s := serve(t, fmt.Sprintf("models: [{name: m, tokenizer: %q}]", demoModelDir))
	s.follow("pod-1", "m", engine.URL)
	s.eventually(func() string {
		if st := s.tokenizer("m"); st.State != "quarantined" || !strings.Contains(st.Reason, "pod-1") || st.Mismatches["contact"] != 1 {
			return fmt.Sprintf("%+v", st)
		}
		return ""
	})
	if source, tokens, reason := s.askText(`{"model":"m","prompt":"Tell me about gardens"}`); source != "engine" || tokens != 3 || asked.Load() != 1 {
		t.Errorf("%d tokens from %s: %s", tokens, source, reason)
	}
	if _, metrics := s.do(http.MethodGet, "/metrics", ""); !strings.Contains(metrics, `kvindex_tokenizer_mismatch_total{model="m",stage="contact"} 1`) ||
		!strings.Contains(metrics, `kvindex_tokenizer_state{model="m",state="quarantined"} 1`) {
		t.Error("no metric tells")
	}
	if n := strings.Count(s.log.String(), "quarantine"); n != 1 {
		t.Errorf("said %d times", n)
	}
	engine.Close()
	if source, _, reason := s.askText(`{"model":"m","prompt":"Tell me about lakes"}`); source != "none" || !strings.Contains(reason, "quarantined") {
		t.Errorf("from %s: %s", source, reason)
	}
}

// gitBlob is the name that git, and so a hub, gives to a file's content.
func gitBlob(b []byte) string {
	return fmt.Sprintf("%x", sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(b)), b...)))
}

// TestE2EHub: a model's files come from a hub; a file that changes there is
// used after a reload.
func TestE2EHub(t *testing.T) {
	const commit = "0123456789abcdef0123456789abcdef01234567"
	var down atomic.Bool
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, ok := strings.CutPrefix(r.URL.Path, "/Org/Demo/resolve/")
		_, name, _ = strings.Cut(name, "/")
		b, err := os.ReadFile(filepath.Join(demoModelDir, filepath.Base(name)))
		if down.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.Header().Set("X-Repo-Commit", commit)
		if !ok || err != nil {
			w.Header().Set("X-Error-Code", "EntryNotFound")
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("ETag", `"`+gitBlob(b)+`"`)
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(b))
	}))
	defer hub.Close()
	dir := t.TempDir()
	config := fmt.Sprintf("models: [{name: Org/Demo, tokenizer: auto}]\ntokenizer: {hub: {endpoint: %q, cache_dir: %q}}", hub.URL, dir)
	s := serve(t, config)
	ready := func(s *server, origin string) {
		t.Helper()
		s.eventually(func() string {
			if st := s.tokenizer("Org/Demo"); st.State != "ready" || !strings.Contains(st.Source, commit) || !strings.Contains(st.Source, origin) {
				return fmt.Sprintf("%+v", st)
			}
			return ""
		})
	}
	ready(s, "download")
	if source, n, reason := s.askText(`{"model":"Org/Demo","prompt":"Hello"}`); source != "tokenizer" || n == 0 {
		t.Errorf("%d tokens from %s: %s", n, source, reason)
	}
	down.Store(true)
	ready(serve(t, config), "cache")
	gone := serve(t, strings.Replace(config, dir, t.TempDir(), 1)+"\n")
	gone.eventually(func() string {
		if st := gone.tokenizer("Org/Demo"); st.State != "failed" || st.Reason == "" {
			return fmt.Sprintf("%+v", st)
		}
		return ""
	})
	down.Store(false)
	if code, answer := gone.do(http.MethodPost, "/v1/tokenizers/reload", `{"model":"Org/Demo"}`); code != http.StatusOK {
		t.Errorf("%d %s", code, answer)
	}
	ready(gone, "download")
	stdout, stderr, code := output(t, []string{"HF_ENDPOINT=" + hub.URL, "HF_HUB_CACHE=" + dir}, "tokenizer", "check", "Org/Demo")
	if code != 0 || !strings.Contains(stdout, commit) {
		t.Errorf("exit status %d\n%s%s", code, stdout, stderr)
	}
}
