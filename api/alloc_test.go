package api

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/kvindex/kvindex/indexer"
)

// TestTokenAllocs: the cost of a token is its bytes.
func TestTokenAllocs(t *testing.T) {
	p := prompt(10000, 1)
	inJSON, inB64 := []byte(tokensJSON(p)), []byte(`"`+tokensB64(p)+`"`)
	var s scanner
	dst := make([]uint32, 0, len(p))
	f := func(name string, parse func() error) {
		t.Helper()
		if n := testing.AllocsPerRun(20, func() {
			if err := parse(); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations for %d tokens, want none", name, n, len(p))
		}
	}
	f("json", func() (err error) {
		s.reset(inJSON)
		dst, err = s.tokens("token_ids", dst, 1<<20)
		return err
	})
	f("base64", func() (err error) {
		s.reset(inB64)
		dst, err = s.base64Tokens("token_ids_b64", dst, 1<<20)
		return err
	})
}

// TestQueryAllocs: a query allocates as much for a long prompt and many pods
// as for a short prompt and one.
func TestQueryAllocs(t *testing.T) {
	const most = 16
	f := func(blocks, pods int) {
		t.Helper()
		r := newRig(t)
		p := prompt(blocks*16, 1)
		for pod := range pods {
			id := fmt.Sprintf("pod-%d", pod)
			r.live(id)
			r.store(id, 0, indexer.GPU, p[:16*(1+pod)])
		}
		body := []byte(`{"model":"` + testModel + `","token_ids":` + tokensJSON(p) + `}`)
		req := httptest.NewRequest(http.MethodPost, "/v1/query", nil)
		w := &sink{header: http.Header{}}
		var reader bytes.Reader
		n := testing.AllocsPerRun(50, func() {
			reader.Reset(body)
			req.Body = io.NopCloser(&reader)
			r.srv.Handler().ServeHTTP(w, req)
		})
		if w.status != http.StatusOK {
			t.Fatalf("status %d", w.status)
		}
		// Now and then the collector empties the pool in the middle, and the race
		// detector drops borrowed storage on purpose.
		if n > most && !raceDetector {
			t.Errorf("%d blocks, %d pods: %v allocations, want at most %d", blocks, pods, n, most)
		}
	}
	f(10, 1)
	f(1000, 8)
	f(6250, 64)
}
