package remote

import (
	"bytes"
	"encoding/json/v2"
	"errors"
	"os"
	"strings"
	"testing"
)

func TestAnswers(t *testing.T) {
	f := func(decode func([]byte) ([]uint32, error), answer string, wantErr error, tokens ...uint32) {
		t.Helper()
		got, err := decode([]byte(answer))
		if !errors.Is(err, wantErr) {
			t.Errorf("%s: error %v, want %v", answer, err, wantErr)
		}
		if len(got)+len(tokens) > 0 {
			want(t, answer, got, tokens)
		}
	}
	for _, bad := range []string{
		"", "null", "[]", "{}", "1", `"x"`, `{"token_ids":null}`, `{"token_ids":[]}`, `{"token_ids":[-1]}`, `{"token_ids":[1.5]}`,
		`{"token_ids":[4294967296]}`, `{"token_ids":["1"]}`, `{"token_ids":[1]`, `{"token_ids":[1]}x`, `[{"token_ids":[1]},{"token_ids":[2]}]`,
		`[[1]]`, `{"TOKEN_IDS":[1]}`,
	} {
		f(decodeRendered, bad, ErrAnswer)
	}
	for _, bad := range []string{
		"", "null", "[]", "{}", `{"tokens":null}`, `{"tokens":[1],"count":2}`, `{"tokens":[-1]}`, `{"tokens":[1e2]}`, `{"tokens":[1],"count":1`,
	} {
		f(decodeTokenized, bad, ErrAnswer)
	}
	f(decodeTokenized, ` {"tokens":[1,2] , "count":2}`, nil, 1, 2)
	f(decodeTokenized, `{"tokens":[],"count":0}`, nil)

	// Pictures are more than tokens.
	f(decodeRendered, `{"token_ids":[1],"features":{"mm_hashes":{"image":["h"]},"mm_placeholders":{"image":[{"offset":0,"length":1}]}}}`, ErrUnsupported)
	f(decodeRendered, `[{"token_ids":[1],"features":{"mm_hashes":{},"mm_placeholders":{"image":[{"offset":0,"length":1}]}}}]`, ErrUnsupported)
	f(decodeRendered, `{"token_ids":[1],"features":[]}`, ErrUnsupported)
	f(decodeRendered, `{"token_ids":[1],"features":{"mm_hashes":{"image":[]},"mm_placeholders":{},"kwargs_data":null}}`, nil, 1)
	f(decodeRendered, `{"token_ids":[1],"features":{}}`, nil, 1)
}

func FuzzAnswer(f *testing.F) {
	for _, a := range []answer{rendered12, tokenized12, noRoute, noModel} {
		f.Add([]byte(a.body))
	}
	f.Add([]byte(`[{"token_ids":[1],"features":{"mm_hashes":{"image":["h"]},"mm_placeholders":{}}}]`))
	f.Fuzz(func(t *testing.T, answer []byte) {
		modelMissing(answer)
		for _, decode := range []func([]byte) ([]uint32, error){decodeRendered, decodeTokenized} {
			ids, err := decode(answer)
			if err != nil && (ids != nil || !errors.Is(err, ErrAnswer) && !errors.Is(err, ErrUnsupported)) {
				t.Fatalf("%v with error %v", ids, err)
			}
		}
	})
}

// What is sent is JSON, and the client's own values are in it.
func FuzzRequest(f *testing.F) {
	f.Add(true, []byte(chatBody))
	f.Add(false, []byte(completionBody))
	f.Add(true, []byte(` {"stream":true,"model":"x","messages":[{"content":[{"type":"text","text":"\ud800"}]}],"stream_options":{},"tools":[]}`))
	f.Add(false, []byte(`{"prompt":["x"],"prompt":[1.0],"stream":1}`))
	f.Fuzz(func(t *testing.T, chat bool, body []byte) {
		kind := Completion
		if chat {
			kind = Chat
		}
		before := bytes.Clone(body)
		r, err := parse(kind, body)
		if err != nil {
			return
		}
		for _, sent := range [][]byte{r.renderBody("m"), r.tokenizeBody("m")} {
			var got struct {
				Model  string `json:"model"`
				Stream *bool  `json:"stream"`
			}
			if err := json.Unmarshal(sent, &got, lenient); err != nil || got.Model != "m" || got.Stream != nil && *got.Stream {
				t.Fatalf("sent %s of %s: %+v, %v", sent, body, got, err)
			}
		}
		if !bytes.Equal(before, body) {
			t.Fatal("the body was written to")
		}
	})
}

func TestMetrics(t *testing.T) {
	b, err := os.ReadFile("testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseMetrics(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	want(t, "load", got, Load{Waiting: 3, Running: 7, CacheUsage: 0.5})

	f := func(text string, want Load, ok bool) {
		t.Helper()
		got, err := parseMetrics(strings.NewReader(text))
		if got != want || (err == nil) != ok {
			t.Errorf("%.100q: %+v and error %v", text, got, err)
		}
	}
	f("vllm:num_requests_waiting 4\nvllm:gpu_cache_usage_perc{} 0.75\n", Load{Waiting: 4, CacheUsage: 0.75}, true)
	f("vllm:num_requests_waiting\t4 ", Load{Waiting: 4}, true)
	for _, bad := range []string{
		"", "\n", "# vllm:num_requests_waiting 4", "vllm:num_requests_running 4", "vllm:num_requests_waiting", "vllm:num_requests_waiting ",
		"vllm:num_requests_waiting NaN", "vllm:num_requests_waiting -1", "vllm:num_requests_waiting +Inf", `vllm:num_requests_waiting{a="} 1`,
		`vllm:num_requests_waiting{a="\"} 1`, "vllm:num_requests_waiting{ x", strings.Repeat("x", maxMetricsLine),
		"vllm:num_requests_waiting 4\n" + strings.Repeat("x 1\n", maxMetrics/4),
	} {
		f(bad, Load{}, false)
	}
}

func FuzzMetrics(f *testing.F) {
	b, err := os.ReadFile("testdata/metrics.txt")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte("vllm:num_requests_waiting{a=\"\\\"}\"} 1 2\nvllm:kv_cache_usage_perc NaN"))
	f.Fuzz(func(t *testing.T, text []byte) {
		load, err := parseMetrics(bytes.NewReader(text))
		if err != nil && load != (Load{}) || load.Waiting < 0 || load.Running < 0 || load.CacheUsage < 0 {
			t.Fatalf("%+v, %v", load, err)
		}
	})
}
