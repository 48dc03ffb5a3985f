package hub

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func isErr(err, want error) bool { return errors.Is(err, want) }

// layout is the cache with links' targets and small files' content.
func (r *rig) layout() []string {
	r.t.Helper()
	out := files(r.t, r.Cache.o.Dir)
	for i, name := range out {
		path := filepath.Join(r.Cache.o.Dir, name)
		if target, err := os.Readlink(path); err == nil {
			out[i] += " -> " + target
		} else if strings.Contains(name, "/refs/") {
			b, _ := os.ReadFile(path)
			out[i] += " = " + string(b)
		}
	}
	return out
}

// TestLayout: the tree that a download leaves is huggingface_hub's.
func TestLayout(t *testing.T) {
	r := newRig(t)
	s, err := Fetch(context.Background(), r.Cache.o, model)
	if err != nil {
		t.Fatal(err)
	}
	tok, cfg, model := shaSum(r.content(commit1, "tokenizer.json")), gitSum(`{"one":1}`), gitSum(`{"model_type":"qwen3"}`)
	want := []string{
		".locks/models--Org--Name/" + tok + ".lock", ".locks/models--Org--Name/" + cfg + ".lock", ".locks/models--Org--Name/" + model + ".lock",
		"models--Org--Name/.no_exist/" + commit1 + "/chat_template.jinja",
		"models--Org--Name/.no_exist/" + commit1 + "/chat_template.json",
		"models--Org--Name/.no_exist/" + commit1 + "/special_tokens_map.json",
		"models--Org--Name/blobs/" + tok, "models--Org--Name/blobs/" + cfg, "models--Org--Name/blobs/" + model,
		"models--Org--Name/refs/main = " + commit1,
		"models--Org--Name/snapshots/" + commit1 + "/config.json -> ../../blobs/" + model,
		"models--Org--Name/snapshots/" + commit1 + "/tokenizer.json -> ../../blobs/" + tok,
		"models--Org--Name/snapshots/" + commit1 + "/tokenizer_config.json -> ../../blobs/" + cfg,
	}
	slices.Sort(want)
	got := r.layout()
	slices.Sort(got)
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	wantSnap := &Snapshot{
		Dir: filepath.Join(r.Cache.o.Dir, "models--Org--Name/snapshots", commit1), Commit: commit1, Origin: OriginDownload,
		Files: []string{"tokenizer.json", "tokenizer_config.json", "config.json"},
	}
	if d := cmp.Diff(wantSnap, s); d != "" {
		t.Error(d)
	}
	r.whole()
}

// TestTokenStaysAtTheEndpoint: every request to the hub has it, none to the host
// that the hub redirects to.
func TestTokenStaysAtTheEndpoint(t *testing.T) {
	r := newRig(t)
	r.fetch(model)
	r.fakeHub.mu.Lock()
	defer r.fakeHub.mu.Unlock()
	for host, auths := range r.auths {
		want := ""
		if strings.HasSuffix(r.hub.URL, host) {
			want = "Bearer " + testToken
		}
		for _, a := range auths {
			if a != want {
				t.Errorf("Authorization %q was sent to %s", a, host)
			}
		}
	}
	if len(r.auths) != 2 {
		t.Errorf("%d hosts were asked", len(r.auths))
	}
}

// TestAgain: a branch costs one request when nothing has changed, a commit none.
func TestAgain(t *testing.T) {
	r := newRig(t)
	r.fetch(model)
	r.seen()
	if s := r.fetch(model); s.Origin != OriginCache {
		t.Errorf("origin %q", s.Origin)
	}
	if d := cmp.Diff([]string{"HEAD /Org/Name/resolve/main/tokenizer.json"}, r.seen()); d != "" {
		t.Error(d)
	}
	if s := r.fetch(Source{"Org/Name", commit1}); s.Origin != OriginCache {
		t.Errorf("origin %q", s.Origin)
	}
	if got := r.seen(); len(got) != 0 {
		t.Errorf("requests for a commit in the cache: %q", got)
	}
}

// TestMoved: the branch moves on; what both commits share is not downloaded again.
func TestMoved(t *testing.T) {
	r := newRig(t)
	r.fetch(model)
	r.move("main", commit2)
	r.seen()
	s := r.fetch(model)
	if s.Commit != commit2 || r.text(s, "chat_template.jinja") != "{{ 2 }}" {
		t.Errorf("got %+v", s)
	}
	for _, q := range r.seen() {
		if strings.HasPrefix(q, "GET") && strings.Contains(q, "config.json") && !strings.Contains(q, "tokenizer_config") {
			t.Errorf("a blob of the cache was downloaded: %s", q)
		}
	}
	r.whole()
}

// TestOneCommit: the branch moves between two files.
func TestOneCommit(t *testing.T) {
	r := newRig(t)
	var once sync.Once
	r.intercept(func(_ http.ResponseWriter, q *http.Request) bool {
		if strings.HasSuffix(q.URL.Path, "/config.json") {
			once.Do(func() { r.move("main", commit2) })
		}
		return false
	})
	s := r.fetch(model)
	if s.Commit != commit1 || r.text(s, "tokenizer_config.json") != `{"one":1}` || !strings.Contains(r.text(s, "tokenizer.json"), "one") {
		t.Errorf("got %+v", s)
	}
	for _, q := range r.seen()[1:] {
		if strings.Contains(q, "/main/") {
			t.Errorf("asked for the branch again: %s", q)
		}
	}
}

// TestAnswersForAnotherCommit: a hub that does not keep to the commit is not believed.
func TestAnswersForAnotherCommit(t *testing.T) {
	r := newRig(t)
	r.intercept(func(w http.ResponseWriter, q *http.Request) bool {
		if strings.HasSuffix(q.URL.Path, "/"+commit1+"/config.json") {
			q.URL.Path = strings.Replace(q.URL.Path, commit1, commit2, 1)
			q.URL.RawPath = ""
		}
		return false
	})
	r.fetchErr(model, ErrBroken, commit1, commit2, "config.json")
	r.fetchErr(Source{"Org/Name", strings.Repeat("3", 40)}, ErrNotFound)
}

func TestRevisions(t *testing.T) {
	r := newRig(t)
	s := r.fetch(Source{"Org/Name", "refs/pr/1"})
	if s.Commit != commit2 {
		t.Errorf("commit %q", s.Commit)
	}
	if got := r.seen()[0]; got != "HEAD /Org/Name/resolve/refs%2Fpr%2F1/tokenizer.json" {
		t.Error(got)
	}
	if b, _ := os.ReadFile(filepath.Join(r.Cache.o.Dir, "models--Org--Name/refs/refs/pr/1")); string(b) != commit2 {
		t.Errorf("refs: %q", b)
	}
	s = r.fetch(Source{"Org/Name", commit1})
	if s.Commit != commit1 || s.Origin != OriginDownload {
		t.Errorf("got %+v", s)
	}
	if exists(filepath.Join(r.Cache.o.Dir, "models--Org--Name/refs", commit1)) {
		t.Error("a commit has a reference")
	}
}

// handmade writes what `hf download` leaves of a model: no .no_exist.
func handmade(t *testing.T, dir string) {
	t.Helper()
	base := filepath.Join(dir, "models--Org--Name")
	write(t, commit1, base, "refs/main")
	for name, content := range map[string]string{"tokenizer.json": "{}", "tokenizer_config.json": `{"a":1}`} {
		write(t, content, base, "blobs", gitSum(content))
		if err := os.MkdirAll(filepath.Join(base, "snapshots", commit1), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("../../blobs/"+gitSum(content), filepath.Join(base, "snapshots", commit1, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHandmadeCache: what huggingface_hub has put there is used without a request.
func TestHandmadeCache(t *testing.T) {
	h := newFakeHub(t)
	dir := t.TempDir()
	handmade(t, dir)
	local := newRigOf(t, h, dir, localOnly)
	s := local.fetch(model)
	want := &Snapshot{
		Dir: filepath.Join(dir, "models--Org--Name/snapshots", commit1), Commit: commit1, Origin: OriginCache,
		Files:     []string{"tokenizer.json", "tokenizer_config.json"},
		Unchecked: []string{"chat_template.jinja", "chat_template.json", "special_tokens_map.json", "config.json"},
	}
	if d := cmp.Diff(want, s); d != "" {
		t.Error(d)
	}

	// huggingface_hub's list of the commit's files says that it has no others.
	list := `{"format_version":1,"files":{"tokenizer.json":{"size":2,"blob_id":"x"},"tokenizer_config.json":{"size":7,"blob_id":"y"}}}`
	write(t, list, dir, "models--Org--Name/trees", commit1+".json")
	want.Unchecked = nil
	if d := cmp.Diff(want, newRigOf(t, h, dir).fetch(Source{"Org/Name", commit1})); d != "" {
		t.Error(d)
	}
	if got := h.seen(); len(got) != 0 {
		t.Errorf("requests: %q", got)
	}

	// Without that, the hub is asked about what is not there.
	write(t, `{"format_version":2}`, dir, "models--Org--Name/trees", commit1+".json")
	if s := newRigOf(t, h, dir).fetch(Source{"Org/Name", commit1}); !slices.Contains(s.Files, "config.json") || s.Unchecked != nil {
		t.Errorf("got %+v", s)
	}
}

func TestLocalOnlyWithoutCache(t *testing.T) {
	r := newRig(t, localOnly)
	r.fetchErr(model, ErrOffline, filepath.Join(r.Cache.o.Dir, "models--Org--Name"), "Org/Name", "main")
	if got := r.seen(); len(got) != 0 {
		t.Errorf("requests: %q", got)
	}
}

// TestUnreachable: with a cache that is used and said, without one an error.
func TestUnreachable(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter){
		"500":      func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) },
		"429":      func(w http.ResponseWriter) { w.WriteHeader(http.StatusTooManyRequests) },
		"closed":   func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		"no hub":   func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK) },
		"no token": func(w http.ResponseWriter) { fail(w, http.StatusUnauthorized, "GatedRepo", "gated") },
		"private":  func(w http.ResponseWriter) { fail(w, http.StatusUnauthorized, "RepoNotFound", "not found") },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.fetch(model)
			r.seen()
			r.intercept(func(w http.ResponseWriter, _ *http.Request) bool { answer(w); return true })
			s := r.fetch(model)
			if s.Commit != commit1 || !strings.HasPrefix(s.Origin, "cache, the hub ") {
				t.Errorf("got %+v", s)
			}
			noSecrets(t, s.Origin)
			if got := r.seen(); len(got) != 1 {
				t.Errorf("with a cache, the hub is asked once: %q", got)
			}
			r.fetchErr(Source{"Org/Name", "v2"}, nil)
		})
	}
	t.Run("refused", func(t *testing.T) {
		r := newRig(t)
		r.hub.Close()
		r.fetchErr(model, ErrUnavailable, "connection refused", "HF_ENDPOINT", "Org/Name@main")
		if len(*r.pauses) != DefaultRetries {
			t.Errorf("%d pauses", len(*r.pauses))
		}
	})
}

// TestGone: the hub says that there is no such revision. A branch of the cache
// is not used then, a commit is.
func TestGone(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Files = []string{"tokenizer.json"} })
	r.fetch(model)
	gone := newRigOf(t, r.fakeHub, r.Cache.o.Dir)
	r.intercept(func(w http.ResponseWriter, _ *http.Request) bool {
		fail(w, http.StatusNotFound, "RevisionNotFound", "gone")
		return true
	})
	gone.fetchErr(model, ErrNotFound, "no such revision", "gone")
	if s := gone.fetch(Source{"Org/Name", commit1}); !strings.Contains(s.Origin, "no such revision") || len(s.Unchecked) != 5 {
		t.Errorf("got %+v", s)
	}
}

// TestCacheCannotTakeIt: the branch has moved, and the new commit cannot be
// written.
func TestCacheCannotTakeIt(t *testing.T) {
	r := newRig(t)
	r.fetch(model)
	snapshots := filepath.Join(r.Cache.o.Dir, "models--Org--Name/snapshots")
	write(t, "a file where a folder should be", snapshots, commit2)
	r.move("main", commit2)
	if s := r.fetch(model); s.Commit != commit1 || !strings.HasPrefix(s.Origin, "cache, cannot ") {
		t.Errorf("got %+v", s)
	}
}

// TestUnreachableHalfWay: the branch has moved, and the hub fails before the new
// commit is complete: the old one is used, and stays what the branch is.
func TestUnreachableHalfWay(t *testing.T) {
	r := newRig(t)
	r.fetch(model)
	r.move("main", commit2)
	r.intercept(func(w http.ResponseWriter, q *http.Request) bool {
		if strings.Contains(q.URL.Path, "tokenizer_config.json") {
			w.WriteHeader(http.StatusBadGateway)
			return true
		}
		return false
	})
	s := r.fetch(model)
	if s.Commit != commit1 || !strings.Contains(s.Origin, "502") {
		t.Errorf("got %+v", s)
	}
	r.intercept(nil)
	local := newRigOf(t, r.fakeHub, r.Cache.o.Dir, localOnly)
	if s := local.fetch(model); s.Commit != commit1 {
		t.Errorf("got %+v", s)
	}
	// The commit that is half there has no tokenizer.json, so that it is not taken for whole.
	local.fetchErr(Source{"Org/Name", commit2}, ErrOffline)
	if s := r.fetch(model); s.Commit != commit2 {
		t.Errorf("got %+v", s)
	}
}

func TestNoTokenizer(t *testing.T) {
	r := newRig(t)
	delete(r.commits[commit1], "tokenizer.json")
	r.fetchErr(model, ErrNotFound, "tokenizer.json", "main")
}

func TestTooLarge(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxFile = 1000 })
	r.fetchErr(model, ErrTooLarge, "tokenizer.json", "5015", "1000")

	// A hub that does not say the size.
	r.intercept(func(w http.ResponseWriter, q *http.Request) bool {
		if !strings.HasSuffix(q.URL.Path, "tokenizer.json") {
			return false
		}
		w.Header().Set("X-Repo-Commit", commit1)
		w.Header().Set("ETag", shaSum(r.content(commit1, "tokenizer.json")))
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		w.Write([]byte(r.content(commit1, "tokenizer.json")))
		return true
	})
	r.fetchErr(model, ErrTooLarge, "tokenizer.json", "1000")
	for _, name := range files(t, r.Cache.o.Dir) {
		if strings.Contains(name, "incomplete") {
			t.Errorf("%s is left", name)
		}
	}

	// One that is in the cache already.
	dir := t.TempDir()
	handmade(t, dir)
	small := newRigOf(t, r.fakeHub, dir, localOnly, func(o *Options) { o.MaxFile = 1 })
	if _, err := small.Fetch(context.Background(), model); !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "tokenizer.json has 2 bytes") {
		t.Error(err)
	}
}

// TestCopies: where there are no symlinks, snapshots hold copies.
func TestCopies(t *testing.T) {
	r := newRig(t)
	r.symlink = func(string, string) error { return errors.ErrUnsupported }
	s := r.fetch(model)
	if st, err := os.Lstat(filepath.Join(s.Dir, "tokenizer.json")); err != nil || !st.Mode().IsRegular() {
		t.Errorf("%v %v", st, err)
	}
	r.whole()
	r.seen()
	r.fetch(Source{"Org/Name", commit1})
	if got := r.seen(); len(got) != 0 {
		t.Errorf("requests: %q", got)
	}
}

// TestConcurrent: several callers, and several caches as of several processes,
// get the same at once; a file is downloaded once.
func TestConcurrent(t *testing.T) {
	h := newFakeHub(t)
	dir := t.TempDir()
	rigs := []*rig{newRigOf(t, h, dir), newRigOf(t, h, dir), newRigOf(t, h, dir)}
	for _, r := range rigs {
		r.sleep = sleep
	}
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			s, err := rigs[i%len(rigs)].Fetch(context.Background(), model)
			if err != nil || s.Commit != commit1 || len(s.Files) != 3 {
				t.Errorf("%+v %v", s, err)
			}
		})
	}
	wg.Wait()
	rigs[0].whole()
	downloads := 0
	for _, q := range h.seen() {
		if strings.HasPrefix(q, "GET /blobs/") {
			downloads++
		}
	}
	if downloads != 1 {
		t.Errorf("tokenizer.json was downloaded %d times", downloads)
	}
}

// TestWithoutLocks: where locks do not hold, both download, and nothing breaks.
func TestWithoutLocks(t *testing.T) {
	h := newFakeHub(t)
	dir := t.TempDir()
	write(t, "in the way", dir, ".locks") // no folder, no locks
	var both sync.WaitGroup
	both.Add(2)
	h.intercept(func(_ http.ResponseWriter, q *http.Request) bool {
		if strings.HasPrefix(q.URL.Path, "/blobs/") {
			both.Done()
			both.Wait()
		}
		return false
	})
	rigs := []*rig{newRigOf(t, h, dir), newRigOf(t, h, dir)}
	var wg sync.WaitGroup
	for _, r := range rigs {
		wg.Go(func() {
			if _, err := r.Fetch(context.Background(), model); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	rigs[0].whole()
}

// TestCallerGivesUp: who waits for another caller's download does not fail with it.
func TestCallerGivesUp(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancel(context.Background())
	arrived := make(chan struct{})
	var once sync.Once
	r.intercept(func(_ http.ResponseWriter, q *http.Request) bool {
		first := false
		once.Do(func() { first = true })
		if first {
			close(arrived)
			<-q.Context().Done()
		}
		return first
	})
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := r.Fetch(ctx, model); !errors.Is(err, context.Canceled) {
			t.Errorf("who gave up got %v", err)
		}
	})
	<-arrived
	wg.Go(func() {
		if s, err := r.Fetch(context.Background(), model); err != nil || s.Commit != commit1 {
			t.Errorf("%+v %v", s, err)
		}
	})
	cancel()
	wg.Wait()
}

func TestLocate(t *testing.T) {
	r := newRig(t)
	dir := t.TempDir()
	if _, err := r.Locate(context.Background(), dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an empty directory: %v", err)
	}
	write(t, "{}", dir, "tokenizer.json")
	s, err := r.Locate(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(&Snapshot{Dir: dir, Origin: OriginDirectory, Files: []string{"tokenizer.json"}}, s); d != "" {
		t.Error(d)
	}
	t.Chdir(dir)
	write(t, "{}", "Org/Name/tokenizer.json")
	if s, err := r.Locate(context.Background(), "Org/Name"); err != nil || s.Origin != OriginDirectory {
		t.Errorf("%+v %v", s, err)
	}
	if s, err := r.Locate(context.Background(), "Org/Name@main"); err != nil || s.Commit != commit1 {
		t.Errorf("%+v %v", s, err)
	}
	if _, err := r.Locate(context.Background(), "not/a/model"); !errors.Is(err, ErrInvalid) {
		t.Errorf("%v", err)
	}
}
