package hub

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// blobRequests are the requests for a content, without the ones that led there.
func (r *rig) blobRequests() []string {
	var out []string
	for _, q := range r.seen() {
		if rest, ok := strings.CutPrefix(q, "GET /blobs/"); ok {
			_, rng, _ := strings.Cut(rest, " ")
			out = append(out, rng)
		}
	}
	return out
}

// onBlob answers requests for tokenizer.json's content, n is their number.
func (r *rig) onBlob(f func(w http.ResponseWriter, q *http.Request, n int) bool) {
	n := 0
	r.intercept(func(w http.ResponseWriter, q *http.Request) bool {
		if q.Method != http.MethodGet || !strings.HasPrefix(q.URL.Path, "/blobs/") {
			return false
		}
		n++
		return f(w, q, n)
	})
}

// cut sends the content up to a byte and breaks the connection.
func cut(w http.ResponseWriter, content string, to int) {
	w.Header().Set("Content-Length", fmt.Sprint(len(content)))
	w.Write([]byte(content[:to]))
	w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

func (r *rig) expect(ranges ...string) {
	r.t.Helper()
	if got := r.blobRequests(); !slices.Equal(got, ranges) {
		r.t.Errorf("ranges asked for: %q, want %q", got, ranges)
	}
}

// incomplete are the files of broken downloads.
func (r *rig) incomplete() []string {
	return slices.DeleteFunc(files(r.t, r.Cache.o.Dir), func(s string) bool { return !strings.HasSuffix(s, ".incomplete") })
}

// TestCutAndResumed: within a call, the next attempt goes on where it broke.
func TestCutAndResumed(t *testing.T) {
	r := newRig(t)
	content := r.content(commit1, "tokenizer.json")
	r.onBlob(func(w http.ResponseWriter, _ *http.Request, n int) bool {
		if n == 1 {
			cut(w, content, 1234)
		}
		return false
	})
	if s := r.fetch(model); r.text(s, "tokenizer.json") != content {
		t.Error("wrong content")
	}
	r.expect("", "bytes=1234-")
	if got := r.incomplete(); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
}

// TestResumedNextTime: a call that gave up leaves nothing visible, and the next
// goes on, as one does after huggingface_hub's.
func TestResumedNextTime(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Retries = -1 })
	content := r.content(commit1, "tokenizer.json")
	r.onBlob(func(w http.ResponseWriter, _ *http.Request, _ int) bool { cut(w, content, 1234); return true })
	r.fetchErr(model, ErrBroken, "tokenizer.json", "1234 bytes", "try again")
	r.expect("")
	want := []string{"models--Org--Name/blobs/" + shaSum(content) + ".incomplete"}
	if got := r.incomplete(); !slices.Equal(got, want) {
		t.Errorf("left: %q", got)
	}
	if exists(filepath.Join(r.Cache.o.Dir, "models--Org--Name/refs/main")) {
		t.Error("the reference was written before the files")
	}
	r.intercept(nil)
	if s := r.fetch(model); r.text(s, "tokenizer.json") != content {
		t.Error("wrong content")
	}
	r.expect("bytes=1234-")
	if got := r.incomplete(); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
}

// TestAbandoned: what a killed process left is gone on with once it is old.
func TestAbandoned(t *testing.T) {
	for _, age := range []time.Duration{time.Minute, time.Hour} {
		r := newRig(t)
		content := r.content(commit1, "tokenizer.json")
		left := filepath.Join(r.Cache.o.Dir, "models--Org--Name/blobs", shaSum(content)+".0123abcd.incomplete")
		write(t, content[:77], left)
		if err := os.Chtimes(left, time.Time{}, time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
		r.fetch(model)
		if age > abandoned {
			r.expect("bytes=77-")
		} else {
			r.expect("") // somebody may be writing to it
		}
		if exists(left) != (age < abandoned) {
			t.Errorf("%v: %v", age, exists(left))
		}
		r.whole()
	}
}

// TestRangeIgnored: a server that sends all of it, another part, or cannot go on.
func TestRangeIgnored(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter, content string)
		ranges []string
	}{
		"all": {func(w http.ResponseWriter, content string) { w.Write([]byte(content)) }, []string{"bytes=500-"}},
		"other part": {func(w http.ResponseWriter, content string) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 100-%d/%d", len(content)-1, len(content)))
			w.WriteHeader(http.StatusPartialContent)
			w.Write([]byte(content[100:]))
		}, []string{"bytes=500-", ""}},
		"416": {func(w http.ResponseWriter, _ string) { w.WriteHeader(http.StatusRequestedRangeNotSatisfiable) }, []string{"bytes=500-", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			content := r.content(commit1, "tokenizer.json")
			write(t, content[:500], r.Cache.o.Dir, "models--Org--Name/blobs", shaSum(content)+".incomplete")
			r.onBlob(func(w http.ResponseWriter, _ *http.Request, n int) bool {
				if n == 1 {
					c.answer(w, content)
				}
				return n == 1
			})
			r.fetch(model)
			r.expect(c.ranges...)
			r.whole()
		})
	}
}

// TestWrongPart: the incomplete file is of something else; it is begun anew.
func TestWrongPart(t *testing.T) {
	for name, have := range map[string]int{"part": 500, "whole": 5015, "longer": 6000} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			content := r.content(commit1, "tokenizer.json")
			write(t, strings.Repeat("x", have), r.Cache.o.Dir, "models--Org--Name/blobs", shaSum(content)+".incomplete")
			r.fetch(model)
			r.whole()
		})
	}
}

// TestWrongContent: neither large nor small files are believed.
func TestWrongContent(t *testing.T) {
	for _, c := range []struct{ file, wrong string }{
		{"tokenizer.json", strings.Repeat("x", 5015)},
		{"tokenizer.json", "short"},
		{"tokenizer.json", strings.Repeat("x", 9999)},
		{"config.json", `{"model_type":"qwen2"}`},
	} {
		r := newRig(t)
		r.intercept(func(w http.ResponseWriter, q *http.Request) bool {
			if q.Method != http.MethodGet || !strings.HasPrefix(q.URL.Path, "/blobs/") && !strings.HasSuffix(q.URL.Path, "/"+c.file) || q.URL.Query().Get("file") != c.file && c.file == "tokenizer.json" {
				return false
			}
			w.Write([]byte(c.wrong))
			return true
		})
		if c.file != "tokenizer.json" {
			r.lfs = nil
		}
		r.fetchErr(model, ErrBroken, "Org/Name")
		if s, err := os.Stat(filepath.Join(r.Cache.o.Dir, "models--Org--Name/snapshots", commit1, c.file)); err == nil {
			t.Errorf("%s is visible: %v", c.file, s)
		}
	}
}

// TestExpired: a signed URL that is refused is asked for anew.
func TestExpired(t *testing.T) {
	r := newRig(t)
	r.onBlob(func(w http.ResponseWriter, _ *http.Request, n int) bool {
		if n == 1 {
			w.WriteHeader(http.StatusForbidden)
		}
		return n == 1
	})
	r.fetch(model)
	r.expect("", "")
}

// TestUnaskedEncoding: sizes and checksums are those of the plain file.
func TestUnaskedEncoding(t *testing.T) {
	r := newRig(t)
	r.onBlob(func(w http.ResponseWriter, _ *http.Request, _ int) bool {
		w.Header().Set("Content-Encoding", "br")
		w.Write([]byte("x"))
		return true
	})
	r.fetchErr(model, ErrUnavailable, "tokenizer.json", "br")
}

// TestDamagedCache: a link whose blob is gone, and a blob that is too short, are
// replaced.
func TestDamagedCache(t *testing.T) {
	r := newRig(t)
	blob := filepath.Join(r.Cache.o.Dir, "models--Org--Name/blobs", shaSum(r.content(commit1, "tokenizer.json")))
	r.fetch(model)
	if err := os.Remove(blob); err != nil {
		t.Fatal(err)
	}
	r.fetch(model)
	r.whole()
	if err := os.RemoveAll(filepath.Join(r.Cache.o.Dir, "models--Org--Name/snapshots")); err != nil {
		t.Fatal(err)
	}
	write(t, "short", blob)
	r.fetch(model)
	r.whole()
}
