package hub

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestRefusals: what the hub answers becomes an error that says what to do.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		status        int
		code, message string
		want          error
		texts         []string
	}{
		{401, "GatedRepo", "Access to model Org/Name is restricted.", ErrUnauthorized, []string{"HF_TOKEN", "terms", "401", "restricted"}},
		{403, "GatedRepo", "Your request is awaiting a review", ErrUnauthorized, []string{"403", "awaiting a review"}},
		{401, "RepoNotFound", "Invalid username or password.", ErrNotFound, []string{"HF_TOKEN", "private"}},
		{404, "RepoNotFound", "", ErrNotFound, []string{"Org/Name"}},
		{401, "", "Invalid credentials in Authorization header", ErrUnauthorized, []string{"Invalid credentials"}},
		{403, "", "", ErrUnauthorized, []string{"HF_TOKEN"}},
		{404, "RevisionNotFound", "Invalid rev id: v9", ErrNotFound, []string{"revision", "v9"}},
		{404, "EntryNotFound", "", ErrNotFound, []string{"tokenizer.json"}},
		{404, "", "", ErrNotFound, []string{"tokenizer.json"}},
		{418, "", "", ErrUnavailable, []string{"418"}},
		{401, "Echo", "you sent Bearer " + testToken + "\u202egnp\n", ErrUnauthorized, []string{"Bearer (token) gnp"}},
	} {
		t.Run(fmt.Sprintf("%d%s", c.status, c.code), func(t *testing.T) {
			r := newRig(t)
			r.intercept(func(w http.ResponseWriter, _ *http.Request) bool { fail(w, c.status, c.code, c.message); return true })
			r.fetchErr(Source{"Org/Name", "v9"}, c.want, append(c.texts, "Org/Name@v9")...)
			if got := r.seen(); len(got) != 1 {
				t.Errorf("asked %d times", len(got))
			}
		})
	}
}

// TestRetries: what may pass is tried again, after what the hub asks for.
func TestRetries(t *testing.T) {
	for _, c := range []struct {
		name   string
		header http.Header
		status int
		check  func(d time.Duration) bool
	}{
		{"seconds", http.Header{"Retry-After": {"7"}}, 429, func(d time.Duration) bool { return d == 7*time.Second }},
		{"date", http.Header{"Retry-After": {"Fri, 01 Jan 2027 00:00:42 GMT"}}, 503, func(d time.Duration) bool { return d == 42*time.Second }},
		{"ratelimit", http.Header{"Ratelimit": {`"api";r=0;t=55`}}, 429, func(d time.Duration) bool { return d == 55*time.Second }},
		{"nothing", nil, 500, func(d time.Duration) bool { return d >= firstPause/2 && d < firstPause }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.now = func() time.Time { return time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC) }
			failures := 1
			r.intercept(func(w http.ResponseWriter, _ *http.Request) bool {
				if failures--; failures < 0 {
					return false
				}
				for k, v := range c.header {
					w.Header()[k] = v
				}
				w.WriteHeader(c.status)
				return true
			})
			if s := r.fetch(model); s.Origin != OriginDownload {
				t.Errorf("got %+v", s)
			}
			if len(*r.pauses) != 1 || !c.check((*r.pauses)[0]) {
				t.Errorf("pauses %v", *r.pauses)
			}
			if !strings.Contains(r.logs.String(), "trying again") {
				t.Errorf("not logged: %s", r.logs)
			}
		})
	}
	t.Run("too long", func(t *testing.T) {
		r := newRig(t)
		r.intercept(func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Retry-After", "86400")
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		})
		r.fetchErr(model, ErrUnavailable, "429", "86400")
		if len(*r.pauses) != 0 {
			t.Errorf("pauses %v", *r.pauses)
		}
	})
	t.Run("always", func(t *testing.T) {
		r := newRig(t)
		r.intercept(func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusBadGateway); return true })
		r.fetchErr(model, ErrUnavailable, "502", "hf download Org/Name")
		if got := r.seen(); len(got) != DefaultRetries+1 {
			t.Errorf("asked %d times", len(got))
		}
	})
}

// TestSilence: a hub that accepts and says nothing is given up.
func TestSilence(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Silence, o.Retries = 20*time.Millisecond, -1 })
	r.intercept(func(_ http.ResponseWriter, q *http.Request) bool { <-q.Context().Done(); return true })
	r.fetchErr(model, ErrUnavailable, "sent nothing")

	// In the middle of a file.
	r.intercept(func(w http.ResponseWriter, q *http.Request) bool {
		if !strings.HasPrefix(q.URL.Path, "/blobs/") {
			return false
		}
		w.Header().Set("Content-Length", "5015")
		w.Write([]byte(r.content(commit1, "tokenizer.json")[:100]))
		w.(http.Flusher).Flush()
		<-q.Context().Done()
		return true
	})
	r.Cache.o.Silence = time.Second
	r.fetchErr(model, ErrBroken, "sent nothing", "tokenizer.json")
}

// TestMirror: an endpoint that sends everything to another hub: the token does
// not go there.
func TestMirror(t *testing.T) {
	h := newFakeHub(t)
	mirror := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		http.Redirect(w, q, h.hub.URL+q.URL.Path, http.StatusPermanentRedirect)
	}))
	t.Cleanup(mirror.Close)
	r := newRigOf(t, h, t.TempDir(), func(o *Options) { o.Endpoint = mirror.URL + "/" })
	if s := r.fetch(model); s.Commit != commit1 {
		t.Errorf("got %+v", s)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for host, auths := range h.auths {
		for _, a := range auths {
			if a != "" {
				t.Errorf("Authorization %q was sent to %s", a, host)
			}
		}
	}
}

// TestRedirects that are not followed.
func TestRedirects(t *testing.T) {
	t.Run("to http", func(t *testing.T) {
		h := newFakeHub(t)
		hub := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			http.Redirect(w, q, h.hub.URL+q.URL.Path, http.StatusFound)
		}))
		t.Cleanup(hub.Close)
		r := newRigOf(t, h, t.TempDir(), func(o *Options) { o.Endpoint, o.Client = hub.URL, hub.Client() })
		r.fetchErr(model, ErrUnavailable, "from https to http")
		if got := h.seen(); len(got) != 0 {
			t.Errorf("followed: %q", got)
		}
	})
	t.Run("unknown certificate", func(t *testing.T) {
		hub := httptest.NewUnstartedServer(http.NotFoundHandler())
		hub.Config.ErrorLog = nil
		hub.StartTLS()
		t.Cleanup(hub.Close)
		r := newRig(t, func(o *Options) { o.Endpoint = hub.URL })
		r.fetchErr(model, ErrUnavailable, "certificate")
	})
	for name, location := range map[string]string{
		"loop": "/again", "scheme": "file:///etc/passwd", "not a URL": "http://[::1:%zz/" + signature,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Retries = -1 })
			r.intercept(func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("Location", location)
				w.WriteHeader(http.StatusFound)
				return true
			})
			_, err := r.Fetch(context.Background(), model)
			if !isErr(err, ErrUnavailable) {
				t.Error(err)
			}
			if name != "not a URL" { // the text of the location is the client's own
				noSecrets(t, err.Error())
			}
		})
	}
}

// TestHostileHeaders: commits and checksums become paths.
func TestHostileHeaders(t *testing.T) {
	for _, h := range [][2]string{
		{"../../../../etc", shaSum("")}, {commit1, "../../../../tmp/x"}, {commit1, ""}, {"", shaSum("")}, {strings.ToUpper(strings.Repeat("a", 40)), shaSum("")},
	} {
		r := newRig(t)
		r.intercept(func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("X-Repo-Commit", h[0])
			w.Header().Set("ETag", `"`+h[1]+`"`)
			return true
		})
		r.fetchErr(model, ErrUnavailable)
		if got := files(t, r.Cache.o.Dir); len(got) != 0 {
			t.Errorf("%q wrote %q", h, got)
		}
	}
}

// TestProgress: what takes long says where it is.
func TestProgress(t *testing.T) {
	r := newRig(t)
	ticks := make(chan time.Time)
	r.ticker = func() (<-chan time.Time, func()) { return ticks, func() {} }
	r.intercept(func(_ http.ResponseWriter, q *http.Request) bool {
		if strings.HasPrefix(q.URL.Path, "/blobs/") {
			ticks <- time.Time{}
			ticks <- time.Time{} // the first has been logged
		}
		return false
	})
	r.fetch(model)
	for _, want := range []string{"still getting a model's files", "waiting_for=tokenizer.json", "model=Org/Name", "revision=main", "of=5015", "model's files downloaded"} {
		if !strings.Contains(r.logs.String(), want) {
			t.Errorf("the log lacks %q: %s", want, r.logs)
		}
	}
}
