package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kvindex/kvindex/indexer/snapshot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ok(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// content is a body of n bytes.
type content struct {
	n    int
	err  error
	gate chan struct{} // if set, the body waits for it in the middle
}

func (c content) Meta() snapshot.Meta {
	return snapshot.Meta{Cluster: "blue", Kind: "test", Version: 1}
}

func (c content) Size() int64 { return int64(c.n) }

func (c content) body() []byte { return bytes.Repeat([]byte("0123456789"), c.n/10) }

func (c content) WriteBody(w io.Writer) error {
	if _, err := w.Write(c.body()); err != nil || c.err != nil {
		return errors.Join(err, c.err)
	}
	if c.gate != nil {
		<-c.gate
	}
	return nil
}

// server serves h at Path behind a token, over a real socket.
func server(t testing.TB, h http.Handler) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Path, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			http.Error(w, "token", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

func tokenFile(t testing.TB) string {
	file := filepath.Join(t.TempDir(), "token")
	ok(t, os.WriteFile(file, []byte("secret\n"), 0o600))
	return file
}

func client(t testing.TB, o Options) *Client {
	t.Helper()
	if o.TokenFile == "" {
		o.TokenFile = tokenFile(t)
	}
	c, err := New(o)
	ok(t, err)
	return c
}

func fetch(ctx context.Context, c *Client) ([]byte, error) {
	r, err := c.Open(ctx, snapshot.ID{})
	if err != nil {
		return nil, err
	}
	size := r.Size()
	b, err := io.ReadAll(r)
	if err == nil && size != int64(len(b)) {
		err = fmt.Errorf("%d bytes are announced, %d come", size, len(b))
	}
	return b, errors.Join(err, r.Close())
}

func TestPeer(t *testing.T) {
	for _, n := range []int{0, 10, 3_000_000} {
		src := content{n: n}
		c := client(t, Options{URL: server(t, NewHandler(HandlerOptions{Content: src})) + "/"})
		b, err := fetch(t.Context(), c)
		ok(t, err)
		if !bytes.Equal(b, src.body()) {
			t.Errorf("%d bytes arrive as %d others", n, len(b))
		}
		if _, err := c.Open(t.Context(), snapshot.ID{1}); !errors.Is(err, snapshot.ErrNone) {
			t.Errorf("the one before: %v", err)
		}
	}
}

// TestPeerInAChain: a peer that cuts its snapshot off is passed over.
func TestPeerInAChain(t *testing.T) {
	broken := client(t, Options{URL: server(t, NewHandler(HandlerOptions{Content: content{n: 2_000_000, err: errors.New("broken")}}))})
	whole := client(t, Options{URL: server(t, NewHandler(HandlerOptions{Content: content{n: 2_000_000}}))})
	committed := 0
	res, err := snapshot.Chain{Sources: []snapshot.Source{broken, whole}}.Restore(t.Context(),
		snapshot.Expect{Kind: "test", MinVersion: 1, MaxVersion: 1},
		func(_ snapshot.Header, body io.Reader) (func(), error) {
			n, err := io.Copy(io.Discard, body)
			return func() { committed = int(n) }, err
		})
	ok(t, err)
	if res.Source != whole.String() || committed != 2_000_000 || len(res.Failed) != 1 || res.Failed[0].Reason != snapshot.ReasonTruncated {
		t.Errorf("%d bytes, %+v", committed, res)
	}
}

func TestRefusals(t *testing.T) {
	f := func(what string, o Options, h http.HandlerFunc, reason snapshot.Reason, text string) {
		t.Helper()
		o.URL = server(t, h)
		begin := time.Now()
		_, err := fetch(t.Context(), client(t, o))
		if got := snapshot.ReasonOf(err); got != reason || err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %s (%v), want %s with %q", what, got, err, reason, text)
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("%s took %v", what, took)
		}
	}
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	good := NewHandler(HandlerOptions{Content: content{n: 3_000_000}}).ServeHTTP
	stalls := func(after int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", ContentType)
			sw, _ := snapshot.NewWriter(w, snapshot.NewHeader(snapshot.ID{1}, time.Now(), content{}.Meta()))
			_, _ = sw.Write(make([]byte, after))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}
	drips := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", ContentType)
		for r.Context().Err() == nil {
			_, _ = w.Write([]byte("k"))
			_ = http.NewResponseController(w).Flush()
			time.Sleep(20 * time.Millisecond)
		}
	}
	empty := filepath.Join(t.TempDir(), "empty")
	ok(t, os.WriteFile(empty, nil, 0o600))
	f("not found", Options{}, status(404), snapshot.ReasonNone, "404")
	f("busy", Options{}, status(503), snapshot.ReasonNone, "503")
	f("broken", Options{}, status(500), snapshot.ReasonStore, "500")
	f("wrong token", Options{TokenFile: empty}, good, snapshot.ReasonStore, "401")
	f("no token", Options{TokenFile: empty + "x"}, good, snapshot.ReasonStore, "token")
	f("a page", Options{}, status(200), snapshot.ReasonMagic, "")
	f("too large", Options{Limits: snapshot.Limits{MaxBytes: 1000}}, good, snapshot.ReasonTooLarge, "")
	f("stalled at once", Options{IdleTimeout: 50 * time.Millisecond}, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, snapshot.ReasonTimeout, "sent nothing for 50ms")
	f("stalled later", Options{IdleTimeout: 100 * time.Millisecond}, stalls(3<<20), snapshot.ReasonTimeout, "sent nothing for 100ms")
	f("slow", Options{IdleTimeout: time.Second, Timeout: 150 * time.Millisecond}, drips, snapshot.ReasonTimeout, "deadline")

	lis, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err, lis.Close())
	_, err = fetch(t.Context(), client(t, Options{URL: "http://" + lis.Addr().String()}))
	if snapshot.ReasonOf(err) != snapshot.ReasonStore || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("nobody there: %v", err)
	}
	for _, url := range []string{"", "10.0.0.1:8400", "ftp://x", "http://", "http://a b"} {
		if _, err := New(Options{URL: url}); err == nil {
			t.Errorf("%q is accepted", url)
		}
	}
}

func TestHandlerOneAtATime(t *testing.T) {
	gate := make(chan struct{})
	h := NewHandler(HandlerOptions{Content: content{n: 10, gate: gate}})
	url := server(t, h)
	first, second := client(t, Options{URL: url}), client(t, Options{URL: url})
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := fetch(t.Context(), first); err != nil {
			t.Error(err)
		}
	})
	for len(h.turn) == 0 {
		time.Sleep(time.Millisecond)
	}
	if _, err := fetch(t.Context(), second); !errors.Is(err, snapshot.ErrNone) {
		t.Errorf("while another is served: %v", err)
	}
	close(gate)
	wg.Wait()
	_, err := fetch(t.Context(), second)
	ok(t, err)
	resp, err := http.Post(url+Path, "", nil)
	ok(t, err, resp.Body.Close())
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Error(resp.Status)
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestHandlerSlowReader: whoever takes nothing is cut off, and the next is served.
func TestHandlerSlowReader(t *testing.T) {
	var log bytes.Buffer
	h := NewHandler(HandlerOptions{Content: content{n: 50_000_000}, WriteTimeout: 100 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	url := server(t, h)
	slow, err := client(t, Options{URL: url}).Open(t.Context(), snapshot.ID{})
	ok(t, err)
	defer slow.Close()
	h.turn <- struct{}{} // when it is free again
	<-h.turn
	if !strings.Contains(log.String(), "cannot send a snapshot") {
		t.Errorf("log: %s", &log)
	}
	next, err := client(t, Options{URL: url}).Open(t.Context(), snapshot.ID{})
	ok(t, err)
	next.Close()
}
