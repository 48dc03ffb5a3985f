package api

import (
	"bytes"
	"context"
	"encoding/json/v2"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/google/go-cmp/cmp"

	"github.com/kvindex/kvindex/indexer"
)

func loadSpec(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(openAPIDocument)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		t.Fatal(err)
	}
	return doc
}

// TestEveryRouteIsDescribed: the document and the router list the same.
func TestEveryRouteIsDescribed(t *testing.T) {
	doc := loadSpec(t)
	r := newRig(t)
	var described, routed []string
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			described = append(described, method+" "+path)
			if op.OperationID == "" || op.Summary == "" || len(op.Tags) != 1 {
				t.Errorf("%s %s lacks an id, a summary or a tag", method, path)
			}
		}
	}
	for _, route := range r.srv.routes() {
		routed = append(routed, route.method+" "+route.path)
		// A test of access: an open route is one without security.
		op := doc.Paths.Find(route.path).GetOperation(route.method)
		if op != nil && (op.Security != nil && len(*op.Security) == 0) != (route.access == accessOpen) {
			t.Errorf("%s: the document and the router disagree on who may use it", route.path)
		}
	}
	slices.Sort(described)
	slices.Sort(routed)
	if d := cmp.Diff(described, routed); d != "" {
		t.Errorf("openapi.json and the routes differ: %s", d)
	}
	body := text(t, r.do("GET", "/openapi.json", ""))
	var served struct {
		Info struct {
			Version string `json:"version"`
		} `json:"info"`
	}
	if err := json.Unmarshal([]byte(body), &served); err != nil || served.Info.Version != "test" {
		t.Errorf("served version %q, %v", served.Info.Version, err)
	}
}

// TestResponsesFitTheDocument sends real requests to every route and holds
// every response, and every request that succeeds, against the document.
func TestResponsesFitTheDocument(t *testing.T) {
	doc := loadSpec(t)
	// Lines are checked one by one; the others are text.
	for _, plain := range []string{"application/x-ndjson", "text/html", "application/octet-stream", "application/vnd.kvindex.snapshot"} {
		openapi3filter.RegisterBodyDecoder(plain, openapi3filter.PlainBodyDecoder)
		defer openapi3filter.UnregisterBodyDecoder(plain)
	}
	seen := map[string]bool{}
	check := func(r *rig, method, path, template, body string, status int, change ...func(*http.Request)) {
		t.Helper()
		title := fmt.Sprintf("%s %s %.200s", method, path, body)
		item := doc.Paths.Find(template)
		op := item.GetOperation(method)
		req, err := http.NewRequest(method, "http://127.0.0.1:8400"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		params := map[string]string{}
		if template == "/v1/instances/{id}" || strings.HasPrefix(template, "/v1/instances/{id}/") {
			params["id"] = "x"
		}
		if template == "/v1/blocks/{hash}" {
			params["hash"] = "1"
		}
		if template == "/debug/pprof/{profile}" {
			params["profile"] = "heap"
		}
		in := &openapi3filter.RequestValidationInput{
			Request: req, PathParams: params,
			Route:   &routers.Route{Spec: doc, Path: template, PathItem: item, Method: method, Operation: op},
			Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true},
		}
		if status < 300 {
			if err := openapi3filter.ValidateRequest(context.Background(), in); err != nil {
				t.Errorf("%s: the request: %v", title, err)
			}
		}
		resp := r.do(method, path, body, change...)
		data, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != status {
			t.Errorf("%s: status %d, want %d: %.300s", title, resp.StatusCode, status, data)
			return
		}
		seen[fmt.Sprintf("%s %s %d", method, template, status)] = true
		out := &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: status, Header: resp.Header, Options: in.Options}
		out.SetBodyBytes(data)
		if err := openapi3filter.ValidateResponse(context.Background(), out); err != nil {
			t.Errorf("%s: %d: %v", title, status, err)
		}
		if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/x-ndjson") {
			schema := doc.Components.Schemas["Block"].Value
			for line := range bytes.Lines(data) {
				var v any
				if err := json.Unmarshal(line, &v); err != nil {
					t.Errorf("%s: %v", title, err)
				} else if err := schema.VisitJSON(v); err != nil {
					t.Errorf("%s: %v", title, err)
				}
			}
		}
	}
	r, _ := flatRig(t, true)
	r.fleet.set("pod-3.default", Health{State: Degraded, Reason: "gap"})
	r.holders[fmt.Sprint(indexer.TableKey{Model: testModel, BlockSize: 16}, "pod-1.default", 0)].Doubt(time.Now())
	r.fleet.add(Instance{ID: "9", NumericID: true, Model: testModel}, Health{State: Live, BlockSize: 32})
	r.storeIn(indexer.TableKey{Model: testModel, BlockSize: 32}, indexer.Scope{}, "9", 0, indexer.Disk, small()[:64])

	model := `"model":"` + testModel + `"`
	tokens := `"token_ids":` + tokensJSON(small())
	queries := []string{
		`{` + model + `,` + tokens + `}`,
		`{` + model + `,` + tokens + `,"candidates":[9,"pod-1.default","nobody"],"tenant_id":"default","cache_salt":null,"lora_name":null}`,
		`{` + model + `,` + tokens + `,"candidates":[9]}`,
		`{` + model + `,` + tokens + `,"explain":true,"max_blocks":2,"tiers":["gpu"],"block_size":16}`,
		`{` + model + `,"token_ids_b64":"` + tokensB64(small()) + `"}`,
		`{` + model + `,"seq_hashes":["1",2,"0xff"]}`,
		`{` + model + `,"local_hashes":[-1]}`,
		`{` + model + `,"messages":[{"role":"user","content":"x"}],"tools":[],"temperature":1}`,
		`{` + model + `,"prompt":"x"}`,
		`{` + model + `,"prompt":[1,2,3]}`,
		`{"model":"cold","token_ids":[]}`,
	}
	for _, q := range []string{
		`{` + model + `,` + tokens + `,"match_mode":"flat"}`,
		`{` + model + `,` + tokens + `,"match_mode":"flat","cache_salt":"x","candidates":["nobody"]}`,
		`{` + model + `,"messages":[],"match_mode":"flat"}`,
	} {
		check(r, "POST", "/v1/query", "/v1/query", q, 200)
	}
	wrong := []struct {
		body   string
		status int
	}{{`{`, 400}, {`{` + model + `}`, 400}, {`{` + model + `,"token_ids":[1.5]}`, 400}, {`{` + model + `,"token_ids":[1],"prompt":"x"}`, 422}}
	for _, path := range []string{"/v1/query", "/v1/explain", "/query", "/query_by_hash"} {
		for _, q := range queries {
			check(r, "POST", path, path, q, 200)
		}
	}
	check(r, "POST", "/lookup", "/lookup", `{"tokens":`+tokensJSON(small())+`}`, 200)
	check(r, "POST", "/v1/query:batch", "/v1/query:batch", `{"queries":[`+strings.Join(queries, ",")+`]}`, 200)
	for _, path := range []string{"/v1/query", "/v1/explain", "/query", "/query_by_hash", "/lookup", "/v1/query:batch"} {
		for _, w := range wrong {
			if path == "/v1/query:batch" {
				w.body = `{"queries":[` + w.body + `]}`
			}
			check(r, "POST", path, path, w.body, w.status)
		}
		check(r, "POST", path, path, `{}`, 415, func(r *http.Request) { r.Header.Set("Content-Encoding", "br") })
		check(r, "POST", path, path, `{}`, 413, func(r *http.Request) { r.ContentLength = 1 << 30 })
		check(r, "POST", path, path, `{}`, 408, func(r *http.Request) { r.Body = io.NopCloser(errReader{}) })
		r.srv.queries.Store(1 << 20)
		check(r, "POST", path, path, queries[0], 429)
		r.srv.queries.Store(0)
	}

	reg := `{"instance_id":"new","model":"m","endpoint":"tcp://10.0.0.9:5557","replay_endpoint":"tcp://10.0.0.9:5558","block_size":16,"dp_rank":0,"aliases":["n"]}`
	check(r, "POST", "/register", "/register", reg, 201)
	check(r, "POST", "/register", "/register", reg, 200)
	check(r, "POST", "/register", "/register", strings.Replace(reg, ":16", ":32", 1), 409)
	check(r, "POST", "/register", "/register", `{}`, 422)
	check(r, "POST", "/register", "/register", `[]`, 400)
	check(r, "POST", "/register", "/register", `{"aliases":["`+strings.Repeat("x", 70000)+`"]}`, 413)
	check(r, "POST", "/register", "/register", reg, 415, func(r *http.Request) { r.Header.Set("Content-Encoding", "br") })
	check(r, "POST", "/register", "/register", reg, 408, func(r *http.Request) { r.Body = io.NopCloser(errReader{}) })
	r.fleet.registerErr = &NotYetError{Reason: "later", RetryAfter: time.Second}
	check(r, "POST", "/register", "/register", reg, 503)
	r.fleet.registerErr = nil
	check(r, "GET", "/workers", "/workers", "", 200)
	check(r, "POST", "/unregister", "/unregister", `{"instance_id":"new"}`, 200)
	check(r, "POST", "/unregister", "/unregister", `{"instance_id":"new"}`, 404)
	check(r, "POST", "/unregister", "/unregister", `{}`, 400)

	gets := []struct{ path, template string }{
		{"/v1/instances", ""}, {"/v1/instances/pod-3.default", "/v1/instances/{id}"}, {"/v1/models", ""}, {"/v1/stats", ""},
		{"/v1/blocks/10823191264391160519", "/v1/blocks/{hash}"}, {"/v1/dump", ""}, {"/healthz", ""}, {"/readyz", ""}, {"/version", ""},
		{"/openapi.json", ""}, {"/metrics", ""}, {"/", ""}, {"/workers", ""},
	}
	for i, g := range gets {
		if g.template == "" {
			gets[i].template = g.path
		}
		check(r, "GET", g.path, gets[i].template, "", 200)
		if g.path != "/openapi.json" {
			check(r, "GET", g.path+"?format=table", gets[i].template, "", 200)
		}
	}
	check(r, "GET", "/debug/pprof/", "/debug/pprof/", "", 200)
	check(r, "GET", "/debug/pprof/goroutine?debug=1", "/debug/pprof/{profile}", "", 200)
	check(r, "GET", "/debug/pprof/heap", "/debug/pprof/{profile}", "", 200)
	check(r, "GET", "/debug/pprof/nothing", "/debug/pprof/{profile}", "", 404)
	check(r, "GET", "/v1/instances/nobody", "/v1/instances/{id}", "", 404)
	check(r, "GET", "/v1/blocks/1", "/v1/blocks/{hash}", "", 404)
	check(r, "GET", "/v1/blocks/x", "/v1/blocks/{hash}", "", 400)
	check(r, "GET", "/v1/dump?limit=x", "/v1/dump", "", 400)
	check(r, "GET", "/v1/dump?model=x", "/v1/dump", "", 404)
	for _, command := range []string{"clear", "resync"} {
		template := "/v1/instances/{id}/" + command
		check(r, "POST", "/v1/instances/pod-1.default/"+command, template, "", 200)
		check(r, "POST", "/v1/instances/nobody/"+command, template, "", 404)
	}
	checkTokenizers(t, check)
	r.srv.Drain()
	check(r, "GET", "/readyz", "/readyz", "", 503)

	everyone := func(status int, change func(*http.Request)) {
		for _, route := range r.srv.routes() {
			if route.access != accessOpen {
				path := strings.NewReplacer("{id}", "pod-1.default", "{hash}", "1", "{profile}", "heap").Replace(route.path)
				check(r, route.method, path, route.path, "", status, change)
			}
		}
	}
	everyone(401, func(req *http.Request) { r.srv.auth.token = tokenFor(t, "secret") })
	r.srv.auth.token = nil
	post := r.srv.routes()
	for _, route := range post {
		if route.method == "POST" {
			path := strings.NewReplacer("{id}", "pod-1.default").Replace(route.path)
			check(r, "POST", path, route.path, "", 403, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") })
		}
	}

	// Every success that the document promises was seen.
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			for status := range op.Responses.Map() {
				if status[0] == '2' && !seen[method+" "+path+" "+status] {
					t.Errorf("%s %s: no response with status %s was checked", method, path, status)
				}
			}
		}
	}
}

// checkTokenizers sends requests to the routes that need a tokenizer.
func checkTokenizers(t *testing.T, check func(r *rig, method, path, template, body string, status int, change ...func(*http.Request))) {
	r := newRig(t, withDemoTokenizer(t))
	post := func(path, body string, status int, change ...func(*http.Request)) {
		check(r, "POST", path, path, body, status, change...)
	}
	model := `"model":"` + testModel + `"`
	post("/tokenize", `{`+model+`,"prompt":"Hello"}`, 200)
	post("/tokenize", `{"messages":[{"role":"user","content":"Hello"}]}`, 200)
	post("/tokenize", `{"model":"x","prompt":"Hello"}`, 503)
	post("/tokenize", `{`, 400)
	post("/tokenize", `{"prompt":"x","messages":[]}`, 422)
	post("/v1/tokenizers/reload", `{`+model+`}`, 200)
	post("/v1/tokenizers/reload", `{"model":"x"}`, 404)
	post("/v1/tokenizers/reload", `{}`, 400)
	for _, path := range []string{"/tokenize", "/v1/tokenizers/reload"} {
		post(path, `{}`, 415, func(r *http.Request) { r.Header.Set("Content-Encoding", "br") })
		post(path, `{}`, 413, func(r *http.Request) { r.ContentLength = 1 << 30 })
		post(path, `{}`, 408, func(r *http.Request) { r.Body = io.NopCloser(errReader{}) })
	}
	r.srv.queries.Store(1 << 20)
	post("/tokenize", `{"prompt":"Hello"}`, 429)
	r.srv.queries.Store(0)
	for _, prompt := range []string{"Hello", "Hello"} {
		post("/v1/query", `{`+model+`,"prompt":"`+prompt+`"}`, 200)
	}
	check(r, "GET", "/v1/models", "/v1/models", "", 200)
	check(r, "GET", "/metrics", "/metrics", "", 200)
	check(r, "GET", "/v1/snapshot", "/v1/snapshot", "", 404)
	r.srv.snapshot = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.kvindex.snapshot")
		_, _ = io.WriteString(w, "bytes")
	})
	check(r, "GET", "/v1/snapshot", "/v1/snapshot", "", 200)
}

// tokenFor is a token file with the given token.
func tokenFor(t *testing.T, token string) *tokenFile {
	t.Helper()
	path := t.TempDir() + "/token"
	if err := writeFile(path, token); err != nil {
		t.Fatal(err)
	}
	f, err := openTokenFile(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
