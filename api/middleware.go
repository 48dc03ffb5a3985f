package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"
)

// wrap makes a gin handler of a route: who may use it, what its errors look
// like, that a panic costs one request, and what is counted.
func (s *Server) wrap(r route) gin.HandlerFunc {
	observe := s.metrics.observer(r.path)
	return func(c *gin.Context) {
		begin := time.Now()
		s.metrics.inFlight.Inc()
		defer func() {
			p := recover()
			abort := isAbort(p)
			if p != nil && !abort {
				s.panicked(c, r, p)
				// Half an answer must not look whole.
				abort = c.Writer.Status() < http.StatusInternalServerError
			}
			s.metrics.inFlight.Dec()
			took := time.Since(begin)
			observe(c.Request.Method, c.Writer.Status(), took)
			s.logAccess(c, r, took)
			if abort {
				panic(http.ErrAbortHandler)
			}
		}()
		err := s.auth.allow(c.Request, r.access)
		if err == nil {
			err = r.handle(c)
		}
		if err != nil {
			s.fail(c, r, err)
		}
	}
}

// isAbort reports whether a panic is the agreed way to break a connection.
func isAbort(p any) bool {
	err, ok := p.(error)
	return ok && errors.Is(err, http.ErrAbortHandler)
}

// panicked logs a panic of a handler, with its stack, and answers 500.
func (s *Server) panicked(c *gin.Context, r route, p any) {
	if ok, suppressed := s.panics.allow(time.Now()); ok {
		s.log.Error("a request handler panicked: please report this",
			"route", r.path, "panic", fmt.Sprint(p), "suppressed", suppressed, "stack", string(debug.Stack()))
	}
	if !c.Writer.Written() {
		s.writeError(c, toError(fmt.Errorf("panic")))
	}
}

// fail answers err, and logs it if it is the server's fault.
func (s *Server) fail(c *gin.Context, r route, err error) {
	e := toError(err)
	if later, ok := errors.AsType[*NotYetError](err); ok {
		c.Writer.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(later.RetryAfter.Seconds()))))
	}
	if e.Status == http.StatusInternalServerError {
		if ok, suppressed := s.failures.allow(time.Now()); ok {
			s.log.Error("a request failed", "route", r.path, "error", err.Error(), "suppressed", suppressed)
		}
	}
	if c.Writer.Written() {
		panic(http.ErrAbortHandler)
	}
	s.writeError(c, e)
}

// writeError writes the body of e.
func (s *Server) writeError(c *gin.Context, e *Error) {
	h := c.Writer.Header()
	switch e.Status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="kvindex"`)
	case http.StatusTooManyRequests:
		h.Set("Retry-After", "1")
	}
	if wantsText(c.Request) {
		s.write(c, e.Status, "text/plain; charset=utf-8", []byte("error   "+e.Code+"\nreason  "+cell(e.Reason)+"\n"))
		return
	}
	s.write(c, e.Status, "application/json", e.body())
}

// write writes a whole response.
func (s *Server) write(c *gin.Context, status int, contentType string, body []byte) {
	h := c.Writer.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Content-Type-Options", "nosniff")
	c.Writer.WriteHeader(status)
	_, _ = c.Writer.Write(body) // the caller is gone: nobody to tell
}

// logAccess logs a request at debug level: no body, no query string, and the
// route's template for its path.
func (s *Server) logAccess(c *gin.Context, r route, took time.Duration) {
	if !s.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	if ok, suppressed := s.accesses.allow(time.Now()); ok {
		s.log.Debug("request", "method", methodLabel(c.Request.Method), "route", r.path, "status", c.Writer.Status(),
			"bytes_in", c.Request.ContentLength, "bytes_out", c.Writer.Size(), "took", took,
			"peer", c.Request.RemoteAddr, "suppressed", suppressed)
	}
}
