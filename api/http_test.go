package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvindex/kvindex/indexer"
)

// TestErrors: every kind of request that is wrong gets the same shape.
func TestErrors(t *testing.T) {
	r := fleetOfThree(t, func(o *Options) { o.Limits = Limits{BodyBytes: 200, Batch: 2} })
	f := func(method, path, body string, status int, code, in string, change ...func(*http.Request)) {
		t.Helper()
		resp := r.do(method, path, body, change...)
		v := r.decoded(resp, status)
		if reason, _ := v["reason"].(string); v["error"] != code || !strings.Contains(reason, in) {
			t.Errorf("%s %s: %v, want %s ...%s...", method, path, v, code, in)
		}
	}
	f("GET", "/v1/querry", "", 404, codeNotFound, "is /v1/query meant?")
	f("GET", "/v1/query/", "", 404, codeNotFound, "is /v1/query meant?")
	f("GET", "/something/else", "", 404, codeNotFound, "/openapi.json")
	f("GET", "/v1/query", "", 405, codeMethod, "use POST")
	f("DELETE", "/v1/instances/pod-1.default", "", 405, codeMethod, "use GET")
	f("POST", "/v1/query", "", 400, codeMalformed, "empty")
	f("POST", "/v1/query", `{"model":"`+testModel+`","token_ids":[1]} {}`, 400, codeMalformed, "nothing expected")
	f("POST", "/v1/query", strings.Repeat(" ", 201), 413, codeTooLarge, "201 bytes")
	f("POST", "/v1/query", strings.Repeat(" ", 201), 413, codeTooLarge, "limit of 200", func(r *http.Request) { r.ContentLength = -1 })
	f("POST", "/v1/query", `{}`, 415, codeEncoding, "gzip", func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") })
	f("POST", "/v1/query", `{"token_ids":[1]}`, 400, codeMissing, "no model")
	f("POST", "/query", `{"model":"m"}`, 400, codeMissing, "token_ids")
	f("POST", "/query_by_hash", `{"model":"m"}`, 400, codeMissing, "seq_hashes")
	f("POST", "/lookup", `{}`, 400, codeMissing, "tokens")
	f("POST", "/v1/query:batch", `{}`, 400, codeMissing, "no queries")
	f("POST", "/v1/query:batch", `{"queries":7}`, 400, codeInvalid, "not an array")
	f("POST", "/v1/query:batch", `{"queries":[{},{},{}]}`, 400, codeMissing, "queries[0]: the query names no model")
	one := `{"model":"m","prompt":"x"}`
	f("POST", "/v1/query:batch", `{"queries":[`+one+`,`+one+`,`+one+`]}`, 413, codeTooLarge, "more than 2")
	f("POST", "/v1/query:batch?strict=1", `{"querys":[]}`, 400, codeUnknownField, "is queries meant?")
	f("GET", "/v1/instances/pod-4.default", "", 404, codeNotFound, "meant?")
	f("GET", "/v1/blocks/xyz", "", 400, codeInvalid, `"xyz"`)
	f("GET", "/v1/blocks/12", "", 404, codeNotFound, "12")
	f("GET", "/v1/dump?limit=-1", "", 400, codeInvalid, "limit")
	f("GET", "/v1/dump?model=none", "", 404, codeNotFound, `"none"`)

	resp := r.do("POST", "/v1/query:batch", `{"queries":[{"model":"m","prompt":"x"},{"model":"m","token_ids":[1,-1]}]}`)
	if v := r.decoded(resp, 400); v["field"] != "queries[1].token_ids[1]" {
		t.Errorf("the field of an error in a batch is %v", v["field"])
	}
	r.srv.queries.Store(256)
	resp = r.do("POST", "/v1/query", one)
	if resp.Header.Get("Retry-After") != "1" {
		t.Error("429 without Retry-After")
	}
	if v := r.decoded(resp, 429); v["error"] != codeBusy {
		t.Errorf("%v", v)
	}
	r.srv.queries.Store(0)
	r.post("/v1/query", one, 200)
	if n := r.srv.queries.Load(); n != 0 {
		t.Errorf("%d queries are being answered", n)
	}
	if got := text(t, r.do("GET", "/v1/instances/nobody?format=table", "")); !strings.HasPrefix(got, "error   not_found\nreason  ") {
		t.Errorf("an error as text: %q", got)
	}
}

// TestBodyThatBreaksOff: the sender goes away in the middle.
func TestBodyThatBreaksOff(t *testing.T) {
	r := newRig(t)
	resp := r.do("POST", "/v1/query", "", func(req *http.Request) {
		req.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"model"`), errReader{}))
		req.ContentLength = 1000
	})
	if v := r.decoded(resp, 408); v["error"] != codeRequestAborted {
		t.Errorf("%v", v)
	}
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// panicky is a Fleet with a bug.
type panicky struct{ *fakeFleet }

func (panicky) Find(string) (*Instance, bool) { panic("a secret detail") }

// TestPanic: a bug costs one request, tells the client nothing and the log
// once.
func TestPanic(t *testing.T) {
	var log syncBuffer
	r := newRig(t, func(o *Options) {
		o.Fleet = panicky{newFakeFleet()}
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	for range 3 {
		resp := r.do("POST", "/v1/query", `{"model":"m","token_ids":[1],"candidates":["a"]}`)
		body := text(t, resp)
		if resp.StatusCode != http.StatusInternalServerError || !strings.Contains(body, codeInternal) || strings.Contains(body, "secret") || strings.Contains(body, "goroutine") {
			t.Fatalf("%d %s", resp.StatusCode, body)
		}
	}
	if n := strings.Count(log.String(), "a secret detail"); n != 1 {
		t.Errorf("logged %d times in one second", n)
	}
	if n := r.srv.queries.Load(); n != 0 {
		t.Errorf("%d queries are being answered still", n)
	}
	r.post("/v1/query", `{"model":"m","token_ids":[1]}`, 200)
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// TestPrivacy: neither a token id nor a word of a prompt gets into the log,
// an error, or a metric, at any log level.
func TestPrivacy(t *testing.T) {
	var log syncBuffer
	r := fleetOfThree(t, func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	secrets := []string{"77007700", "xyzzy", "eHl6enk"}
	model := `"model":"` + testModel + `"`
	bodies := []string{
		`{` + model + `,"token_ids":[77007700]}`,
		`{` + model + `,"token_ids":[77007700.5]}`,
		`{` + model + `,"token_ids":["77007700"]}`,
		`{` + model + `,"token_ids":[77007700 77007700]}`,
		`{` + model + `,"seq_hashes":["77007700x"]}`,
		`{` + model + `,"seq_hashes":[770077007700770077007700]}`,
		`{` + model + `,"prompt":"xyzzy"}`,
		`{` + model + `,"prompt":"xyzzy}`,
		`{` + model + `,"prompt":{"xyzzy":1}}`,
		`{` + model + `,"prompt":["xyzzy","xyzzy"]}`,
		`{` + model + `,"messages":[{"role":"user","content":"xyzzy"}]}`,
		`{` + model + `,"messages":[{"xyzzy":1,"xyzzy":2}]}`,
		`{` + model + `,"messages":xyzzy}`,
		`{` + model + `,"token_ids_b64":"xyzzy!"}`,
		`{` + model + `,"token_ids_b64":"eHl6enk="}`,
		`{` + model + `,"prompt":[77007700,"xyzzy"]}`,
	}
	for _, body := range bodies {
		for _, path := range []string{"/v1/query", "/v1/explain", "/query", "/query_by_hash", "/lookup"} {
			answer := text(t, r.do("POST", path+"?xyzzy=77007700", body))
			answer += text(t, r.do("POST", "/v1/query:batch", `{"queries":[`+body+`]}`))
			for _, s := range secrets {
				if strings.Contains(answer, s) {
					t.Errorf("%s %s: the answer has %s in it: %s", path, body, s, answer)
				}
			}
		}
	}
	metrics := text(t, r.do("GET", "/metrics", ""))
	for _, s := range secrets {
		if strings.Contains(log.String(), s) {
			t.Errorf("the log has %s in it", s)
		}
		if strings.Contains(metrics, s) {
			t.Errorf("the metrics have %s in them", s)
		}
	}
	if !strings.Contains(log.String(), "route=/v1/query ") {
		t.Error("requests are not logged at debug level")
	}
}

// TestDrain: /readyz says no first, and everything is answered still.
func TestDrain(t *testing.T) {
	awaited := []string{"snapshot", "replay of pod-1 rank 0"}
	r := newRig(t, func(o *Options) { o.Ready = func() (bool, []string) { return len(awaited) == 0, awaited } })
	if v := r.get("/readyz", 503); v["status"] != "warming" || len(v["awaited"].([]any)) != 2 {
		t.Errorf("%v", v)
	}
	if got := text(t, r.do("GET", "/readyz?format=table", "")); got != "status   warming\nawaited  snapshot\nawaited  replay of pod-1 rank 0\n" {
		t.Errorf("%q", got)
	}
	awaited = nil
	if v := r.get("/readyz", 200); v["status"] != "ready" {
		t.Errorf("%v", v)
	}
	r.srv.Drain()
	if v := r.get("/readyz", 503); v["status"] != "draining" {
		t.Errorf("%v", v)
	}
	r.get("/healthz", 200)
	r.post("/v1/query", `{"model":"m","token_ids":[1]}`, 200)
}

// serve serves r on a loopback port and returns the base of its URLs.
func (r *rig) serve() string {
	r.t.Helper()
	srv := r.srv.HTTPServer("")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- srv.Serve(l) }()
	r.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := srv.Shutdown(ctx); err != nil {
			r.t.Error(err)
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			r.t.Error(err)
		}
	})
	return "http://" + l.Addr().String()
}

// TestOverTCP: what a recorder in memory cannot show.
func TestOverTCP(t *testing.T) {
	r := fleetOfThree(t)
	r.store("pod-3.default", 0, indexer.GPU, prompt(16*5000, 9)) // a dump of several chunks
	base := r.serve()
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	f := func(method, path, body string, status int, in string) {
		t.Helper()
		req, err := http.NewRequest(method, base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if got := text(t, resp); resp.StatusCode != status || !strings.Contains(got, in) {
			t.Errorf("%s %s: %d %.300s", method, path, resp.StatusCode, got)
		}
	}
	tokens := tokensJSON(small())
	f("POST", "/v1/query", `{"model":"`+testModel+`","token_ids":`+tokens+`}`, 200, `"best":"pod-2.default"`)
	f("POST", "/v1/query:batch", `{"queries":[{"model":"`+testModel+`","token_ids":`+tokens+`}]}`, 200, `{"answers":[{"model"`)
	f("GET", "/v1/instances/default%2Fpod-1", "", 200, `"id":"pod-1.default"`)
	f("GET", "/v1/dump", "", 200, `"position":4999`)
	f("HEAD", "/healthz", "", 200, "")
	f("HEAD", "/v1/dump", "", 200, "")
	f("GET", "/metrics", "", 200, "kvindex_http_requests_total{")
	f("GET", "/v1/query", "", 405, codeMethod)
	f("POST", "/v1/query", strings.Repeat(" ", 9<<20), 413, codeTooLarge)
}

// TestSlowClients: connections that promise and do not send are ended.
func TestSlowClients(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a timeout")
	}
	base := newRig(t).serve()
	conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST /v1/query HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\n") // and no more
	if err := conn.SetReadDeadline(time.Now().Add(headerTimeout + 3*time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a half-sent header keeps its connection")
	}
}

// TestOptions: everything that is wrong is said at once.
func TestOptions(t *testing.T) {
	_, err := New(Options{Limits: Limits{Tokens: -1, Batch: -2}})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"index is missing", "fleet is missing", "tokens is negative", "batch is negative"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	r := newRig(t)
	if _, err := New(Options{Index: r.index, Fleet: r.fleet, TokenFile: "/does/not/exist"}); err == nil {
		t.Error("a token file that does not exist was accepted")
	}
}

func writeFile(path, content string) error { return os.WriteFile(path, []byte(content), 0o600) }
