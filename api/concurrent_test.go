package api

import (
	"encoding/json/v2"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/kvindex/kvindex/indexer"
)

// TestConcurrentRequests: queries, registrations, scrapes and dumps at once.
// Borrowed storage must not carry anything from one query to another: each
// prompt has its own right answer. Run it with the race detector.
func TestConcurrentRequests(t *testing.T) {
	r := newRig(t)
	const prompts = 8
	bodies := make([]string, prompts)
	for i := range prompts {
		id := fmt.Sprintf("pod-%d", i)
		r.live(id)
		p := prompt(16*(20+i), uint32(i))
		r.store(id, 0, indexer.GPU, p[:16*(i+1)])
		bodies[i] = `{"model":"` + testModel + `","token_ids":` + tokensJSON(p) + `}`
		if i%2 == 1 {
			bodies[i] = `{"model":"` + testModel + `","token_ids_b64":"` + tokensB64(p) + `","candidates":["` + id + `"]}`
		}
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for n := range 60 {
				i := (g + n) % prompts
				w := httptest.NewRecorder()
				r.srv.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/query", strings.NewReader(bodies[i])))
				var v struct {
					Best      string `json:"best"`
					Instances map[string]struct {
						Matched int `json:"matched_tokens"`
					} `json:"instances"`
				}
				if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
					t.Errorf("%v: %s", err, w.Body)
					return
				}
				id := fmt.Sprintf("pod-%d", i)
				if v.Best != id || v.Instances[id].Matched != 16*(i+1) {
					t.Errorf("prompt %d: best %s, %+v", i, v.Best, v.Instances)
				}
			}
		})
	}
	wg.Go(func() {
		for n := range 30 {
			body := fmt.Sprintf(`{"instance_id":"new-%d","model":"m","endpoint":"tcp://10.0.0.1:5557"}`, n%3)
			r.do("POST", "/register", body)
			r.do("POST", "/unregister", body)
			r.do("POST", "/v1/query", `{"model":"m","token_ids":[`)
		}
	})
	wg.Go(func() {
		for range 10 {
			for _, path := range []string{"/metrics", "/v1/dump", "/v1/instances", "/", "/v1/models"} {
				text(t, r.do("GET", path, ""))
			}
		}
	})
	wg.Wait()
	if n := value(t, r, "kvindex_http_requests_in_flight"); n != 0 {
		t.Errorf("%v requests in flight", n)
	}
}
