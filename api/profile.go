package api

import (
	"net/http"
	netpprof "net/http/pprof"
	"runtime/pprof"

	"github.com/gin-gonic/gin"
)

// Profiles are for whoever runs kvindex: they cost processor time, and show
// its insides. They hold addresses and counts, not the data that requests
// carry, and the command line, in which no secret belongs.

// handleProfiles answers GET /debug/pprof/: the list of profiles, a page.
func (s *Server) handleProfiles(c *gin.Context) error {
	netpprof.Index(c.Writer, c.Request)
	return nil
}

// handleProfile answers GET /debug/pprof/{profile}, for `go tool pprof` and
// `go tool trace`. Those that take ?seconds= may outlast the write timeout.
func (s *Server) handleProfile(c *gin.Context) error {
	w, r := c.Writer, c.Request
	switch name := c.Param("profile"); name {
	case "profile":
		netpprof.Profile(w, r)
	case "trace":
		netpprof.Trace(w, r)
	case "cmdline":
		netpprof.Cmdline(w, r)
	case "symbol":
		netpprof.Symbol(w, r)
	default:
		if pprof.Lookup(name) == nil {
			return notFound("there is no profile %s: /debug/pprof/ lists those that there are", shown(name))
		}
		if r.Method == http.MethodHead {
			return nil
		}
		netpprof.Handler(name).ServeHTTP(w, r)
	}
	return nil
}
