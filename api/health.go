package api

import (
	"net/http"
	"runtime"
	"strings"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// handleHealth answers GET /healthz: the process is up and serves.
func (s *Server) handleHealth(c *gin.Context) error {
	v := struct {
		Status string `json:"status"`
	}{"ok"}
	return s.show(c, http.StatusOK, v, func(t *table) { t.row("status", v.Status) })
}

// readiness is GET /readyz.
type readiness struct {
	Status   string   `json:"status"` // ready, warming, draining
	Awaited  []string `json:"awaited"`
	Draining bool     `json:"draining,omitzero"`
}

// readiness is ready when the index is warm and the server not draining.
func (s *Server) readiness() (readiness, int) {
	if s.draining.Load() {
		return readiness{"draining", []string{}, true}, http.StatusServiceUnavailable
	}
	ok, awaited := s.ready()
	if awaited == nil {
		awaited = []string{}
	}
	if !ok {
		return readiness{Status: "warming", Awaited: awaited}, http.StatusServiceUnavailable
	}
	return readiness{Status: "ready", Awaited: awaited}, http.StatusOK
}

// handleReady answers GET /readyz: 200 when queries should be sent here, 503
// with what is awaited when not. Queries are answered all the same.
func (s *Server) handleReady(c *gin.Context) error {
	v, status := s.readiness()
	return s.show(c, status, v, func(t *table) {
		t.row("status", v.Status)
		for _, a := range v.Awaited {
			t.row("awaited", a)
		}
	})
}

// handleVersion answers GET /version.
func (s *Server) handleVersion(c *gin.Context) error {
	v := struct {
		Version string `json:"version"`
		Go      string `json:"go"`
	}{s.version, strings.TrimPrefix(runtime.Version(), "go")}
	return s.show(c, http.StatusOK, v, func(t *table) {
		t.row("version", v.Version)
		t.row("go", v.Go)
	})
}

// handleMetrics answers GET /metrics.
func (s *Server) handleMetrics(c *gin.Context) error {
	promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{}).ServeHTTP(c.Writer, c.Request)
	return nil
}
