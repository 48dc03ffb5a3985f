package api

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/kvindex/kvindex/indexer"
)

// TestSuspectTokens: an answer says how much of a match may be no longer held,
// and whoever looks inside sees which blocks.
func TestSuspectTokens(t *testing.T) {
	r := fleetOfThree(t)
	p := small()
	ask := func() map[string]any {
		t.Helper()
		return r.post("/v1/query", fmt.Sprintf(`{"model":%q,"token_ids":%s}`, testModel, tokensJSON(p)), 200)
	}
	want := func(id string, matched, suspect any) {
		t.Helper()
		in := instance(t, ask(), id)
		if in["matched_tokens"] != matched || in["suspect_tokens"] != suspect {
			t.Errorf("%s: %v matched, %v suspect, want %v and %v", id, in["matched_tokens"], in["suspect_tokens"], matched, suspect)
		}
	}
	want("pod-1.default", 64.0, nil)
	key := indexer.TableKey{Model: testModel, BlockSize: 16}
	pod1 := r.holders[fmt.Sprint(key, "pod-1.default", 0)]
	pod1.Doubt(time.Now())
	want("pod-1.default", 64.0, 64.0)
	r.store("pod-1.default", 0, indexer.GPU, p[:32])
	want("pod-1.default", 64.0, 32.0)
	want("pod-3.default", 0.0, nil)

	// Of ranks, what is certain of any is certain.
	r.holders[fmt.Sprint(key, "pod-2.default", 1)].Doubt(time.Now())
	want("pod-2.default", 80.0, 80.0-32.0)

	dump, err := io.ReadAll(r.do("GET", "/v1/dump?instance=pod-1.default&format=table", "").Body)
	if err != nil || strings.Count(string(dump), "pod-1.default/0/gpu?") != 2 {
		t.Errorf("%s, %v", dump, err)
	}
	lines, err := io.ReadAll(r.do("GET", "/v1/dump?instance=pod-1.default", "").Body)
	if n := strings.Count(string(lines), `"instance":"pod-1.default","dp_rank":0,"tier":"gpu","copies":1,"suspect":true`); err != nil || n != 2 {
		t.Errorf("%s, %v", lines, err)
	}
}
