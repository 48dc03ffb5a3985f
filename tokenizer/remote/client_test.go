package remote

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
)

func TestValidate(t *testing.T) {
	for _, o := range []Options{
		{Timeout: -1}, {ScrapeEvery: -1}, {ScrapeTimeout: -1}, {RecheckRender: -1},
		{MaxInFlight: -1}, {MaxPerTarget: -1}, {MaxWaiting: -1}, {MaxAnswerBytes: -1},
	} {
		if c, err := New(o); err == nil {
			c.Close()
			t.Errorf("no error for %+v", o)
		}
	}
}

func TestScraper(t *testing.T) {
	metrics, err := os.ReadFile("testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	e := newEngine(t, map[string]answer{chatRender: rendered12, pathMetrics: {body: string(metrics)}})
	silent := newEngine(t, map[string]answer{chatRender: rendered12})
	r := newRig(t, Options{ScrapeEvery: time.Millisecond}, e.target("a"), silent.target("b"))
	scrapes := func() int {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.scrapes
	}
	want(t, "scrapes before there is a request", scrapes(), 0)
	if _, err := r.chat(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its load is known", func() bool { return r.targetStats(t, "a").LoadKnown })
	want(t, "load", r.targetStats(t, "a").Load, Load{Waiting: 3, Running: 7, CacheUsage: 0.5})
	want(t, "load of one without metrics is known", r.targetStats(t, "b").LoadKnown, false)
	silent.requests()
	for range 10 {
		if _, err := r.chat(); err != nil {
			t.Fatal(err)
		}
	}
	want(t, "requests at the unknown one", len(silent.requests()), 0)

	// Time goes on: it is looked at again, and when it is not asked for, no more.
	e.set(pathMetrics, answer{body: "vllm:num_requests_waiting 1\n"})
	r.clock.add(time.Second)
	eventually(t, "the load changes", func() bool { return r.targetStats(t, "a").Load == Load{Waiting: 1} })
	r.clock.add(2 * scrapedFor)
	if _, active := r.due(); active {
		t.Error("targets are looked at that nobody asks for")
	}
	r.clock.add(keptFor)
	r.due()
	want(t, "targets", len(r.Stats().Targets), 0)
}

func TestHeader(t *testing.T) {
	got := make(chan http.Header, 2)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header
		_, _ = io.WriteString(w, rendered12.body)
	}))
	defer s.Close()
	r := newRig(t, Options{Header: http.Header{"Authorization": {"Bearer x"}, "Content-Type": {"no"}}})
	if _, err := r.TokensFrom(t.Context(), Target{ID: "a", URL: s.URL + "/"}, Chat, []byte(chatBody)); err != nil {
		t.Fatal(err)
	}
	h := <-got
	want(t, "Authorization", h.Get("Authorization"), "Bearer x")
	want(t, "Content-Type", h.Values("Content-Type"), []string{"application/json"})
	want(t, "Idempotency-Key", h.Values("Idempotency-Key"), nil)
}

// Engines quote prompts in what they answer; that goes nowhere.
func TestUserDataStaysHere(t *testing.T) {
	logs := &bytes.Buffer{}
	f := func(url string, kind Kind, body string) {
		t.Helper()
		r := newRig(t, Options{}, Target{ID: "a", URL: url})
		for range breakerFailures {
			_, err := r.Tokens(context.Background(), marker, kind, []byte(body))
			if err == nil {
				t.Errorf("no error for %s", body)
				return
			}
			if strings.Contains(err.Error(), "XYZZY") {
				t.Errorf("the error quotes the request: %v", err)
			}
			for e := err; e != nil; e = errors.Unwrap(e) {
				if strings.Contains(e.Error(), "XYZZY") {
					t.Errorf("the error holds the request: %v", e)
				}
			}
		}
		logs.WriteString(r.log.String())
	}
	quote := `{"error":{"message":"` + marker + `","type":"BadRequestError"}}`
	for _, a := range []answer{
		{400, quote}, {422, quote}, {429, quote}, {500, quote}, {503, quote}, {404, quote}, noModel, {302, quote}, {200, quote},
		{200, marker}, {200, `{"token_ids":"` + marker + `"}`}, {200, `{"token_ids":[1,"` + marker + `"]}`}, {200, `{"` + marker},
	} {
		e := newEngine(t, map[string]answer{chatRender: a, completionRender: a})
		f(e.URL, Chat, chatBody)
		f(e.URL, Completion, completionBody)
	}
	for _, body := range []string{marker, `{"` + marker, `{"messages":"` + marker + `"`, `{"messages":[],"x":` + marker + `}`} {
		f("http://127.0.0.1:1", Chat, body)
	}
	f("http://127.0.0.1:1", Chat, `{"messages":[{"content":[{"type":"`+marker+`"}]}]}`)
	for _, raw := range []string{
		marker + "\r\n\r\n", "HTTP/1.1 " + marker + "\r\n\r\n", "HTTP/1.1 200 OK\r\n" + marker + "\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: " + marker + "\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n" + marker, "",
	} {
		f(rawServer(t, raw), Chat, chatBody)
	}
	if strings.Contains(logs.String(), "XYZZY") {
		t.Errorf("the log quotes the request:\n%s", logs)
	}
	if !strings.Contains(logs.String(), "engine fails") {
		t.Error("nothing was logged")
	}
}

// rawServer answers every connection with bytes, and closes it.
func rawServer(t *testing.T, raw string) (url string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = http.ReadRequest(bufio.NewReader(conn))
			_, _ = io.WriteString(conn, raw)
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return "http://" + l.Addr().String()
}

// vLLM's server closes connections that are idle for 5 s: a request that meets
// that goes over another connection, and nothing has failed.
func TestIdleConnectionIsClosed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan int)
	go func() {
		conns := 0
		defer func() { done <- conns }()
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns++
			in := bufio.NewReader(conn)
			if req, err := http.ReadRequest(in); err == nil {
				_, _ = io.Copy(io.Discard, req.Body)
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n{\"token_ids\":[1]}")
			}
			_, _ = http.ReadRequest(in) // is not answered
			conn.Close()
		}
	}()
	r := newRig(t, Options{})
	target := Target{ID: "a", URL: "http://" + l.Addr().String()}
	for range 3 {
		if _, err := r.TokensFrom(t.Context(), target, Chat, []byte(chatBody)); err != nil {
			t.Error(err)
		}
	}
	r.Close()
	l.Close()
	want(t, "connections", <-done, 3)
	want(t, "failures", r.targetStats(t, "a").Failures, 0)
}

func TestStats(t *testing.T) {
	e := newEngine(t, map[string]answer{chatRender: rendered12, completionRender: {status: 400}})
	target := Target{ID: "a", URL: strings.Replace(e.URL, "http://", "http://user:password@", 1)}
	r := newRig(t, Options{}, target)
	if _, err := r.chat(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Tokens(t.Context(), "m", Completion, []byte(completionBody)); !errors.Is(err, ErrRefused) {
		t.Fatal(err)
	}
	st := r.Stats()
	want(t, "results", st.Results, map[Result]uint64{ResultOK: 1, ResultRefused: 1})
	want(t, "answers", st.Latency.Count, 2)
	last := uint64(0)
	for _, bound := range latencyBounds {
		n := st.Latency.Buckets[bound]
		if n < last {
			t.Errorf("buckets are not cumulative: %v", st.Latency.Buckets)
		}
		last = n
	}
	got := st.Targets[0]
	if strings.Contains(got.URL, "password") || !strings.Contains(got.URL, "user:xxxxx@") {
		t.Errorf("URL %s", got.URL)
	}
	got.URL = ""
	want(t, "target", got, TargetStats{ID: "a", Breaker: BreakerClosed, Requests: 2, Chat: chatRender})
}

func TestResults(t *testing.T) {
	for err, result := range map[error]Result{
		nil: ResultOK, ErrNoTarget: ResultNoTarget, ErrBody: ResultBody, ErrClosed: ResultEnded, context.Canceled: ResultEnded,
		unsupported("x"): ResultUnsupported, badAnswer("x"): ResultAnswer,
	} {
		want(t, "result", resultOf(err), result)
	}
}
