package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvindex/kvindex/events/enginesim"
)

func TestE2EDemo(t *testing.T) {
	stdout, stderr, code := output(t, []string{"ONCE=1"}, "demo")
	if code != 0 {
		t.Fatalf("exit status %d\n%s%s", code, stdout, stderr)
	}
	for _, want := range []string{
		"kvindex answers at http://127.0.0.1:",
		"pod-1 publishes what a real engine published: 51 batches",
		"72 of 73 predictions are equal",
		"Asked with the chats themselves, kvindex found the same in 73 of 73",
		"after_reset-c0-t0 differs: the engine had cleared its cache, and says so with its next batch only.",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the output lacks %q\n%s", want, stdout)
		}
	}
	rows := 0
	for line := range strings.Lines(stdout) {
		if strings.Contains(line, "  pod-") && strings.HasSuffix(line, "  equal\n") {
			rows++
		}
	}
	if rows != 72 {
		t.Errorf("%d rows are equal", rows)
	}
}

func TestE2EDecode(t *testing.T) {
	files, err := filepath.Glob("../../events/testdata/fixtures/*.msgpack")
	if err != nil || len(files) < 80 {
		t.Fatalf("%d fixtures, %v", len(files), err)
	}
	// What brings down naive decoders, larger than the fixtures have it.
	dir := t.TempDir()
	for name, payload := range map[string][]byte{
		"deep.msgpack":   bytes.Repeat([]byte{0x91}, 20<<20),
		"zeros.msgpack":  make([]byte, 20<<20),
		"array.msgpack":  {0x93, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0, 0xdd, 0xff, 0xff, 0xff, 0xff},
		"bin.msgpack":    {0x93, 0x01, 0x91, 0x93, 0xac, 'B', 'l', 'o', 'c', 'k', 'R', 'e', 'm', 'o', 'v', 'e', 'd', 0x91, 0xc6, 0xff, 0xff, 0xff, 0xff},
		"events.msgpack": append([]byte{0x92, 0x01, 0xdd, 0x00, 0xf0, 0x00, 0x00}, bytes.Repeat([]byte{0x90}, 0xf00000)...),
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, payload, 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	cmd := command(t, []string{"GOMEMLIMIT=200MiB"}, append([]string{"decode"}, files...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	if len(lines) != len(files) {
		t.Fatalf("%d lines for %d files", len(lines), len(files))
	}
	for i, line := range lines {
		var d map[string]any
		if err := json.Unmarshal([]byte(line), &d); err != nil {
			t.Fatalf("%s: %v", files[i], err)
		}
		for _, key := range []string{"file", "ok", "ts", "dp_rank", "events", "skipped", "error"} {
			if _, ok := d[key]; !ok {
				t.Errorf("%s: no %q", files[i], key)
			}
		}
		if d["file"] != files[i] {
			t.Errorf("line %d is about %v, not %s", i, d["file"], files[i])
		}
		if ok := d["ok"].(bool); ok == (d["error"] != "") {
			t.Errorf("%s: ok %v, error %q", files[i], ok, d["error"])
		}
	}
	usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	t.Logf("%d files, peak memory %d MiB", len(files), usage.Maxrss/1024)
	if limit := int64(400 << 10); !raceEnabled && usage.Maxrss > limit {
		t.Errorf("peak memory %d KiB", usage.Maxrss)
	}
	if _, stderr, code := output(t, nil, "decode", filepath.Join(dir, "none.msgpack")); code != 1 || !strings.Contains(stderr, "none.msgpack") {
		t.Errorf("a missing file: exit status %d, %s", code, stderr)
	}
}

func TestE2ERecord(t *testing.T) {
	engine, err := enginesim.Start(enginesim.EngineOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	rank := engine.Rank(0)
	for range 5 {
		if _, err := rank.Run(enginesim.Request{Tokens: []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}, Generate: 40}); err != nil {
			t.Fatal(err)
		}
	}
	batches := rank.Stream().Seq()
	file := filepath.Join(t.TempDir(), "pod.jsonl.gz")
	_, stderr, code := output(t, nil, "record", "--endpoint", engine.Endpoint(0), "--replay-endpoint", engine.ReplayEndpoint(0),
		"--output", file, "--batches", fmt.Sprint(batches), "--duration", "20s")
	if code != 0 || !strings.Contains(stderr, fmt.Sprintf("recorded %d batches", batches)) {
		t.Fatalf("exit status %d\n%s", code, stderr)
	}
	stdout, stderr, code := output(t, nil, "decode", file)
	if code != 0 || strings.Count(stdout, `"ok":true`) != int(batches) {
		t.Errorf("exit status %d, %d batches\n%s", code, strings.Count(stdout, `"ok":true`), stderr)
	}
	if _, stderr, code := output(t, nil, "record", "--endpoint", "tcp://*:5557"); code != 1 || !strings.Contains(stderr, "replace *") {
		t.Errorf("a bind address: exit status %d, %s", code, stderr)
	}
}

func TestE2EConfiguration(t *testing.T) {
	write := func(text string) string {
		file := filepath.Join(t.TempDir(), "kvindex.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	t.Run("every error at once, with the nearest key", func(t *testing.T) {
		file := write(`
lisen: 127.0.0.1:1
log: {level: loud}
models: [{name: m, blocksize: 16}]
instances:
  - {id: a, model: m, endpoint: "tcp://*:5557"}
  - {id: a, model: m, endpoint: tcp://h:5557, dp_ranks: 2, replay_endpoint: tcp://h:5558}
  - {id: b}
`)
		_, stderr, code := output(t, []string{"KVINDEX_LISTN=x"}, "serve", "--config", file)
		if code != 1 {
			t.Errorf("exit status %d", code)
		}
		for _, want := range []string{
			"lisen is no key: did you mean listen?",
			"models[0].blocksize is no key: did you mean block_size?",
			"KVINDEX_LISTN is no key: did you mean KVINDEX_LISTEN?",
			`log.level: "loud" is none of debug, info, warn, error`,
			"replace * by the host",
			`instances[1].id: "a" is taken by instances[0]`,
			"keep them at least 2 apart",
			"instances[2] (b): neither endpoint nor url is given",
		} {
			if !strings.Contains(stderr, want) {
				t.Errorf("the errors lack %q\n%s", want, stderr)
			}
		}
	})
	t.Run("flag over environment over file", func(t *testing.T) {
		file := write("listen: 127.0.0.1:1\nlog: {level: warn, format: json}\napi: {max_queries: 7}\n")
		stdout, stderr, code := output(t, []string{"KVINDEX_LISTEN=127.0.0.1:2", "KVINDEX_LOG_LEVEL=debug", "KVINDEX_EVENTS_SILENCE_HINT=5s",
			"KVINDEX_INSTANCES=[{id: p, model: m, endpoint: tcp://h:1}]"}, "serve", "--config", file, "--listen", "127.0.0.1:3", "--print-config")
		if code != 0 {
			t.Fatalf("exit status %d\n%s", code, stderr)
		}
		for _, want := range []string{"listen: 127.0.0.1:3", "level: debug", "format: json", "silence_hint: 5s", "max_queries: 7", "id: p"} {
			if !strings.Contains(stdout, want) {
				t.Errorf("the configuration lacks %q\n%s", want, stdout)
			}
		}
		again, stderr, code := output(t, nil, "serve", "--config", write(stdout), "--print-config")
		if code != 0 || again != stdout {
			t.Errorf("what is printed is no configuration: exit status %d\n%s\n%s", code, stderr, again)
		}
	})
	t.Run("a port in use", func(t *testing.T) {
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer lis.Close()
		_, stderr, code := output(t, nil, "serve", "--listen", lis.Addr().String())
		if code != 1 || !strings.Contains(stderr, "the port is in use") || strings.Contains(stderr, "goroutine") {
			t.Errorf("exit status %d\n%s", code, stderr)
		}
	})
	t.Run("a missing file", func(t *testing.T) {
		_, stderr, code := output(t, nil, "serve", "--config", "/does/not/exist.yaml")
		if code != 1 || !strings.Contains(stderr, "/does/not/exist.yaml") {
			t.Errorf("exit status %d\n%s", code, stderr)
		}
	})
}

func TestE2EServe(t *testing.T) {
	engine, err := enginesim.Start(enginesim.EngineOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	s := serve(t, fmt.Sprintf(`
models: [{name: m, aliases: [other-name]}]
instances:
  - {id: pod-0, model: m, endpoint: %q, replay_endpoint: %q}
`, engine.Endpoint(0), engine.ReplayEndpoint(0)))
	s.eventually(func() string {
		code, body := s.do(http.MethodGet, "/readyz", "")
		if code != http.StatusOK {
			return body
		}
		return ""
	})
	tokens := make([]uint32, 100)
	for i := range tokens {
		tokens[i] = uint32(i)
	}
	if _, err := engine.Rank(0).Run(enginesim.Request{Tokens: tokens}); err != nil {
		t.Fatal(err)
	}
	for _, model := range []string{"m", "other-name"} {
		s.within(2*time.Second, func() string {
			a := s.query(map[string]any{"model": model, "token_ids": tokens})
			if a.State == "exact" && a.Instances["pod-0"].Matched == 96 && a.Best == "pod-0" {
				return ""
			}
			return fmt.Sprintf("%+v", a)
		})
		a := s.query(map[string]any{"model": model, "token_ids": tokens, "candidates": []string{"nobody", "pod-0"}})
		if a.Instances["pod-0"].Matched != 96 || a.Instances["nobody"].Matched != 0 || len(a.Instances) != 2 {
			t.Errorf("with a candidate that nobody knows: %+v", a)
		}
	}
	// Text needs a tokenizer, which this model does not have; it says so.
	if a := s.query(map[string]any{"model": "m", "messages": []any{map[string]any{"role": "user", "content": "a secret prompt"}}}); a.State != "unknown" || a.Reason == "" {
		t.Errorf("a chat: %+v", a)
	}
	if a := s.query(map[string]any{"model": "never-seen", "token_ids": tokens}); a.State != "cold" {
		t.Errorf("an unknown model: %+v", a)
	}
	code, body := s.do(http.MethodPost, "/v1/query", `{"model":"m","token_ids":[1,2,"x"]}`)
	if code != http.StatusBadRequest || !strings.Contains(body, `"field":"token_ids[2]"`) {
		t.Errorf("bad token ids: %d %s", code, body)
	}
	// An engine with other blocks than the registration says is refused aloud.
	s.call(http.MethodPost, "/register", map[string]any{"instance_id": "odd", "model": "m", "block_size": 32,
		"endpoint": engine.Endpoint(0), "replay_endpoint": engine.ReplayEndpoint(0)}, nil)
	s.within(2*time.Second, func() string {
		if in := s.instance("odd"); in.State != "degraded" || !strings.Contains(in.Reason, "registered with 32") {
			return fmt.Sprintf("odd is %s (%s)", in.State, in.Reason)
		}
		return ""
	})
	s.stop()
	if strings.Contains(s.log.String(), "a secret prompt") {
		t.Error("a prompt is in the log")
	}
}

// TestE2EChats asks with chats and texts, for a model with a tokenizer and for
// one whose tokenizer is broken.
func TestE2EChats(t *testing.T) {
	const model = "../../tokenizer/testdata/demo-model"
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "tokenizer.json"), []byte(`{"model":{"type":"BPE","vocab":{`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, fmt.Sprintf("models: [{name: m, tokenizer: %q}, {name: broken, tokenizer: %q}]", model, broken))
	s.eventually(func() string {
		code, body := s.do(http.MethodGet, "/readyz", "")
		if code != http.StatusOK {
			return body
		}
		return ""
	})
	var models struct {
		Models []struct {
			Model     string `json:"model"`
			Tokenizer struct {
				State  string `json:"state"`
				Reason string `json:"reason"`
				Engine string `json:"engine"`
			} `json:"tokenizer"`
		} `json:"models"`
	}
	s.call(http.MethodGet, "/v1/models", nil, &models)
	if len(models.Models) != 2 || models.Models[0].Tokenizer.State != "failed" || models.Models[0].Tokenizer.Reason == "" ||
		models.Models[1].Tokenizer.State != "ready" || models.Models[1].Tokenizer.Engine != "bpe/qwen2" {
		t.Errorf("%+v", models)
	}
	type textAnswer struct {
		State  string `json:"state"`
		Reason string `json:"reason"`
		Source string `json:"token_source"`
		Tokens int    `json:"prompt_tokens"`
	}
	ask := func(body string) textAnswer {
		t.Helper()
		code, text := s.do(http.MethodPost, "/v1/query", body)
		var a textAnswer
		if err := json.Unmarshal([]byte(text), &a); err != nil || code != http.StatusOK {
			t.Fatalf("%s: %d %s", body, code, text)
		}
		return a
	}
	chat := `{"model":"m","messages":[{"role":"system","content":"` + strings.Repeat("A long system prompt. ", 20) + `"},{"role":"user","content":"Hello"}],"max_tokens":5}`
	if a := ask(chat); a.State != "cold" || a.Source != "tokenizer" || a.Tokens < 50 {
		t.Errorf("a chat: %+v", a)
	}
	if a := ask(chat); a.Source != "request_cache" {
		t.Errorf("the chat again: %+v", a)
	}
	if a := ask(`{"model":"m","prompt":"Hello there"}`); a.Source != "tokenizer" || a.Tokens == 0 {
		t.Errorf("a prompt: %+v", a)
	}
	for what, body := range map[string]string{
		"a picture":      `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}`,
		"a broken model": `{"model":"broken","prompt":"Hello there"}`,
		"no such model":  `{"model":"other","prompt":"Hello there"}`,
		"no chat":        `{"model":"m","messages":"Hello there"}`,
	} {
		if a := ask(body); a.State != "unknown" || a.Reason == "" || strings.Contains(a.Reason, "Hello there") {
			t.Errorf("%s: %+v", what, a)
		}
	}
}

func TestE2ETokenizerCheck(t *testing.T) {
	const model = "../../tokenizer/testdata/demo-model"
	stdout, stderr, code := output(t, nil, "tokenizer", "check", model)
	if code != 0 || !strings.Contains(stdout, "bpe/qwen2") || !strings.Contains(stdout, "ready") {
		t.Errorf("exit status %d\n%s%s", code, stdout, stderr)
	}
	// An engine that tokenizes otherwise: kvindex itself would be one, but its
	// answers are of another shape, so any server that gives fixed ids will do.
	engine := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/tokenize" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, `{"count":1,"max_model_len":4096,"tokens":[1]}`)
	})}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go engine.Serve(lis)
	defer engine.Close()
	stdout, stderr, code = output(t, nil, "tokenizer", "check", model, "--engine", "http://"+lis.Addr().String())
	if code != 1 || !strings.Contains(stdout, "DIFFERS") || !strings.Contains(stdout, "probe 0, token 0 of") || !strings.Contains(stdout, "0 probes equal") {
		t.Errorf("exit status %d\n%s%s", code, stdout, stderr)
	}
	for _, bad := range []string{t.TempDir(), "/does/not/exist"} {
		if stdout, _, code := output(t, nil, "tokenizer", "check", bad); code != 1 || !strings.Contains(stdout, "no tokenizer.json") {
			t.Errorf("%s: exit status %d\n%s", bad, code, stdout)
		}
	}
}
