package remote

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The endpoints as tests name them.
const (
	chatRender       = "/v1/chat/completions/render"
	completionRender = "/v1/completions/render"
)

// marker is user data: it must not be found in errors and logs.
const marker = "XYZZY-secret"

const (
	chatBody       = `{"model":"m","messages":[{"role":"user","content":"` + marker + `"}]}`
	completionBody = `{"model":"m","prompt":"` + marker + `"}`
)

// answer is what an engine answers.
type answer struct {
	status int // 0: 200
	body   string
}

var (
	rendered12  = answer{body: `{"request_id":"chatcmpl-1","token_ids":[1,2],"features":null,"sampling_params":{"n":1}}`}
	tokenized12 = answer{body: `{"count":2,"max_model_len":4096,"tokens":[1,2],"token_strs":null}`}
	noRoute     = answer{404, `{"error":{"message":"Not Found","type":"Not Found","param":null,"code":404}}`}
	noModel     = answer{404, `{"error":{"message":"The model ` + marker + ` does not exist.","type":"NotFoundError","param":"model","code":404}}`}
)

// asked is a request that an engine got.
type asked struct{ Path, Body string }

// engine is a vLLM whose answers a test chooses.
type engine struct {
	*httptest.Server
	mu      sync.Mutex
	answers map[string]answer // by path; others are noRoute
	log     []asked           // without /metrics
	hold    chan struct{}     // if not nil, answers wait until it is closed
	scrapes int
}

func newEngine(t testing.TB, answers map[string]answer) *engine {
	e := &engine{answers: answers}
	e.Server = httptest.NewServer(e)
	t.Cleanup(e.Close)
	return e
}

func (e *engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	e.mu.Lock()
	a, ok := e.answers[r.URL.Path]
	hold := e.hold
	if r.URL.Path == pathMetrics {
		e.scrapes++
		hold = nil
	} else {
		e.log = append(e.log, asked{r.URL.Path, string(body)})
	}
	e.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-r.Context().Done():
			return
		}
	}
	if !ok {
		a = noRoute
	}
	if a.status != 0 {
		w.WriteHeader(a.status)
	}
	_, _ = io.WriteString(w, a.body)
}

func (e *engine) set(path string, a answer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answers[path] = a
}

// requests returns what the engine was asked, and forgets it.
func (e *engine) requests() []asked {
	e.mu.Lock()
	defer e.mu.Unlock()
	log := e.log
	e.log = nil
	return log
}

func (e *engine) paths() []string {
	var paths []string
	for _, r := range e.requests() {
		paths = append(paths, r.Path)
	}
	return paths
}

func (e *engine) target(id string) Target { return Target{ID: id, URL: e.URL} }

// clock is a time that a test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// rig is a client with a clock, and what it logged.
type rig struct {
	*Client
	clock *clock
	log   *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// newRig makes a client of the targets. Its scraper runs only if o says how
// often; loads are set by the test otherwise.
func newRig(t testing.TB, o Options, targets ...Target) *rig {
	t.Helper()
	r := &rig{clock: &clock{now: time.Unix(1_700_000_000, 0)}, log: &lockedBuffer{}}
	scrape := o.ScrapeEvery != 0
	if o.Timeout == 0 {
		o.Timeout = time.Minute // no test is to depend on how fast the machine is
	}
	o.ScrapeTimeout = time.Minute
	o.Targets = func(string) []Target { return targets }
	o.Logger = slog.New(slog.NewTextHandler(r.log, nil))
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	o.setDefaults()
	r.Client = newClient(o)
	r.now = r.clock.Now
	if scrape {
		r.start()
	} else {
		r.stop = func() {}
	}
	t.Cleanup(r.Close)
	return r
}

// setLoad says what a target has to do.
func (r *rig) setLoad(t Target, waiting, running float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.state(&t)
	s.load, s.loadAt = Load{Waiting: waiting, Running: running}, r.clock.Now()
}

func (r *rig) targetStats(t testing.TB, id string) TargetStats {
	t.Helper()
	for _, s := range r.Stats().Targets {
		if s.ID == id {
			return s
		}
	}
	t.Fatalf("there is no target %q", id)
	return TargetStats{}
}

func want[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// eventually waits until ok.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatal("never: " + what)
}

func ids(n ...uint32) []uint32 { return n }

// chat asks for the tokens of a chat.
func (r *rig) chat() ([]uint32, error) {
	return r.Tokens(context.Background(), "m", Chat, []byte(chatBody))
}
