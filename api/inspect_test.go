package api

import (
	"bufio"
	"bytes"
	"encoding/json/v2"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvindex/kvindex/indexer"
)

// TestInstances: by every name, in JSON and as text, and the commands.
func TestInstances(t *testing.T) {
	r := fleetOfThree(t)
	for _, name := range []string{"pod-1.default", "10.0.0.1", "default%2Fpod-1", "10.0.0.1:8000"} {
		v := r.get("/v1/instances/"+name, 200)
		if v["id"] != "pod-1.default" {
			t.Errorf("%s: %v", name, v["id"])
		}
	}
	v := r.get("/v1/instances?model=other", 200)
	if d := cmp.Diff([]any{}, v["instances"]); d != "" {
		t.Error(d)
	}
	for _, path := range []string{"/v1/instances/default%2Fpod-1/clear", "/v1/instances/pod-2.default/resync"} {
		if v := r.post(path, "", 200); v["instance_id"] == nil {
			t.Errorf("%v", v)
		}
	}
	r.post("/v1/instances/nobody/clear", "", 404)
	if d := cmp.Diff([]string{"clear pod-1.default", "resync pod-2.default"}, r.fleet.commands); d != "" {
		t.Error(d)
	}
}

// TestTables keeps what people see: every GET as aligned text.
func TestTables(t *testing.T) {
	r := fleetOfThree(t)
	r.fleet.set("pod-3.default", Health{State: Degraded, Reason: "gap, 3 batches lost\x1b[31m"})
	seq := r.index.Table(indexer.TableKey{Model: testModel, BlockSize: 16}).Sequence(small(), 0, nil)[1]
	var out bytes.Buffer
	for _, path := range []string{"/v1/instances", "/v1/instances/pod-2.default", "/workers", "/v1/models", "/v1/stats",
		"/v1/blocks/" + strconv.FormatUint(uint64(seq), 10), "/healthz", "/readyz", "/"} {
		resp := r.do("GET", path, "", func(r *http.Request) { r.Header.Set("Accept", "text/plain") })
		body := text(t, resp)
		if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
			t.Errorf("%s: %d %s", path, resp.StatusCode, resp.Header.Get("Content-Type"))
		}
		if strings.ContainsRune(body, '\x1b') {
			t.Errorf("%s: a control character got through", path)
		}
		if got := text(t, r.do("GET", path+"?format=table", "")); got != body && path != "/v1/stats" {
			t.Errorf("%s: ?format=table says otherwise: %s", path, got)
		}
		if strings.HasPrefix(text(t, r.do("GET", path+"?format=json", "", func(r *http.Request) { r.Header.Set("Accept", "text/plain") })), "STATE") {
			t.Errorf("%s: ?format=json is text", path)
		}
		fmt.Fprintf(&out, "$ curl -H 'Accept: text/plain' http://127.0.0.1:8400%s\n%s\n", path, body)
	}
	varying := regexp.MustCompile(`(?m)^(uptime|index bytes)( +)\S+$`)
	golden(t, "tables.golden", varying.ReplaceAll(out.Bytes(), []byte("$1$2...")))
}

// TestBlocks: a block is found by its hash in every model that has it.
func TestBlocks(t *testing.T) {
	r := fleetOfThree(t)
	p := small()
	r.storeIn(indexer.TableKey{Model: "other", BlockSize: 16}, indexer.Scope{}, "x", 3, indexer.Disk, p[:48])
	seqs := r.index.Table(indexer.TableKey{Model: testModel, BlockSize: 16}).Sequence(p, 0, nil)
	v := r.get("/v1/blocks/"+strconv.FormatUint(uint64(seqs[2]), 10), 200)
	blocks := v["blocks"].([]any)
	if len(blocks) != 2 {
		t.Fatalf("%v", v)
	}
	want := map[string]any{
		"model": "other", "block_size": 16.0, "position": 2.0,
		"seq_hash": strconv.FormatUint(uint64(seqs[2]), 10), "parent": strconv.FormatUint(uint64(seqs[1]), 10),
		"holders": []any{map[string]any{"instance": "x", "dp_rank": 3.0, "tier": "disk", "copies": 1.0}},
	}
	if d := cmp.Diff(want, blocks[1]); d != "" {
		t.Error(d)
	}
	v = r.get("/v1/blocks/0x"+strconv.FormatUint(uint64(seqs[0]), 16), 200)
	if got := v["blocks"].([]any)[0].(map[string]any); got["parent"] != nil || got["position"] != 0.0 {
		t.Errorf("%v", got)
	}
}

// TestDump: every block once, in lines, and the filters.
func TestDump(t *testing.T) {
	r := fleetOfThree(t)
	big := prompt(16*3000, 5)
	r.store("pod-3.default", 0, indexer.GPU, big)
	r.storeIn(indexer.TableKey{Model: "other", BlockSize: 32}, indexer.Scope{}, "x", 0, indexer.GPU, big[:64])
	f := func(query string, want int) map[string]blockJSONIn {
		t.Helper()
		resp := r.do("GET", "/v1/dump"+query, "")
		got := map[string]blockJSONIn{}
		sc := bufio.NewScanner(resp.Body)
		for sc.Scan() {
			var b blockJSONIn
			if err := json.Unmarshal(sc.Bytes(), &b, json.RejectUnknownMembers(true)); err != nil {
				t.Fatalf("%v: %s", err, sc.Text())
			}
			got[b.Model+b.SeqHash] = b
		}
		if sc.Err() != nil || len(got) != want {
			t.Errorf("%s: %d blocks, want %d (%v)", query, len(got), want, sc.Err())
		}
		return got
	}
	all := f("", 3000+5+2)
	f("?model=other", 2)
	f("?instance=pod-3.default", 3000)
	f("?instance=10.0.0.1", 4)
	f("?instance=nobody", 0)
	f("?limit=7", 7)
	f("?limit=0", 0)
	f("?instance=10.0.0.1&limit=2&model="+testModel, 2)
	for _, b := range all { // every parent is there, one position before
		if b.Parent == nil {
			if b.Position != 0 {
				t.Fatalf("%+v has no parent", b)
			}
			continue
		}
		if parent, ok := all[b.Model+*b.Parent]; !ok || parent.Position != b.Position-1 {
			t.Fatalf("%+v: parent %+v", b, parent)
		}
	}
	lines := strings.Split(strings.TrimSpace(text(t, r.do("GET", "/v1/dump?format=table", ""))), "\n")
	if len(lines) != 1+len(all) || !strings.HasPrefix(lines[0], "MODEL\tBLOCK\t") {
		t.Errorf("%d lines, the first is %q", len(lines), lines[0])
	}
	if resp := r.do("HEAD", "/v1/dump", ""); text(t, resp) != "" {
		t.Error("HEAD has a body")
	}
}

type blockJSONIn struct {
	Model     string       `json:"model"`
	BlockSize int          `json:"block_size"`
	Bigram    bool         `json:"bigram"`
	SeqHash   string       `json:"seq_hash"`
	Parent    *string      `json:"parent"`
	Position  int          `json:"position"`
	Holders   []holderJSON `json:"holders"`
}

// TestDumpToASlowReader: a client that stops reading stops the dump, and
// nothing else.
func TestDumpToASlowReader(t *testing.T) {
	r := newRig(t)
	r.live("pod-1")
	r.store("pod-1", 0, indexer.GPU, prompt(16*2000, 5))
	w := &failing{header: http.Header{}, after: 1}
	req, _ := http.NewRequest(http.MethodGet, "/v1/dump", nil)
	req.RemoteAddr = "127.0.0.1:1"
	func() {
		defer func() {
			if p := recover(); !isAbort(p) {
				t.Errorf("recovered %v, want the connection to be aborted", p)
			}
		}()
		r.srv.Handler().ServeHTTP(w, req)
	}()
	if w.writes > 2 {
		t.Errorf("%d writes to a dead connection", w.writes)
	}
}

// failing is a ResponseWriter whose connection dies.
type failing struct {
	header        http.Header
	after, writes int
}

func (f *failing) Header() http.Header { return f.header }
func (f *failing) WriteHeader(int)     {}
func (f *failing) Write(b []byte) (int, error) {
	if f.writes++; f.writes > f.after {
		return 0, fmt.Errorf("broken pipe")
	}
	return len(b), nil
}

// TestExplain: holes, tiers and truncation are said.
func TestExplain(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Limits.ExplainBlocks = 6 })
	r.live("a")
	r.live("b")
	r.live("c")
	p := prompt(16*10, 3)
	r.store("a", 0, indexer.GPU, p)
	seqs := r.index.Table(indexer.TableKey{Model: testModel, BlockSize: 16}).Sequence(p, 0, nil)
	for _, h := range r.holders {
		h.Remove(indexer.GPU, []indexer.EngineHash{indexer.EngineHash(seqs[3])})
	}
	r.store("b", 0, indexer.GPU, p[:16])
	r.store("b", 0, indexer.CPU, p[:32])
	f := func(more string, truncated bool, want ...string) {
		t.Helper()
		v := r.post("/v1/query", `{"model":"`+testModel+`","explain":true,"token_ids":`+tokensJSON(p)+more+`}`, 200)
		table := v["explain"].(map[string]any)["tables"].([]any)[0].(map[string]any)
		var got []string
		for _, run := range table["runs"].([]any) {
			got = append(got, run.(map[string]any)["ends"].(string))
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", more, d)
		}
		if _, is := table["truncated"]; is != truncated {
			t.Errorf("%s: truncated is %v", more, is)
		}
	}
	f(``, true,
		"block 3 is held by nobody; 2 later blocks are held and count nothing behind this hole",
		"block 2 is held by others, not here",
		"block 0 is held by others, not here")
	f(`,"tiers":["gpu"],"candidates":["b"]`, true, "block 1 is held in a tier that was not asked for")
	f(`,"max_blocks":2,"candidates":["a","b"]`, false, "max_blocks is reached", "max_blocks is reached")
	f(`,"max_blocks":4,"candidates":["b"]`, false, "block 2 is held by others, not here")
}

// TestPage: whole in itself, and names are escaped.
func TestPage(t *testing.T) {
	r := newRig(t)
	r.fleet.add(Instance{ID: "<script>alert(1)</script>", Model: testModel}, Health{State: Live})
	resp := r.do("GET", "/", "")
	body := text(t, resp)
	if strings.Contains(body, "<script") || !strings.Contains(body, "&lt;script&gt;") {
		t.Error("a name is not escaped")
	}
	for _, outside := range []string{"src=", "href=", "@import", "url("} {
		if strings.Contains(body, outside) {
			t.Errorf("the page loads something: %s", outside)
		}
	}
	if !strings.Contains(resp.Header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Error("no content security policy")
	}
}
