package api

import (
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"
)

// access is who may use a route.
type access uint8

const (
	accessOpen  access = iota // anyone: probes
	accessToken               // holders of the token, if one is configured
	accessAdmin               // holders of the admin token; without one, loopback peers
)

// route is one operation of the API. The path is a template as in
// openapi.json, which has to list the same routes: a test compares them.
type route struct {
	method, path string
	access       access
	handle       func(*gin.Context) error
}

// routes are all operations. A GET route answers HEAD too.
func (s *Server) routes() []route {
	get, post := http.MethodGet, http.MethodPost
	return []route{
		{post, "/v1/query", accessToken, s.handleQuery},
		{post, "/v1/query:batch", accessToken, s.handleBatch},
		{post, "/v1/explain", accessToken, s.handleExplain},
		{post, "/query", accessToken, s.handleRFCQuery},
		{post, "/query_by_hash", accessToken, s.handleRFCQueryByHash},
		{post, "/lookup", accessToken, s.handleLookup},

		{post, "/register", accessToken, s.handleRegister},
		{post, "/unregister", accessToken, s.handleUnregister},
		{get, "/workers", accessToken, s.handleWorkers},
		{get, "/v1/instances", accessToken, s.handleInstances},
		{get, "/v1/instances/{id}", accessToken, s.handleInstance},
		{post, "/v1/instances/{id}/clear", accessAdmin, s.handleClear},
		{post, "/v1/instances/{id}/resync", accessAdmin, s.handleResync},

		{post, "/tokenize", accessToken, s.handleTokenize},
		{post, "/v1/tokenizers/reload", accessAdmin, s.handleReload},

		{get, "/v1/models", accessToken, s.handleModels},
		{get, "/v1/stats", accessToken, s.handleStats},
		{get, "/v1/blocks/{hash}", accessToken, s.handleBlock},
		{get, "/v1/dump", accessAdmin, s.handleDump},
		{get, "/v1/snapshot", accessAdmin, s.handleSnapshot},

		{get, "/healthz", accessOpen, s.handleHealth},
		{get, "/readyz", accessOpen, s.handleReady},
		{get, "/version", accessOpen, s.handleVersion},
		{get, "/openapi.json", accessOpen, s.handleOpenAPI},
		{get, "/metrics", accessToken, s.handleMetrics},
		{get, "/debug/pprof/", accessAdmin, s.handleProfiles},
		{get, "/debug/pprof/{profile}", accessAdmin, s.handleProfile},
		{get, "/", accessToken, s.handlePage},
	}
}

// newEngine builds the router.
func (s *Server) newEngine() *gin.Engine {
	gin.SetMode(gin.ReleaseMode) // a global of gin's: without it, it prints every route
	e := gin.New()
	// Cannot fail: an empty list is always valid. Nobody's word is taken for
	// where a request comes from.
	_ = e.SetTrustedProxies(nil)
	// An instance id may contain slashes: they come escaped (%2F).
	e.UseRawPath = true
	e.UnescapePathValues = true
	e.RedirectTrailingSlash = false
	e.HandleMethodNotAllowed = true
	for _, r := range s.routes() {
		h := s.wrap(r)
		e.Handle(r.method, ginPath(r.path), h)
		if r.method == http.MethodGet {
			e.HEAD(ginPath(r.path), h)
		}
	}
	e.NoRoute(s.wrap(route{path: routeNone, handle: s.noRoute}))
	e.NoMethod(s.wrap(route{path: routeNone, handle: s.noMethod}))
	return e
}

// routeNone labels requests that no route takes.
const routeNone = "none"

// ginPath turns "/a/{id}:b" into gin's "/a/:id\:b".
func ginPath(template string) string {
	return strings.NewReplacer(":", `\:`, "{", ":", "}", "").Replace(template)
}

// noRoute answers unknown paths and says which one may have been meant.
func (s *Server) noRoute(c *gin.Context) error {
	path := c.Request.URL.Path
	var paths []string
	for _, r := range s.routes() {
		paths = append(paths, r.path)
	}
	reason := "there is nothing at " + shown(path)
	if near := nearest(strings.TrimRight(path, "/"), paths); near != "" {
		reason += ": is " + near + " meant?"
	} else {
		reason += ": /openapi.json lists what there is"
	}
	return &Error{http.StatusNotFound, codeNotFound, reason, ""}
}

// noMethod answers known paths with another method.
func (s *Server) noMethod(c *gin.Context) error {
	allowed := c.Writer.Header().Get("Allow") // set by gin
	return &Error{http.StatusMethodNotAllowed, codeMethod,
		c.Request.Method + " is not a method of this path: use " + allowed, ""}
}
