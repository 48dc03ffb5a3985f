package api

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestRegister: both dialects, and all that may be wrong.
func TestRegister(t *testing.T) {
	r := newRig(t)
	f := func(body string, status int, field, in string) {
		t.Helper()
		v := r.post("/register", body, status)
		got := v["status"]
		if status >= 400 {
			got = v["reason"]
		}
		if s, _ := got.(string); !strings.Contains(s, in) || (status >= 400 && v["field"] != field) {
			t.Errorf("%s: %v, want %q ...%s...", body, v, field, in)
		}
	}
	// Mooncake's Conductor
	f(`{"endpoint":"tcp://1.1.1.1:5557","replay_endpoint":"tcp://1.1.1.1:5558","type":"vLLM","modelname":"deepseek","lora_name":"sql-adapter",
	   "tenant_id":"default","instance_id":"vllm-prefill-node1","block_size":128,"dp_rank":0,"additionalsalt":"w8a8","hash_profile":{}}`, 201, "", "registered successfully")
	rank := 0
	want := Registration{InstanceID: "vllm-prefill-node1", Model: "deepseek", Endpoint: "tcp://1.1.1.1:5557", ReplayEndpoint: "tcp://1.1.1.1:5558",
		Type: "vLLM", Tenant: "default", LoRA: "sql-adapter", Salt: "w8a8", BlockSize: 128, DPRank: &rank}
	if d := cmp.Diff(want, r.fleet.regs["vllm-prefill-node1"]); d != "" {
		t.Error(d)
	}
	// Dynamo's indexer
	f(`{"instance_id":7,"endpoint":"tcp://[fd00::1]:5557","model_name":"m","routing_group":"blue","tenant_id":"default","block_size":16}`, 201, "", "registered")
	if got := r.fleet.regs["7"]; !got.NumericID || got.Tenant != "blue" {
		t.Errorf("%+v", got)
	}
	f(`{"instance_id":7,"endpoint":"tcp://[fd00::1]:5557","model_name":"m","block_size":16}`, 200, "", "already registered")
	f(`{"instance_id":7,"endpoint":"tcp://[fd00::1]:5557","model_name":"m","block_size":32}`, 409, "block_size", "block_size is registered as 16 and cannot become 32")
	f(`{"url":"http://10.0.0.7:8000"}`, 201, "", "registered")

	f(`{"instance_id":"a"}`, 422, "model", "lacks model, endpoint")
	f(`{}`, 422, "instance_id", "lacks instance_id, model, endpoint: or url alone")
	f(`{"url":"10.0.0.7:8000"}`, 400, "url", "http://")
	f(`{"url":"http://user:secret@10.0.0.7"}`, 400, "url", "credentials")
	f(`{"instance_id":"a","model":"m","endpoint":"10.0.0.7:5557"}`, 400, "endpoint", "tcp://HOST:PORT")
	f(`{"instance_id":"a","model":"m","endpoint":"tcp://10.0.0.7"}`, 400, "endpoint", "no port")
	f(`{"instance_id":"a","model":"m","endpoint":"tcp://10.0.0.7:70000"}`, 400, "endpoint", "1..65535")
	f(`{"instance_id":"a","model":"m","endpoint":"tcp://*:5557"}`, 422, "endpoint", "what the engine binds")
	f(`{"instance_id":"a","model":"m","endpoint":"tcp://0.0.0.0:5557"}`, 422, "endpoint", "to bind")
	f(`{"instance_id":"a","model":"m","endpoint":"tcp://[::]:5557"}`, 422, "endpoint", "to bind")
	f(`{"instance_id":"","model":"m"}`, 400, "instance_id", "empty")
	f(`{"instance_id":1.5}`, 400, "instance_id", "whole number")
	f(`{"instance_id":"a\u0000b"}`, 400, "instance_id", "control character")
	f(`{"instance_id":"`+strings.Repeat("x", 600)+`"}`, 400, "instance_id", "512")
	f(`{"block_size":"16"}`, 400, "block_size", "not an integer")
	f(`{"dp_rank":-1}`, 400, "dp_rank", "0..65535")
	f(`{"aliases":["a",7]}`, 400, "aliases[1]", "not a string")

	for _, c := range []struct {
		err    error
		status int
		in     string
	}{
		{&UnreachableError{URL: "http://10.0.0.7:8000", Tried: []string{"/kv_event_sources: 404"}}, 422, "/kv_event_sources: 404"},
		{&IncompleteError{Missing: []string{"model"}, Detail: "/v1/models lists two"}, 422, "/v1/models lists two"},
		{&InvalidError{Field: "endpoint", Reason: "endpoint is a trap"}, 422, "trap"},
		{errors.New("disk on fire"), 500, "its log says why"},
	} {
		r.fleet.registerErr = c.err
		v := r.post("/register", `{"url":"http://10.0.0.7:8000"}`, c.status)
		if reason, _ := v["reason"].(string); !strings.Contains(reason, c.in) || strings.Contains(reason, "fire") {
			t.Errorf("%v: %v", c.err, v)
		}
	}
	r.fleet.registerErr = &NotYetError{Reason: "snapshot: 3 of 9 MiB", RetryAfter: 1500 * time.Millisecond}
	resp := r.do("POST", "/register", `{"url":"http://10.0.0.7:8000"}`)
	if said := text(t, resp); resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != "2" || !strings.Contains(said, "3 of 9 MiB") {
		t.Errorf("%d, Retry-After %q: %s", resp.StatusCode, resp.Header.Get("Retry-After"), said)
	}
	if v := r.post("/register?strict=1", `{"instance":"a"}`, 400); !strings.Contains(v["reason"].(string), "instance_id meant?") {
		t.Errorf("%v", v)
	}
}

// TestWorkers: the list in the shape that the convention's clients read.
func TestWorkers(t *testing.T) {
	r := newRig(t)
	r.post("/register", `{"instance_id":7,"endpoint":"tcp://1.1.1.1:5557","model_name":"m","routing_group":"blue"}`, 201)
	r.post("/register", `{"instance_id":"pod","endpoint":"tcp://1.1.1.2:5557","model":"n"}`, 201)
	f := func(query, want string) {
		t.Helper()
		if got := text(t, r.do("GET", "/workers"+query, "")); strings.TrimSpace(got) != want {
			t.Errorf("%s: %s", query, got)
		}
	}
	seven := `{"instance_id":7,"model_name":"m","tenant_id":"blue","status":"connecting","endpoints":{"0":"tcp://10.0.0.7:5557"}}`
	pod := `{"instance_id":"pod","model_name":"n","tenant_id":"default","status":"connecting","endpoints":{"0":"tcp://10.0.0.7:5557"}}`
	f("", "["+seven+","+pod+"]")
	f("?model_name=m", "["+seven+"]")
	f("?routing_group=blue", "["+seven+"]")
	f("?tenant_id=default", "["+pod+"]")
	f("?model_name=x", "[]")

	v := r.post("/unregister", `{"instance_id":7,"model_name":"m"}`, 200)
	if d := cmp.Diff([]any{"7"}, v["removed_instances"]); d != "" {
		t.Error(d)
	}
	r.post("/unregister", `{"instance_id":7,"model_name":"m"}`, 404)
	r.post("/unregister", `{"model_name":"m"}`, 400)
	f("", "["+pod+"]")
}
