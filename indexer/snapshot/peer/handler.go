package peer

import (
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/kvindex/kvindex/indexer/snapshot"
)

// Content is what snapshots are made of. Its methods are safe for concurrent
// use.
type Content interface {
	// Meta describes what WriteBody writes.
	Meta() snapshot.Meta
	// WriteBody writes the body as it is now. It ends when w returns an error, and
	// holds nothing that others need while w takes its time.
	WriteBody(w io.Writer) error
	// Size is about how many bytes that are; 0 if it is not known.
	Size() int64
}

// HandlerOptions are the settings of a Handler. Content is needed.
type HandlerOptions struct {
	Content      Content
	WriteTimeout time.Duration // for each chunk; 0: 10 s
	Logger       *slog.Logger  // nil: none
}

// Handler answers GET with a snapshot that is made while it is sent. One at a
// time: whoever comes meanwhile is told to come back (503, which a Client takes as
// ErrNone). If it cannot be finished, the connection is cut, so that nobody
// takes it for whole. Who may ask is for the caller to check.
type Handler struct {
	o    HandlerOptions
	ids  snapshot.IDs
	turn chan struct{}
}

// NewHandler returns a Handler.
func NewHandler(o HandlerOptions) *Handler {
	if o.WriteTimeout == 0 {
		o.WriteTimeout = 10 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Handler{o: o, turn: make(chan struct{}, 1)}
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(rw http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodGet {
		rw.Header().Set("Allow", http.MethodGet)
		http.Error(rw, "GET only", http.StatusMethodNotAllowed)
		return
	}
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	default:
		rw.Header().Set("Retry-After", "1")
		http.Error(rw, "another snapshot is being sent", http.StatusServiceUnavailable)
		return
	}
	rw.Header().Set("Content-Type", ContentType)
	rw.Header().Set("Cache-Control", "no-store")
	if n := h.o.Content.Size(); n > 0 {
		rw.Header().Set(sizeHeader, strconv.FormatInt(n, 10))
	}
	rw.Header().Set("Connection", "close") // its write deadline is of no use to other answers
	now := time.Now()
	out := &deadlineWriter{w: rw, ctl: http.NewResponseController(rw), timeout: h.o.WriteTimeout}
	w, err := snapshot.NewWriter(out, snapshot.NewHeader(h.ids.Next(now, snapshot.ID{}), now, h.o.Content.Meta()))
	if err == nil {
		_, _, err = w.Fill(req.Context(), h.o.Content.WriteBody)
	}
	if err != nil {
		h.o.Logger.Warn("cannot send a snapshot", "to", req.RemoteAddr, "error", err)
		panic(http.ErrAbortHandler)
	}
}

// deadlineWriter gives each write its own time, in place of one deadline for
// the whole answer.
type deadlineWriter struct {
	w       io.Writer
	ctl     *http.ResponseController
	timeout time.Duration
}

func (d *deadlineWriter) Write(p []byte) (int, error) {
	// A writer without deadlines, of a test for instance, does without.
	_ = d.ctl.SetWriteDeadline(time.Now().Add(d.timeout))
	return d.w.Write(p)
}
