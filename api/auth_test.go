package api

import (
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func bearerToken(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

func from(addr string) func(*http.Request) { return func(r *http.Request) { r.RemoteAddr = addr } }

// TestAuth: who may do what.
func TestAuth(t *testing.T) {
	dir := t.TempDir()
	file := func(name, token string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	token, admin := file("token", "t0ken"), file("admin", "4dmin")
	status := func(r *rig, want int, method, path string, change ...func(*http.Request)) {
		t.Helper()
		body := ""
		if method == "POST" && strings.HasSuffix(path, "query") {
			body = `{"model":"m","token_ids":[1]}`
		}
		resp := r.do(method, path, body, change...)
		if resp.StatusCode != want {
			t.Errorf("%s %s: status %d, want %d: %s", method, path, resp.StatusCode, want, text(t, resp))
		}
		if want == 401 && resp.Header.Get("WWW-Authenticate") == "" {
			t.Error("401 without WWW-Authenticate")
		}
	}
	far := from("10.1.2.3:55")

	open := fleetOfThree(t)
	status(open, 200, "POST", "/v1/query", far)
	status(open, 200, "POST", "/v1/instances/pod-1.default/clear")
	status(open, 200, "POST", "/v1/instances/pod-1.default/clear", from("[::1]:55"))
	status(open, 403, "POST", "/v1/instances/pod-1.default/clear", far)
	status(open, 403, "GET", "/v1/dump", far)
	status(open, 200, "GET", "/debug/pprof/")
	status(open, 200, "GET", "/debug/pprof/profile?seconds=1")
	status(open, 403, "GET", "/debug/pprof/", far)
	status(open, 403, "GET", "/debug/pprof/heap", far)
	status(open, 403, "GET", "/debug/pprof/profile?seconds=1", far)
	status(open, 403, "POST", "/v1/instances/pod-1.default/clear", far, func(r *http.Request) { r.Header.Set("X-Forwarded-For", "127.0.0.1") })
	status(open, 403, "POST", "/v1/instances/pod-1.default/clear", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") })
	status(open, 403, "POST", "/register", func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") })

	r := fleetOfThree(t, func(o *Options) { o.TokenFile = token })
	status(r, 401, "POST", "/v1/query")
	status(r, 401, "POST", "/v1/query", bearerToken("wrong"))
	status(r, 401, "POST", "/v1/query", func(r *http.Request) { r.Header.Set("Authorization", "Basic t0ken") })
	status(r, 200, "POST", "/v1/query", bearerToken("t0ken"), far)
	status(r, 401, "GET", "/metrics")
	status(r, 401, "GET", "/")
	for _, path := range []string{"/healthz", "/readyz", "/version", "/openapi.json"} {
		status(r, 200, "GET", path, far)
	}
	status(r, 401, "GET", "/v1/dump")
	status(r, 200, "GET", "/v1/dump", bearerToken("t0ken"))
	status(r, 403, "GET", "/v1/dump", bearerToken("t0ken"), far)

	r = fleetOfThree(t, func(o *Options) { o.TokenFile, o.AdminTokenFile = token, admin })
	status(r, 403, "GET", "/v1/dump", bearerToken("t0ken"))
	status(r, 403, "GET", "/debug/pprof/heap", bearerToken("t0ken"))
	status(r, 200, "GET", "/debug/pprof/heap", bearerToken("4dmin"), far)
	status(r, 200, "GET", "/v1/dump", bearerToken("4dmin"), far)
	status(r, 200, "POST", "/v1/query", bearerToken("4dmin"), far)

	r = fleetOfThree(t, func(o *Options) { o.AdminTokenFile = admin })
	status(r, 401, "GET", "/v1/dump")
	status(r, 403, "GET", "/v1/dump", bearerToken("guess"))
	status(r, 200, "GET", "/v1/dump", bearerToken("4dmin"))
	status(r, 200, "POST", "/v1/query")
}

// TestTokenFileChanges: a new token counts within a second, and an unreadable
// file leaves the old one.
func TestTokenFileChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write := func(s string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("old")
	var log syncBuffer
	f, err := openTokenFile(path, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	later := func() { f.base = f.base.Add(-2 * tokenMaxAge) }
	check := func(token string, want bool) {
		t.Helper()
		if got := f.matches(token); got != want {
			t.Errorf("%q matches: %v, want %v", token, got, want)
		}
	}
	check("old", true)
	write("new")
	check("old", true) // not read again yet
	later()
	check("old", false)
	check("new", true)
	write("  \n")
	for range 3 {
		later()
		check("new", true)
		check("", false)
	}
	if n := strings.Count(log.String(), "cannot be read"); n != 1 {
		t.Errorf("an unusable token file was logged %d times", n)
	}
	if _, err := openTokenFile(path, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("an empty token file was opened")
	}
}
