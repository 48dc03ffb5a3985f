package api

import (
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/kvindex/kvindex/indexer"
)

// Timeouts and sizes of connections, for clients that are slow or hostile.
const (
	headerTimeout  = 2 * time.Second
	readTimeout    = 5 * time.Second
	writeTimeout   = 10 * time.Second
	idleTimeout    = 60 * time.Second
	maxHeaderBytes = 16 << 10
)

// Server answers the HTTP API. It is safe for concurrent use and owns no
// goroutine.
type Server struct {
	index *indexer.Index
	fleet Fleet
	// tokenizers is nil where texts cannot be tokenized.
	tokenizers Tokenizers
	hashes     blockHashes
	witness    witness
	snapshot   http.Handler
	// flat is nil where there is no second source.
	flat         Flat
	flatFallback bool
	log          *slog.Logger
	version      string
	limits       Limits
	ready        func() (bool, []string)
	starting     func() string
	auth         auth
	started      time.Time

	registry *prometheus.Registry
	metrics  *metrics
	engine   *gin.Engine
	spec     []byte // openapi.json
	page     *template.Template

	work     sync.Pool    // of *work
	queries  atomic.Int64 // being answered
	lookups  atomic.Uint64
	draining atomic.Bool
	panics   throttle
	failures throttle
	accesses throttle
}

// New makes a Server. It fails on options that are wrong and on token files
// that cannot be read.
func New(o Options) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("cannot make the API: %w", err)
	}
	s := &Server{
		index: o.Index, fleet: o.Fleet, tokenizers: o.Tokenizers, log: o.Logger, version: o.Version,
		limits: o.Limits.withDefaults(), ready: o.Ready, registry: o.Registry, snapshot: o.Snapshot,
		starting: o.Starting, flat: o.Flat, flatFallback: o.FlatFallback,
		started: time.Now(), hashes: blockHashes{index: o.Index},
		spec:     openAPI(o.Version),
		panics:   throttle{every: time.Second, burst: 1},
		failures: throttle{every: time.Second, burst: 5},
		accesses: throttle{every: time.Second, burst: 100},
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.version == "" {
		s.version = "unknown"
	}
	if s.ready == nil {
		s.ready = func() (bool, []string) { return true, nil }
	}
	var err error
	if s.auth, err = newAuth(o.TokenFile, o.AdminTokenFile, s.log); err != nil {
		return nil, fmt.Errorf("cannot make the API: %w", err)
	}
	if s.page, err = newPage(); err != nil {
		return nil, fmt.Errorf("cannot make the API: %w", err)
	}
	if s.registry == nil {
		s.registry = prometheus.NewRegistry()
		s.registry.MustRegister(collectors.NewGoCollector(),
			collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	for _, c := range o.Collectors {
		if err := s.registry.Register(c); err != nil {
			return nil, fmt.Errorf("cannot make the API: %w", err)
		}
	}
	if s.metrics, err = newMetrics(s.registry, s); err != nil {
		return nil, fmt.Errorf("cannot make the API: %w", err)
	}
	if s.starting == nil {
		s.starting = func() string { return "" }
	}
	s.work.New = func() any { return newWork(s.index, s.fleet, &s.hashes, s.starting) }
	s.engine = s.newEngine()
	return s, nil
}

// Handler is the API as an http.Handler. It has no timeouts of its own.
func (s *Server) Handler() http.Handler { return s.engine }

// HTTPServer returns a server of the API for addr, with timeouts that slow
// clients cannot outlast. The caller listens, serves and shuts down.
func (s *Server) HTTPServer(addr string) *http.Server {
	return &http.Server{
		Addr:              addr,
		Handler:           s.engine,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

// Drain makes /readyz say no from now on, while everything is still answered:
// the first step of a shutdown without failed requests. The next ones are to
// wait until load balancers have noticed, and http.Server.Shutdown.
func (s *Server) Drain() { s.draining.Store(true) }

// admit takes a place among the queries that are answered at once; release
// gives it back.
func (s *Server) admit() error {
	most := int64(s.limits.ConcurrentQueries)
	if s.queries.Add(1) > most {
		s.queries.Add(-1)
		return &Error{http.StatusTooManyRequests, codeBusy,
			fmt.Sprintf("%d queries are being answered, as many as are allowed at once", most), ""}
	}
	return nil
}

func (s *Server) release() { s.queries.Add(-1) }

// throttle lets burst events pass in every period and counts the others.
type throttle struct {
	every time.Duration
	burst int

	mu         sync.Mutex
	begin      time.Time
	passed     int
	suppressed int
}

// allow reports whether an event may pass now, and how many were held back
// since the last one that passed.
func (t *throttle) allow(now time.Time) (ok bool, suppressed int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.begin) >= t.every {
		t.begin, t.passed = now, 0
	}
	if t.passed >= t.burst {
		t.suppressed++
		return false, 0
	}
	t.passed++
	suppressed, t.suppressed = t.suppressed, 0
	return true, suppressed
}
