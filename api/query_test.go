package api

import (
	"bytes"
	"encoding/json/jsontext"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvindex/kvindex/indexer"
)

// small is a prompt that fits into a golden file: 5 blocks and a half.
func small() []uint32 {
	p := make([]uint32, 88)
	for i := range p {
		p[i] = uint32(100 + i)
	}
	return p
}

// fleetOfThree is what most tests ask: pod-1 holds 4 blocks on the gpu, pod-2
// holds 2 on rank 0 and 3 on rank 1 and 5 with the cpu, pod-3 nothing.
func fleetOfThree(t testing.TB, change ...func(*Options)) *rig {
	r := newRig(t, change...)
	r.live("pod-1.default", "10.0.0.1", "10.0.0.1:8000", "default/pod-1")
	r.live("pod-2.default", "10.0.0.2")
	r.live("pod-3.default", "10.0.0.3")
	p := small()
	r.store("pod-1.default", 0, indexer.GPU, p[:64])
	r.store("pod-2.default", 0, indexer.GPU, p[:32])
	r.store("pod-2.default", 1, indexer.GPU, p[:48])
	r.store("pod-2.default", 1, indexer.CPU, p[:80])
	return r
}

// TestGoldenAnswers keeps the shape of whole answers. The file doubles as a
// collection of examples.
func TestGoldenAnswers(t *testing.T) {
	r, _ := flatRig(t, false)
	p := small()
	seqs := r.index.Table(indexer.TableKey{Model: testModel, BlockSize: 16}).Sequence(p, 0, nil)
	var seqList, localList []string
	for i, s := range seqs {
		seqList = append(seqList, strconv.Quote(strconv.FormatUint(uint64(s), 10)))
		localList = append(localList, strconv.FormatInt(int64(r.index.Hasher().Local(p[16*i:16*(i+1)], nil)), 10))
	}
	model := `"model":"` + testModel + `"`
	var out bytes.Buffer
	f := func(title, path, body string, status int) {
		t.Helper()
		resp := r.do("POST", path, body)
		if resp.StatusCode != status {
			t.Errorf("%s: status %d, want %d", title, resp.StatusCode, status)
		}
		answer := jsontext.Value(steady(strings.TrimSpace(text(t, resp))))
		if err := answer.Indent(jsontext.WithIndent("  ")); err != nil {
			t.Fatalf("%s: %v", title, err)
		}
		fmt.Fprintf(&out, "### %s\nPOST %s\n%s\n%d\n%s\n\n", title, path, body, resp.StatusCode, answer)
	}
	f("tokens", "/v1/query", `{`+model+`,"token_ids":`+tokensJSON(p)+`}`, 200)
	f("tokens in base64, for two candidates and a stranger", "/v1/query",
		`{`+model+`,"token_ids_b64":"`+tokensB64(p)+`","candidates":["default/pod-1","10.0.0.3:8000","10.0.0.3"]}`, 200)
	f("hashes of prefixes", "/v1/query", `{`+model+`,"seq_hashes":[`+strings.Join(seqList, ",")+`]}`, 200)
	f("the gpu alone, the first four blocks", "/v1/query", `{`+model+`,"token_ids":`+tokensJSON(p)+`,"tiers":["gpu"],"max_blocks":4}`, 200)
	f("flat, for a followed pod, one that is not, and one without a block", "/v1/query",
		`{`+model+`,"token_ids":`+tokensJSON(p)+`,"match_mode":"flat","candidates":["10.0.0.1","pod-9.default","pod-3.default"]}`, 200)
	f("a chat", "/v1/query", `{`+model+`,"messages":[{"role":"user","content":"hello"}],"temperature":0.7,"candidates":["10.0.0.1"]}`, 200)
	f("an unknown model", "/v1/query", `{"model":"gpt-x","token_ids":[1,2,3],"candidates":["10.0.0.1"]}`, 200)
	f("explained", "/v1/explain", `{`+model+`,"token_ids":`+tokensJSON(p[:48])+`,"candidates":["10.0.0.2","10.0.0.3"]}`, 200)
	f("a batch", "/v1/query:batch", `{"queries":[{`+model+`,"token_ids":[1]},{`+model+`,"prompt":"hello","candidates":[]}]}`, 200)
	f("the public convention", "/query", `{"modelname":"`+testModel+`","block_size":16,"token_ids":`+tokensJSON(p)+`}`, 200)
	f("the public convention, by local hashes", "/query_by_hash",
		`{"model_name":"`+testModel+`","routing_group":"default","block_hashes":[`+strings.Join(localList, ",")+`]}`, 200)
	f("a look-up", "/lookup", `{"tokens":`+tokensJSON(p)+`}`, 200)
	f("a token that is none", "/v1/query", `{`+model+`,"token_ids":[1,2,-3]}`, 400)
	f("no prompt", "/v1/query", `{`+model+`}`, 400)
	f("two prompts", "/v1/query", `{`+model+`,"token_ids":[1],"prompt":"x"}`, 422)
	f("a misspelt field", "/v1/query?strict=1", `{`+model+`,"token_id":[1]}`, 400)
	golden(t, "answers.golden", out.Bytes())
}

// instance returns the entry of one instance in an answer.
func instance(t testing.TB, answer map[string]any, id string) map[string]any {
	t.Helper()
	all, _ := answer["instances"].(map[string]any)
	inst, ok := all[id].(map[string]any)
	if !ok {
		t.Fatalf("no instance %q in %v", id, answer)
	}
	return inst
}

// TestStates: every state of an answer, and what it takes.
func TestStates(t *testing.T) {
	r := fleetOfThree(t)
	f := func(body, state, reason string) map[string]any {
		t.Helper()
		v := r.post("/v1/query", body, 200)
		got, _ := v["reason"].(string)
		if v["state"] != state || !strings.Contains(got, reason) || (reason == "") != (got == "") {
			t.Errorf("%s: state %v, reason %q; want %s, ...%s...", body, v["state"], got, state, reason)
		}
		return v
	}
	model := `{"model":"` + testModel + `"`
	tokens := `,"token_ids":` + tokensJSON(small())
	f(model+tokens+`}`, "exact", "")
	f(model+tokens+`,"candidates":[]}`, "exact", "")
	f(model+tokens+`,"candidates":["nobody"]}`, "degraded", "nobody is unknown (no followed instance")
	f(model+`,"prompt":"hi"}`, "unknown", "no tokenizer")
	f(model+`,"messages":[]}`, "unknown", "no tokenizer")
	f(`{"model":"other"`+tokens+`}`, "cold", testModel)
	f(model+tokens+`,"block_size":32}`, "unknown", "blocks of 32 tokens")
	f(model+tokens+`,"tenant_id":"blue"}`, "exact", "")

	r.fleet.set("pod-3.default", Health{State: Degraded, Reason: "gap, 3 batches lost"})
	f(model+tokens+`}`, "degraded", "pod-3.default is degraded (gap, 3 batches lost)")
	f(model+tokens+`,"candidates":["pod-1.default"]}`, "exact", "")
	r.fleet.set("pod-2.default", Health{State: Disconnected})
	v := f(model+tokens+`}`, "degraded", "pod-2.default is disconnected, and 1 more instances are not live")
	if got := instance(t, v, "pod-3.default"); got["state"] != "degraded" || got["reason"] != "gap, 3 batches lost" || got["last_event_age_ms"] != nil {
		t.Errorf("pod-3: %v", got)
	}

	for _, id := range []string{"pod-1.default", "pod-2.default", "pod-3.default"} {
		r.fleet.set(id, Health{State: Connecting, BlockSize: 16})
	}
	f(model+tokens+`}`, "cold", "3 of its instances connecting")
	f(model+tokens+`,"candidates":["pod-1.default"]}`, "cold", "connecting")
	r.fleet.set("pod-3.default", Health{State: Live})
	f(model+tokens+`,"candidates":["pod-1.default"]}`, "degraded", "pod-1.default is connecting")
}

// TestAnotherModelsInstance: a candidate that serves another model is named,
// and holds nothing.
func TestAnotherModelsInstance(t *testing.T) {
	r := fleetOfThree(t)
	r.fleet.add(Instance{ID: "pod-9", Model: "other"}, Health{State: Live})
	r.fleet.add(Instance{ID: "pod-8", Model: testModel, Tenant: "blue"}, Health{State: Live})
	v := r.post("/v1/query", `{"model":"`+testModel+`","token_ids":`+tokensJSON(small())+`,"candidates":["pod-9","pod-8"]}`, 200)
	if got := instance(t, v, "pod-9"); got["state"] != "unknown" || got["reason"] != "the instance serves other" {
		t.Errorf("pod-9: %v", got)
	}
	// Of another tenant's instances not even the existence is told.
	if got := instance(t, v, "pod-8"); got["reason"] != "no followed instance has this id, address or alias" {
		t.Errorf("pod-8: %v", got)
	}
	v = r.post("/v1/query", `{"model":"`+testModel+`","tenant_id":"blue","token_ids":`+tokensJSON(small())+`}`, 200)
	if got := v["instances"].(map[string]any); len(got) != 1 || instance(t, v, "pod-8")["matched_tokens"] != 0.0 {
		t.Errorf("tenant blue sees %v", got)
	}
}

// TestScopes: salts and adapters never share a hit, and an adapter's name is
// a model's.
func TestScopes(t *testing.T) {
	r := newRig(t)
	r.live("pod-1")
	key := indexer.TableKey{Model: testModel, BlockSize: 16}
	p := small()
	r.storeIn(key, indexer.Scope{}, "pod-1", 0, indexer.GPU, p[:16])
	r.storeIn(key, indexer.Scope{Salt: "s"}, "pod-1", 0, indexer.GPU, p[:32])
	r.storeIn(key, indexer.Scope{LoRA: "sql"}, "pod-1", 0, indexer.GPU, p[:48])
	r.index.NoteLoRA(testModel, "sql")
	r.index.Alias("qwen", testModel)
	f := func(model, more string, want float64) {
		t.Helper()
		v := r.post("/v1/query", `{"model":"`+model+`","token_ids":`+tokensJSON(p)+more+`}`, 200)
		if got := instance(t, v, "pod-1")["matched_tokens"]; got != want {
			t.Errorf("%s%s: %v matched, want %v", model, more, got, want)
		}
		if v["model"] != testModel {
			t.Errorf("%s: model %v", model, v["model"])
		}
	}
	f(testModel, ``, 16)
	f("qwen", ``, 16)
	f(testModel, `,"cache_salt":"s"`, 32)
	f(testModel, `,"additionalsalt":"s"`, 32)
	f(testModel, `,"cache_salt":"t"`, 0)
	f(testModel, `,"lora_name":"sql"`, 48)
	f("sql", ``, 48)
	f("sql", `,"lora_name":"sql"`, 48)
	f("sql", `,"cache_salt":"s"`, 0)
	v := r.post("/v1/query", `{"model":"sql","lora_name":"other","token_ids":[1]}`, 422)
	if v["field"] != "lora_name" {
		t.Errorf("two adapters: %v", v)
	}
}

// TestBlockSizes: a model with several tables; each instance is answered from
// its own, and tells its block size where it differs.
func TestBlockSizes(t *testing.T) {
	r := newRig(t)
	p := prompt(256, 7)
	for id, size := range map[string]int{"a": 16, "b": 32, "c": 64} {
		r.fleet.add(Instance{ID: id, Model: testModel}, Health{State: Live, BlockSize: size})
		r.storeIn(indexer.TableKey{Model: testModel, BlockSize: size}, indexer.Scope{}, id, 0, indexer.GPU, p[:128])
	}
	f := func(more, best string, size, total float64, matched map[string]float64) {
		t.Helper()
		v := r.post("/v1/query", `{"model":"`+testModel+`","token_ids":`+tokensJSON(p)+more+`}`, 200)
		if v["best"] != best || v["block_size"] != size || v["total_blocks"] != total {
			t.Errorf("%s: best %v, block size %v, total %v", more, v["best"], v["block_size"], v["total_blocks"])
		}
		for id, want := range matched {
			if got := instance(t, v, id)["matched_tokens"]; got != want {
				t.Errorf("%s: %s matched %v, want %v", more, id, got, want)
			}
		}
	}
	f(``, "a", 16, 16, map[string]float64{"a": 128, "b": 128, "c": 128})
	f(`,"block_size":32`, "b", 32, 8, map[string]float64{"a": 0, "b": 128, "c": 0})
	v := r.post("/v1/query", `{"model":"`+testModel+`","token_ids":`+tokensJSON(p)+`}`, 200)
	if _, has := instance(t, v, "a")["block_size"]; has {
		t.Error("a says its block size, which is the answer's")
	}
	if got := instance(t, v, "c")["block_size"]; got != 64.0 {
		t.Errorf("block size of c: %v", got)
	}
	if got := instance(t, v, "c")["score"]; got != 50.0 {
		t.Errorf("score of c: %v", got)
	}
}

// TestNothingStored: live instances that hold nothing answer exact zeros, and
// the totals are known as soon as the block size is.
func TestNothingStored(t *testing.T) {
	r := newRig(t)
	r.live("pod-1")
	v := r.post("/v1/query", `{"model":"`+testModel+`","token_ids":`+tokensJSON(small())+`}`, 200)
	delete(v, "timings_us")
	if v["state"] != "exact" || v["block_size"] != 16.0 || v["total_blocks"] != 5.0 || v["best"] != nil {
		t.Errorf("%v", v)
	}
}

func TestReusable(t *testing.T) {
	f := func(matched, size, n, want int) {
		t.Helper()
		if got := reusable(matched, size, n); got != want {
			t.Errorf("reusable(%d, %d, %d) = %d, want %d", matched, size, n, got, want)
		}
	}
	f(64, 16, 88, 64)
	f(80, 16, 80, 64) // the last block has the last token
	f(80, 16, 81, 80)
	f(16, 16, 16, 0)
	f(0, 16, 0, 0)
	f(80, 16, -1, 80) // hashes: the length is not known
	f(0, 0, 10, 0)
}

// TestCandidates: every spelling is echoed as it came, once.
func TestCandidates(t *testing.T) {
	r := fleetOfThree(t)
	r.fleet.add(Instance{ID: "7", NumericID: true, Model: testModel}, Health{State: Live})
	r.store("7", 0, indexer.GPU, small()[:80])
	resp := r.do("POST", "/v1/query", `{"model":"`+testModel+`","token_ids":`+tokensJSON(small())+
		`,"candidates":[7,"10.0.0.1","pod-1.default","10.0.0.1"]}`)
	body := text(t, resp)
	if !strings.Contains(body, `"best":7,`) {
		t.Errorf("a numeric id is not echoed as a number: %s", body)
	}
	for _, name := range []string{`"7":{`, `"10.0.0.1":{`, `"pod-1.default":{`} {
		if strings.Count(body, name) != 1 {
			t.Errorf("%s is there %d times", name, strings.Count(body, name))
		}
	}
	if i, j := strings.Index(body, `"10.0.0.1":{`), strings.Index(body, `"pod-1.default":{`); i > j {
		t.Error("candidates are not in the order of the request")
	}
}

// TestBestOfEquals: the name that sorts first.
func TestBestOfEquals(t *testing.T) {
	r := newRig(t)
	for _, id := range []string{"c", "a", "b"} {
		r.live(id)
		r.store(id, 0, indexer.GPU, small()[:32])
	}
	v := r.post("/v1/query", `{"model":"`+testModel+`","token_ids":`+tokensJSON(small())+`,"candidates":["c","b","a"]}`, 200)
	if v["best"] != "a" {
		t.Errorf("best is %v", v["best"])
	}
}

// TestUnfollowedHolders: the index may hold more streams than the fleet
// follows (a snapshot that was just restored); they answer nothing.
func TestUnfollowedHolders(t *testing.T) {
	r := newRig(t)
	r.live("pod-1")
	r.store("ghost", 0, indexer.GPU, small())
	v := r.post("/v1/query", `{"model":"`+testModel+`","token_ids":`+tokensJSON(small())+`}`, 200)
	if v["best"] != nil || len(v["instances"].(map[string]any)) != 1 {
		t.Errorf("%v", v)
	}
}

// TestAnswerIsWhole: odd names do not break the JSON.
func TestAnswerIsWhole(t *testing.T) {
	r := newRig(t)
	names := []string{`quo"te`, "tab\there", "bad\xffutf8", "</script>", "snow☃"}
	for _, n := range names {
		r.fleet.add(Instance{ID: n, Model: testModel}, Health{State: Degraded, Reason: n, LastEvent: Age{time.Second, true}})
	}
	v := r.post("/v1/query", `{"model":"`+testModel+`","token_ids":[1]}`, 200)
	var got []string
	for id := range v["instances"].(map[string]any) {
		got = append(got, id)
	}
	if len(got) != len(names) {
		t.Errorf("%d instances, want %d: %q", len(got), len(names), got)
	}
	v = r.get("/v1/instances", 200)
	if d := cmp.Diff(len(names), len(v["instances"].([]any))); d != "" {
		t.Error(d)
	}
}

// TestStarting: who knows nothing yet says why.
func TestStarting(t *testing.T) {
	why := "snapshot: 3 of 9 MiB"
	r := newRig(t, func(o *Options) { o.Starting = func() string { return why } })
	ask := func() (state, reason string) {
		v := r.post("/v1/query", `{"model":"m","token_ids":[1,2,3]}`, 200)
		state, _ = v["state"].(string)
		reason, _ = v["reason"].(string)
		return state, reason
	}
	if state, reason := ask(); state != "cold" || reason != "nothing is known yet: "+why {
		t.Errorf("%s: %s", state, reason)
	}
	why = ""
	if state, reason := ask(); state != "cold" || !strings.Contains(reason, "no model") {
		t.Errorf("%s: %s", state, reason)
	}
}
