package api

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvindex/kvindex/indexer"
)

// fakeFlat is a Flat in memory.
type fakeFlat struct {
	pods map[string][indexer.NumTiers]int
	err  error

	asked int
}

func (f *fakeFlat) BlockSize(model string) (int, bool) { return 32, model == testModel }

func (f *fakeFlat) Match(_ context.Context, _ string, tokens []uint32, maxBlocks int) (FlatMatch, error) {
	f.asked++
	if f.err != nil {
		return FlatMatch{}, f.err
	}
	n := len(tokens) / 32
	if maxBlocks > 0 {
		n = min(n, maxBlocks)
	}
	return FlatMatch{Scanned: n, Pods: f.pods}, nil
}

func flatRig(t *testing.T, fallback bool) (*rig, *fakeFlat) {
	f := &fakeFlat{pods: map[string][indexer.NumTiers]int{"pod-1.default": {1, 1, 1}, "pod-9.default": {1, 2, 2}}}
	return fleetOfThree(t, func(o *Options) { o.Flat, o.FlatFallback = f, fallback }), f
}

const flatQuery = `{"model":"` + testModel + `",`

// TestFlatIsWholeAndMarked: an answer is flat as a whole, or not at all.
func TestFlatIsWholeAndMarked(t *testing.T) {
	r, _ := flatRig(t, false)
	tokens := `"token_ids":` + tokensJSON(small())
	f := func(fields, state, mode string, matched map[string]float64) {
		t.Helper()
		a := r.post("/v1/query", flatQuery+tokens+fields+`}`, 200)
		got := map[string]float64{}
		for name, in := range a["instances"].(map[string]any) {
			got[name] = in.(map[string]any)["matched_tokens"].(float64)
			if m := in.(map[string]any); mode == "flat" && (m["state"] != "degraded" || !strings.HasPrefix(m["reason"].(string), "approximate")) {
				t.Errorf("%s: %s is not marked: %v", fields, name, m)
			}
		}
		if d := cmp.Diff(matched, got); d != "" {
			t.Errorf("%s: %s", fields, d)
		}
		have, _ := a["match_mode"].(string)
		if a["state"] != state || have != mode || mode == "flat" && !strings.HasPrefix(a["reason"].(string), "approximate") {
			t.Errorf("%s: state %v, match_mode %q, reason %v", fields, a["state"], have, a["reason"])
		}
	}
	exact := map[string]float64{"pod-1.default": 64, "pod-2.default": 80, "pod-3.default": 0}
	f("", "exact", "", exact)
	f(`,"match_mode":"exact"`, "exact", "", exact)
	f(`,"match_mode":"flat"`, "degraded", "flat", map[string]float64{"pod-1.default": 32, "pod-9.default": 64})
	f(`,"match_mode":"flat","tiers":["gpu"]`, "degraded", "flat", map[string]float64{"pod-1.default": 32, "pod-9.default": 32})
	f(`,"match_mode":"flat","candidates":["default/pod-9","10.0.0.1","pod-2.default",7]`, "degraded", "flat",
		map[string]float64{"default/pod-9": 64, "10.0.0.1": 32, "pod-2.default": 0, "7": 0})
	f("", "exact", "", exact) // nothing is left of it
	a := r.post("/v1/query", flatQuery+tokens+`,"match_mode":"flat","max_blocks":1}`, 200)
	if a["best"] != "pod-9.default" || a["block_size"] != 32.0 || a["total_blocks"] != 2.0 || a["scanned_blocks"] != 1.0 {
		t.Errorf("%v", a)
	}
	for body, reason := range map[string]string{
		flatQuery + `"seq_hashes":[1],"match_mode":"flat"}`:         "other hashes",
		flatQuery + tokens + `,"match_mode":"flat","explain":true}`: "explains",
	} {
		if e := r.post("/v1/query", body, 422); e["field"] != "match_mode" || !strings.Contains(e["reason"].(string), reason) {
			t.Errorf("%v", e)
		}
	}
	if e := r.post("/v1/query", flatQuery+tokens+`,"match_mode":"flot"}`, 400); e["field"] != "match_mode" {
		t.Errorf("%v", e)
	}
}

// TestFlatUnknown: where there is no flat match, nothing is said instead.
func TestFlatUnknown(t *testing.T) {
	tokens := `"token_ids":` + tokensJSON(small()) + `,"match_mode":"flat","candidates":["pod-1.default"]`
	f := func(r *rig, body, reason string) {
		t.Helper()
		a := r.post("/v1/query", body, 200)
		in := instance(t, a, "pod-1.default")
		if a["state"] != "unknown" || a["best"] != nil || in["matched_tokens"] != 0.0 || !strings.Contains(a["reason"].(string), reason) {
			t.Errorf("%s: %v", body, a)
		}
	}
	f(fleetOfThree(t), flatQuery+tokens+`}`, "not configured")
	r, flat := flatRig(t, true)
	r.index.NoteLoRA(testModel, "ada")
	f(r, flatQuery+tokens+`,"cache_salt":"s"}`, "no cache salt")
	f(r, flatQuery+tokens+`,"tenant_id":"t"}`, "no cache salt")
	f(r, flatQuery+tokens+`,"lora_name":"ada"}`, "no cache salt")
	f(r, `{"model":"ada",`+tokens+`}`, "no cache salt")
	f(r, `{"model":"other",`+tokens+`}`, "not in kthena.models")
	f(r, flatQuery+tokens+`,"block_size":16}`, "another size")
	if flat.asked != 0 {
		t.Errorf("asked %d times", flat.asked)
	}
	flat.err = errors.New("it is down")
	f(r, flatQuery+tokens+`}`, "it is down")
}

// TestFlatFallback: only as long as no stream of the model is live.
func TestFlatFallback(t *testing.T) {
	r, flat := flatRig(t, true)
	query := func(more string) map[string]any {
		t.Helper()
		return r.post("/v1/query", flatQuery+`"token_ids":`+tokensJSON(small())+more+`}`, 200)
	}
	if a := query(""); a["match_mode"] != nil || a["state"] != "exact" || flat.asked != 0 {
		t.Errorf("live: %v", a)
	}
	for _, id := range []string{"pod-1.default", "pod-2.default", "pod-3.default"} {
		r.fleet.set(id, Health{State: Connecting})
	}
	a := query("")
	if names := slices.Sorted(maps.Keys(a["instances"].(map[string]any))); a["match_mode"] != "flat" || a["state"] != "degraded" ||
		!slices.Equal(names, []string{"pod-1.default", "pod-9.default"}) {
		t.Errorf("none is live: %v", a)
	}
	for _, more := range []string{`,"match_mode":"exact"`, `,"explain":true`, `,"cache_salt":"s"`} {
		if a := query(more); a["match_mode"] != nil || a["state"] != "cold" {
			t.Errorf("%s: %v", more, a)
		}
	}
	flat.err = errors.New("it is down")
	if a := query(""); a["state"] != "cold" || !strings.HasSuffix(a["reason"].(string), "no flat match either: it is down") {
		t.Errorf("down: %v", a)
	}
	flat.err = nil
	r.fleet.set("pod-3.default", Health{State: Live})
	if a := query(""); a["match_mode"] != nil || a["state"] != "degraded" || instance(t, a, "pod-2.default")["matched_tokens"] != 80.0 {
		t.Errorf("one is live: %v", a)
	}
}
