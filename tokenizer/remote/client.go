package remote

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Target is an engine that may be asked.
type Target struct {
	ID  string // names it in errors, logs and statistics
	URL string // http://HOST:PORT, under which it has /v1 and /metrics; empty if it cannot be asked
	// Model is the name that the model has there; empty leaves the name that is
	// in the request.
	Model string
	// RenderOnly keeps /tokenize from being asked, where it would tell other
	// tokens than the engine computes with: see the package's documentation.
	RenderOnly bool
}

// Options of a client; the zero value of each is its default.
type Options struct {
	// Targets returns the engines of a model. It is called for every request,
	// by many goroutines at once. If it is nil, only TokensFrom is of use.
	Targets func(model string) []Target

	Timeout        time.Duration // of a request, with its second try; default 1 s
	ScrapeEvery    time.Duration // between looks at an engine's load; default 2 s
	ScrapeTimeout  time.Duration // of one look; default 1 s
	RecheckRender  time.Duration // until an engine without /render is asked for it again; default 10 min
	MaxInFlight    int           // requests at engines, in all; default 64
	MaxPerTarget   int           // requests at one engine; default 16
	MaxWaiting     int           // an engine with more requests waiting is not asked; default 50
	MaxAnswerBytes int           // of an engine's answer; default 16 MiB

	// Header is sent with every request, such as an Authorization.
	Header http.Header
	// Logger is told which engines begin and cease to fail; default none.
	Logger *slog.Logger
}

// Validate says which option cannot be used.
func (o *Options) Validate() error {
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"Timeout", o.Timeout}, {"ScrapeEvery", o.ScrapeEvery},
		{"ScrapeTimeout", o.ScrapeTimeout}, {"RecheckRender", o.RecheckRender},
	} {
		if d.value < 0 {
			return fmt.Errorf("%s must not be negative: %s", d.name, d.value)
		}
	}
	for _, n := range []struct {
		name  string
		value int
	}{
		{"MaxInFlight", o.MaxInFlight}, {"MaxPerTarget", o.MaxPerTarget},
		{"MaxWaiting", o.MaxWaiting}, {"MaxAnswerBytes", o.MaxAnswerBytes},
	} {
		if n.value < 0 {
			return fmt.Errorf("%s must not be negative: %d", n.name, n.value)
		}
	}
	return nil
}

func (o *Options) setDefaults() {
	setDefault(&o.Timeout, time.Second)
	setDefault(&o.ScrapeEvery, 2*time.Second)
	setDefault(&o.ScrapeTimeout, time.Second)
	setDefault(&o.RecheckRender, 10*time.Minute)
	setDefault(&o.MaxInFlight, 64)
	setDefault(&o.MaxPerTarget, 16)
	setDefault(&o.MaxWaiting, 50)
	setDefault(&o.MaxAnswerBytes, 16<<20)
	if o.Targets == nil {
		o.Targets = func(string) []Target { return nil }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

func setDefault[T time.Duration | int](to *T, value T) {
	if *to == 0 {
		*to = value
	}
}

// Client asks engines for tokens. It is safe for concurrent use, and must be
// closed.
type Client struct {
	o         Options
	http      *http.Client
	transport *http.Transport
	log       *slog.Logger
	now       func() time.Time // the clock of breakers and loads

	stop context.CancelFunc // of the scraper
	wake chan struct{}      // tells the scraper that there is something to look at
	wg   sync.WaitGroup     // the scraper and the shared calls

	flightMu sync.Mutex
	flights  map[flightKey]*flight
	closed   bool

	mu       sync.Mutex
	targets  map[targetKey]*target
	inFlight int

	counters counters
}

// New returns a client; the error says which option cannot be used.
func New(o Options) (*Client, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("cannot ask engines for tokens: %w", err)
	}
	o.setDefaults()
	c := newClient(o)
	c.start()
	return c, nil
}

// newClient is New without its goroutine.
func newClient(o Options) *Client {
	transport := &http.Transport{
		// Engines are reached directly: no Proxy.
		DialContext:            (&net.Dialer{Timeout: o.Timeout}).DialContext,
		TLSHandshakeTimeout:    o.Timeout,
		ResponseHeaderTimeout:  o.Timeout,
		MaxIdleConns:           4 * o.MaxInFlight,
		MaxIdleConnsPerHost:    o.MaxPerTarget,
		IdleConnTimeout:        20 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true, // so that the bound of an answer is one of memory
	}
	return &Client{
		o:         o,
		transport: transport,
		http: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		log:     o.Logger,
		now:     time.Now,
		wake:    make(chan struct{}, 1),
		flights: map[flightKey]*flight{},
		targets: map[targetKey]*target{},
	}
}

func (c *Client) start() {
	ctx, cancel := context.WithCancel(context.Background())
	c.stop = cancel
	c.wg.Go(func() { c.scrapeLoop(ctx) })
}

// Close ends the calls that are shared, which then answer ErrClosed, and waits
// for the client's goroutines. Calls of TokensFrom that are under way are their
// callers' to end.
func (c *Client) Close() {
	c.flightMu.Lock()
	c.closed = true
	for _, f := range c.flights {
		f.cancel(ErrClosed)
	}
	c.flightMu.Unlock()
	c.stop()
	c.wg.Wait()
	c.transport.CloseIdleConnections()
}

// Tokens returns the token ids of a request's prompt, as the least loaded
// engine of the model tells them. If that engine fails, another one is asked,
// once, within Options.Timeout. Calls with equal arguments share one request to
// an engine, which goes on while one of them waits; each ends with its own
// context. The error is one of those of this package, or of the context.
func (c *Client) Tokens(ctx context.Context, model string, kind Kind, body []byte) ([]uint32, error) {
	key := flightKey{model, kind, sha256.Sum256(body)}
	ids, err := c.share(ctx, key, func(ctx context.Context) ([]uint32, error) {
		return c.ask(ctx, model, kind, body)
	})
	c.counters.count(err)
	return ids, err
}

// TokensFrom is Tokens of one certain engine: whatever its load, whether it
// failed before, and not shared with other calls. What the engine answers
// counts for whether Tokens asks it. The limits of requests in flight hold.
func (c *Client) TokensFrom(ctx context.Context, t Target, kind Kind, body []byte) ([]uint32, error) {
	ids, err := c.askOne(ctx, t, kind, body)
	c.counters.count(err)
	return ids, err
}

func (c *Client) askOne(ctx context.Context, t Target, kind Kind, body []byte) ([]uint32, error) {
	if c.isClosed() {
		return nil, ErrClosed
	}
	r, err := parse(kind, body)
	if err != nil {
		return nil, err
	}
	if t.URL == "" {
		return nil, ErrNoTarget
	}
	u, err := c.use(t)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.o.Timeout, errTimeout)
	defer cancel()
	ids, err := c.askTarget(ctx, u, r)
	c.done(u, err)
	return ids, err
}

// ask asks the best target, and another one if that may help.
func (c *Client) ask(ctx context.Context, model string, kind Kind, body []byte) ([]uint32, error) {
	r, err := parse(kind, body)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.o.Timeout, errTimeout)
	defer cancel()
	targets := c.o.Targets(model)
	first, err := c.choose(targets, r, nil)
	if err != nil {
		return nil, err
	}
	ids, err := c.askTarget(ctx, first, r)
	c.done(first, err)
	if !errors.Is(err, errElsewhere) || ctx.Err() != nil {
		return ids, err
	}
	second, none := c.choose(targets, r, first.target)
	if none != nil {
		return nil, err
	}
	c.counters.retries.Add(1)
	ids, err = c.askTarget(ctx, second, r)
	c.done(second, err)
	return ids, err
}
