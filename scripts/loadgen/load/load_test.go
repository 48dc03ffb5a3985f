package load

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvindex/kvindex/indexer"
)

// serve answers requests with f until the test ends.
func serve(t *testing.T, f http.HandlerFunc) *url.URL {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/v1/query"
	return u
}

const goodAnswer = `{"model":"m","state":"exact","instances":{"total":{"state":"live"}},"timings_us":{"decode":1,"total":123}}` + "\n"

// TestStallIsSeen: while the server stalls, an open loop counts every request
// that was due meanwhile, and a closed one the only request that it had sent.
func TestStallIsSeen(t *testing.T) {
	const stall = 400 * time.Millisecond
	for _, rate := range []float64{200, 0} {
		var n atomic.Int64
		u := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			if n.Add(1) == 5 {
				time.Sleep(stall)
			}
			fmt.Fprint(w, goodAnswer)
		})
		r, err := Run(context.Background(), Options{URL: u, Source: Bodies{[]byte("{}")}, Rate: rate, Connections: 1, Duration: 800 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		slow := 0
		for _, b := range r.client.Distribution() {
			if b.To >= int64(stall/2) {
				slow += int(b.Count)
			}
		}
		// Those that were due in the first half of the stall.
		if want := int(rate * stall.Seconds() / 2); rate > 0 && slow < want {
			t.Errorf("an open loop saw %d slow answers, want at least %d", slow, want)
		}
		if rate == 0 && slow > 10 { // others only where the machine stalls too
			t.Errorf("a closed loop saw %d slow answers, and sent one", slow)
		}
		if rate > 0 && r.Answered+r.Unsent != 160 {
			t.Errorf("%d answered and %d unsent, want 160", r.Answered, r.Unsent)
		}
	}
}

// TestFailures: failures are counted by reason, connections are made anew, and
// a run of failures only is an error.
func TestFailures(t *testing.T) {
	var n atomic.Int64
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch n.Add(1) % 4 {
		case 0:
			w.WriteHeader(http.StatusTooManyRequests)
		case 1:
			panic(http.ErrAbortHandler)
		case 2:
			w.Header().Set("Connection", "close")
			fmt.Fprint(w, strings.Replace(goodAnswer, "exact", "cold", 1))
		default:
			fmt.Fprint(w, goodAnswer)
		}
	})
	r, err := Run(context.Background(), Options{URL: u, Source: Bodies{[]byte("{}")}, Rate: 400, Connections: 2, Duration: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if r.Answered == 0 || r.Failed["status 429"] == 0 || r.Failed["closed"] == 0 || r.NotExact == 0 || r.NotExact == r.Answered {
		t.Errorf("%+v", r)
	}
	if r.Server.P50 < 0.1229 || r.Server.P50 > 0.1232 {
		t.Errorf("the server's own time is %g ms", r.Server.P50)
	}
	var out strings.Builder
	if err := r.Table(&out); err != nil || !strings.Contains(out.String(), "requests failed: status 429") {
		t.Errorf("%v\n%s", err, &out)
	}
	none := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	if _, err := Run(context.Background(), Options{URL: none, Source: Bodies{nil}, Rate: 100, Duration: 50 * time.Millisecond}); err == nil ||
		!strings.Contains(err.Error(), "418") {
		t.Errorf("a run without answers: %v", err)
	}
}

// TestCancel: a cancelled run does not wait for answers.
func TestCancel(t *testing.T) {
	release := make(chan struct{})
	u := serve(t, func(http.ResponseWriter, *http.Request) { <-release })
	t.Cleanup(func() { close(release) })
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := Run(ctx, Options{URL: u, Source: Bodies{[]byte("{}")}, Duration: time.Hour}); err != nil {
		t.Error(err)
	}
}

func TestOptions(t *testing.T) {
	u := &url.URL{Scheme: "http", Host: "x"}
	f := func(want string, o Options) {
		t.Helper()
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
	f("no URL", Options{Source: Bodies{nil}})
	f("only http", Options{URL: &url.URL{Scheme: "https", Host: "x"}, Source: Bodies{nil}})
	f("nothing to send", Options{URL: u})
	f("negative", Options{URL: u, Source: Bodies{nil}, Rate: -1})
}

// TestQueries: every form says the same prompt.
func TestQueries(t *testing.T) {
	tokens := Tokens(7, 40)
	e := Encoder{Model: `a"b`, BlockSize: 16, Seed: indexer.DefaultSeed}
	var got struct {
		Model  string   `json:"model"`
		Tokens []uint32 `json:"token_ids"`
		B64    []byte   `json:"token_ids_b64"`
		Local  []string `json:"local_hashes"`
		Seq    []string `json:"seq_hashes"`
	}
	for _, f := range Forms()[:4] {
		b, err := e.Query(f, tokens)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &got); err != nil || got.Model != e.Model {
			t.Errorf("%s: %v: %.100s", f, err, b)
		}
	}
	x, err := indexer.New(indexer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	var seq []string
	for _, h := range x.Table(indexer.TableKey{Model: "m", BlockSize: 16}).Sequence(tokens, 0, nil) {
		seq = append(seq, fmt.Sprint(uint64(h)))
	}
	if !slices.Equal(got.Tokens, tokens) || len(got.B64) != 160 || !slices.Equal(got.Seq, seq) ||
		len(got.Local) != 2 || got.Local[0] != seq[0] || got.Local[1] == seq[1] {
		t.Errorf("%+v", got)
	}
	if _, err := e.Query(Chat, tokens); err == nil {
		t.Error("a chat was made of token ids")
	}
}

// TestChats: chats are JSON, begin alike where their ids do, and are of about
// the promised length.
func TestChats(t *testing.T) {
	type chat struct {
		Messages []struct{ Role, Content string }
	}
	parse := func(b []byte) (c chat) {
		t.Helper()
		if err := json.Unmarshal(b, &c); err != nil {
			t.Fatal(err)
		}
		return c
	}
	a, b := parse(ChatOf("m", []uint64{1, 2, 3})), parse(ChatOf("m", []uint64{1, 2, 4, 5}))
	if len(a.Messages) != 3 || len(b.Messages) != 5 || a.Messages[1] != b.Messages[1] || a.Messages[2] == b.Messages[2] ||
		b.Messages[4].Role != "user" {
		t.Errorf("%d and %d messages", len(a.Messages), len(b.Messages))
	}
	turns := NewTurns("m", 1, 10_000, 250)
	var buf []byte
	c, d := parse(turns.Body(1, &buf)), parse(turns.Body(2, &buf))
	n := len(c.Messages) - 1
	if n%2 != 0 || !slices.Equal(c.Messages[:n], d.Messages[:n]) || c.Messages[n] == d.Messages[n] || c.Messages[n].Role != "user" {
		t.Errorf("%d messages", n+1)
	}
	count := 0
	for _, m := range c.Messages {
		count += len(strings.Fields(m.Content)) + strings.Count(m.Content, ".")
	}
	if count < 9000 || count > 11_000 {
		t.Errorf("a chat of about 10,000 tokens has %d words and full stops", count)
	}
}

// TestTrace: the built-in trace is what it says.
func TestTrace(t *testing.T) {
	trace, err := SampleTrace()
	if err != nil || len(trace) != 500 {
		t.Fatalf("%d requests, %v", len(trace), err)
	}
	for i, r := range trace {
		if n := len(r.Tokens()); n != r.InputLength {
			t.Errorf("request %d has %d tokens, want %d", i, n, r.InputLength)
		}
	}
	// The first two begin with the same piece.
	if a, b := trace[0].Tokens(), trace[1].Tokens(); !slices.Equal(a[:TraceBlock], b[:TraceBlock]) || slices.Equal(a[:2*TraceBlock], b[:2*TraceBlock]) {
		t.Error("equal ids are not equal tokens")
	}
	for _, form := range Forms() {
		if b, err := FromTrace(trace[:3], form, Encoder{Model: "m", BlockSize: 16}); err != nil || len(b) != 3 || !json.Valid(b[2]) {
			t.Errorf("%s: %d bodies, %v", form, len(b), err)
		}
	}
	f := func(text, want string) {
		t.Helper()
		if _, err := ReadTrace(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	f("", "empty")
	f("{", "request 1")
	f(`{"hash_ids":[]}`, "no hash_ids")
}
