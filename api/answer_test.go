package api

import (
	"encoding/json/jsontext"
	"math"
	"strconv"
	"testing"

	"github.com/kvindex/kvindex/indexer"
)

// TestRatio: ratios are what floating-point numbers give, rounded to four
// digits, but for those that lie exactly between two.
func TestRatio(t *testing.T) {
	for of := range 700 {
		for n := range of + 1 {
			want := "0"
			if of > 0 {
				want = strconv.FormatFloat(math.Round(float64(n)/float64(of)*1e4)/1e4, 'f', -1, 64)
			}
			if got := string(appendRatio(nil, n, of)); got != want && 2*n*10_000%of != 0 {
				t.Fatalf("%d/%d is %s, want %s", n, of, got, want)
			}
		}
	}
	if got := string(appendRatio(nil, 1, 20_000)); got != "0.0001" { // a half is rounded up
		t.Error(got)
	}
}

// TestAppendString: strings are quoted as jsontext does.
func TestAppendString(t *testing.T) {
	for _, s := range []string{"", "pod-1.default", `a"b`, `a\b`, "a\nb", "é", "\xff", "\x7f", "<>&"} {
		want, _ := jsontext.AppendQuote(nil, s)
		if got := appendString(nil, s); string(got) != string(want) {
			t.Errorf("%q is %s, want %s", s, got, want)
		}
	}
}

// TestRosterFollowsTheFleet: what is kept from one query to the next is no
// longer used when the fleet, the model, the tenant or a health has changed.
func TestRosterFollowsTheFleet(t *testing.T) {
	r := newRig(t)
	w := r.srv.getWork()
	f := func(model, tenant string, want ...string) {
		t.Helper()
		w.q.reset()
		w.q.model, w.q.tenant, w.q.source, w.q.tokens = model, tenant, sourceTokens, prompt(64, 1)
		if err := w.m.run(&w.q); err != nil {
			t.Fatal(err)
		}
		if len(w.m.rows) != len(want) || len(w.m.slots) != len(want) {
			t.Fatalf("%d rows, want %v", len(w.m.rows), want)
		}
		for i, row := range w.m.rows {
			s := w.m.slots[row.slot]
			if got := row.name + " " + string(s.health.State) + " " + strconv.Itoa(s.blocks[indexer.GPU]); got != want[i] {
				t.Errorf("row %d is %q, want %q", i, got, want[i])
			}
		}
	}
	f(testModel, "")
	r.live("b")
	r.store("b", 0, indexer.GPU, prompt(64, 1))
	f(testModel, "", "b live 4")
	r.live("a")
	f(testModel, "", "a live 0", "b live 4")
	r.fleet.set("b", Health{State: Degraded})
	f(testModel, "", "a live 0", "b degraded 4")
	r.fleet.add(Instance{ID: "c", Model: "other", Tenant: "t"}, Health{State: Live})
	f("other", "t", "c live 0")
	f("other", "")
	f(testModel, "default", "a live 0", "b degraded 4")
	w.q.reset()
	w.q.model, w.q.named, w.q.candidates, w.q.source = testModel, true, []candidate{{name: "b"}}, sourceTokens
	w.q.tokens = prompt(64, 1)
	if err := w.m.run(&w.q); err != nil || len(w.m.rows) != 1 || w.m.slots[0].blocks[indexer.GPU] != 4 {
		t.Errorf("%v, %+v", err, w.m.rows)
	}
	f(testModel, "", "a live 0", "b degraded 4")
}
