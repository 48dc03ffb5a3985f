package hub

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	commit1   = "1111111111111111111111111111111111111111"
	commit2   = "2222222222222222222222222222222222222222"
	testToken = "hf_secretTokenOfTheTest"
	signature = "SignatureOfTheURL"
)

// fakeHub speaks the hub's resolve route: small files are redirected within the
// host, large ones (lfs) to another host with a signed URL.
type fakeHub struct {
	t        *testing.T
	hub, cdn *httptest.Server

	mu       sync.Mutex
	commits  map[string]map[string]string // commit, file: content
	refs     map[string]string
	lfs      map[string]bool
	before   func(w http.ResponseWriter, r *http.Request) (done bool) // hub and CDN
	requests []string                                                 // "HEAD /path", with the range
	auths    map[string][]string                                      // host: Authorization headers
}

func newFakeHub(t *testing.T) *fakeHub {
	h := &fakeHub{
		t: t, lfs: map[string]bool{"tokenizer.json": true}, refs: map[string]string{"main": commit1, "refs/pr/1": commit2}, auths: map[string][]string{},
		commits: map[string]map[string]string{
			commit1: {"tokenizer.json": `{"model":"one"}` + strings.Repeat(" ", 5000), "tokenizer_config.json": `{"one":1}`, "config.json": `{"model_type":"qwen3"}`},
			commit2: {"tokenizer.json": `{"model":"two"}` + strings.Repeat(" ", 6000), "tokenizer_config.json": `{"two":2}`, "config.json": `{"model_type":"qwen3"}`, "chat_template.jinja": "{{ 2 }}"},
		},
	}
	h.hub = httptest.NewServer(h.logged(http.HandlerFunc(h.serveHub)))
	h.cdn = httptest.NewServer(h.logged(http.HandlerFunc(h.serveCDN)))
	t.Cleanup(h.hub.Close)
	t.Cleanup(h.cdn.Close)
	return h
}

func (h *fakeHub) logged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		line := r.Method + " " + r.URL.EscapedPath()
		if rng := r.Header.Get("Range"); rng != "" {
			line += " " + rng
		}
		h.requests = append(h.requests, line)
		h.auths[r.Host] = append(h.auths[r.Host], r.Header.Get("Authorization"))
		before := h.before
		h.mu.Unlock()
		if before == nil || !before(w, r) {
			next.ServeHTTP(w, r)
		}
	})
}

func (h *fakeHub) serveHub(w http.ResponseWriter, r *http.Request) {
	const cached = "/api/resolve-cache/models/"
	if rest, ok := strings.CutPrefix(r.URL.EscapedPath(), cached); ok {
		p := strings.SplitN(rest, "/", 4) // Org, Name, commit, file
		content := h.content(p[2], p[3])
		w.Header().Set("X-Repo-Commit", p[2])
		w.Header().Set("ETag", `W/"`+gitSum(content)+`"`)
		http.ServeContent(w, r, p[3], time.Time{}, strings.NewReader(content))
		return
	}
	repo, rest, ok := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/resolve/")
	if !ok || repo != "Org/Name" {
		fail(w, http.StatusNotFound, "RepoNotFound", "Repository not found")
		return
	}
	revision, file, _ := strings.Cut(rest, "/")
	revision = strings.ReplaceAll(revision, "%2F", "/")
	commit := h.commit(revision)
	if commit == "" {
		fail(w, http.StatusNotFound, "RevisionNotFound", "Invalid rev id: "+revision)
		return
	}
	w.Header().Set("X-Repo-Commit", commit)
	content := h.content(commit, file)
	switch {
	case content == "":
		fail(w, http.StatusNotFound, "EntryNotFound", "Entry not found")
	case h.lfs[file]:
		w.Header().Set("X-Linked-Etag", `"`+shaSum(content)+`"`)
		w.Header().Set("X-Linked-Size", fmt.Sprint(len(content)))
		w.Header().Set("Location", h.cdn.URL+"/blobs/"+shaSum(content)+"?commit="+commit+"&file="+file+"&sig="+signature)
		w.WriteHeader(http.StatusFound)
	default:
		w.Header().Set("Location", cached+repo+"/"+commit+"/"+file)
		w.WriteHeader(http.StatusTemporaryRedirect)
	}
}

func (h *fakeHub) serveCDN(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("sig") != signature {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	w.Header().Set("ETag", `"md5-of-the-bucket"`)
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(h.content(r.URL.Query().Get("commit"), r.URL.Query().Get("file"))))
}

func fail(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("X-Error-Code", code)
	w.Header().Set("X-Error-Message", message)
	w.WriteHeader(status)
}

func (h *fakeHub) commit(revision string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.commits[revision] != nil {
		return revision
	}
	return h.refs[revision]
}

func (h *fakeHub) content(commit, file string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.commits[commit][file]
}

func (h *fakeHub) move(revision, commit string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refs[revision] = commit
}

func (h *fakeHub) intercept(f func(w http.ResponseWriter, r *http.Request) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.before = f
}

// seen are the requests since the last call.
func (h *fakeHub) seen() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.requests
	h.requests = nil
	return s
}

// rig is a fake hub, a cache that asks it, and what was logged.
type rig struct {
	*fakeHub
	*Cache
	t      *testing.T
	logs   *syncBuffer
	pauses *[]time.Duration
}

func newRig(t *testing.T, change ...func(*Options)) *rig {
	return newRigOf(t, newFakeHub(t), t.TempDir(), change...)
}

func newRigOf(t *testing.T, h *fakeHub, dir string, change ...func(*Options)) *rig {
	logs := &syncBuffer{}
	o := Options{Dir: dir, Endpoint: h.hub.URL, Token: testToken, Logger: slog.New(slog.NewTextHandler(logs, nil))}
	for _, f := range change {
		f(&o)
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	pauses := &[]time.Duration{}
	var mu sync.Mutex
	c.sleep = func(ctx context.Context, d time.Duration) error {
		mu.Lock()
		defer mu.Unlock()
		*pauses = append(*pauses, d)
		return ctx.Err()
	}
	t.Cleanup(c.client.CloseIdleConnections)
	t.Cleanup(func() { noSecrets(t, logs.String()) })
	return &rig{h, c, t, logs, pauses}
}

func localOnly(o *Options) { o.LocalOnly = true }

var model = Source{Repo: "Org/Name"}

func (r *rig) fetch(src Source) *Snapshot {
	r.t.Helper()
	s, err := r.Fetch(context.Background(), src)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// fetchErr expects an error that wraps want and has the texts.
func (r *rig) fetchErr(src Source, want error, texts ...string) {
	r.t.Helper()
	s, err := r.Fetch(context.Background(), src)
	if err == nil {
		r.t.Fatalf("no error, but %+v", s)
	}
	if want != nil && !isErr(err, want) {
		r.t.Errorf("error %q is not %q", err, want)
	}
	for _, x := range texts {
		if !strings.Contains(err.Error(), x) {
			r.t.Errorf("error %q does not say %q", err, x)
		}
	}
	noSecrets(r.t, fmt.Sprintf("%v %+v %#v", err, err, err))
	r.whole()
}

// whole expects that every visible file has the content of its commit.
func (r *rig) whole() {
	r.t.Helper()
	for _, path := range files(r.t, filepath.Join(r.Cache.o.Dir, "models--Org--Name", "snapshots")) {
		p := strings.SplitN(path, "/", 2)
		b, err := os.ReadFile(filepath.Join(r.Cache.o.Dir, "models--Org--Name", "snapshots", path))
		if err != nil || string(b) != r.content(p[0], p[1]) {
			r.t.Errorf("%s has %d bytes that are not those of the hub: %v", path, len(b), err)
		}
	}
}

func (r *rig) text(s *Snapshot, file string) string {
	r.t.Helper()
	b, err := os.ReadFile(filepath.Join(s.Dir, file))
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

func noSecrets(t *testing.T, s string) {
	t.Helper()
	for _, secret := range []string{testToken, signature} {
		if strings.Contains(s, secret) {
			t.Errorf("%q is told: %s", secret, s)
		}
	}
}

// files lists a folder's files.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		out = append(out, filepath.ToSlash(name))
		return nil
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	slices.Sort(out)
	return out
}

func write(t *testing.T, content string, path ...string) {
	t.Helper()
	name := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
}

func gitSum(s string) string {
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00%s", len(s), s)
	return hex.EncodeToString(h.Sum(nil))
}

func shaSum(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:])
}

// syncBuffer is a buffer that several goroutines may write to.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
