package natssource

import (
	"errors"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/kvindex/kvindex/events"
)

const boot = "01a22a43-a7e5-7ec4-bf46-56ef7d76b99a"

func TestMessagesComeBack(t *testing.T) {
	for _, b := range []Batch{
		{Boot: boot, Seq: 0, Payload: []byte("x")},
		{Boot: boot, Seq: events.EndSeq - 1},
		{Boot: boot, Began: true},
		{Boot: boot, Began: true, Last: &Mark{Seq: 7, CRC: 1<<32 - 1}},
	} {
		m := b.Msg("s")
		got, err := ParseBatch(m.Header, m.Data)
		if diff := cmp.Diff(b, got); err != nil || diff != "" {
			t.Errorf("%v %s", err, diff)
		}
	}
	for _, r := range []Request{{From: 3}, {Boot: boot, From: 0, To: 9}} {
		if got, err := ParseRequest(r.Msg("s", "r").Header); err != nil || got != r {
			t.Errorf("%+v, %v, want %+v", got, err, r)
		}
	}
	for _, e := range []End{{How: EndDone}, {How: EndMore, Next: 9}, {How: EndGone}} {
		if got, ok, err := ParseEnd(e.Msg("s").Header); err != nil || !ok || got != e {
			t.Errorf("%+v, %v, %v, want %+v", got, ok, err, e)
		}
	}
	for _, s := range []Status{{Boot: boot, Next: 9, State: "live", Up: true}, {Boot: boot, State: "disconnected", Reason: "no way"}} {
		if got, err := ParseStatus(s.Msg("s").Header); err != nil || got != s {
			t.Errorf("%+v, %v, want %+v", got, err, s)
		}
	}
	if got := (Status{Reason: "two\r\nlines"}).Msg("s").Header.Get("Kv-Reason"); got != "two lines" {
		t.Errorf("reason %q", got)
	}
}

func TestBadHeaders(t *testing.T) {
	f := func(want error, payload string, kv ...string) {
		t.Helper()
		h := nats.Header{"Kv-Schema": {"1"}, "Kv-Boot": {boot}, "Kv-Seq": {"1"}}
		for i := 0; i < len(kv); i += 2 {
			if delete(h, kv[i]); kv[i+1] != "" {
				h[kv[i]] = []string{kv[i+1]}
			}
		}
		if b, err := ParseBatch(h, []byte(payload)); !errors.Is(err, want) {
			t.Errorf("%q: %+v, %v, want %v", kv, b, err, want)
		}
	}
	f(nil, "x")
	f(errSchema, "x", "Kv-Schema", "2")
	f(errSchema, "x", "Kv-Schema", "")
	f(errBoot, "x", "Kv-Boot", "")
	f(errBoot, "x", "Kv-Boot", strings.ToUpper(boot))
	f(errBoot, "x", "Kv-Boot", "{"+boot+"}")
	f(errSeq, "x", "Kv-Seq", "-1")
	f(errSeq, "x", "Kv-Seq", "01")
	f(errSeq, "x", "Kv-Seq", "+1")
	f(errSeq, "x", "Kv-Seq", "18446744073709551615") // the end of a replay
	f(errSeq, "x", "Kv-Seq", "18446744073709551616")
	f(errPayload, "x", "Kv-Seq", "")
	f(nil, "", "Kv-Seq", "")
	f(errLast, "", "Kv-Seq", "", "Kv-Last", "1")
	f(errLast, "", "Kv-Seq", "", "Kv-Last", "1-4294967296")
}

// FuzzHeaders: whatever is accepted is what we would have written.
func FuzzHeaders(f *testing.F) {
	f.Add("1", boot, "7", "7-9", "done", "8", "true", []byte("x"))
	f.Add("1", boot, "", "", "", "0", "false", []byte(nil))
	f.Fuzz(func(t *testing.T, schema, bootID, seq, last, end, next, up string, payload []byte) {
		h := nats.Header{}
		for name, v := range map[string]string{
			"Kv-Schema": schema, "Kv-Boot": bootID, "Kv-Seq": seq, "Kv-Last": last, "Kv-From": seq, "Kv-To": next,
			"Kv-End": end, "Kv-Next": next, "Kv-Up": up,
		} {
			if v != "" {
				h[name] = []string{v}
			}
		}
		if b, err := ParseBatch(h, payload); err == nil {
			if id, err := uuid.Parse(b.Boot); err != nil || id.String() != bootID {
				t.Errorf("boot id %q", b.Boot)
			}
			again, err := ParseBatch(b.Msg("s").Header, payload)
			if diff := cmp.Diff(b, again); err != nil || diff != "" {
				t.Errorf("%v %s", err, diff)
			}
		}
		if r, err := ParseRequest(h); err == nil {
			if again, err := ParseRequest(r.Msg("s", "").Header); err != nil || again != r {
				t.Errorf("%+v became %+v, %v", r, again, err)
			}
		}
		if e, ok, err := ParseEnd(h); ok && err == nil {
			if again, _, err := ParseEnd(e.Msg("s").Header); err != nil || again != e {
				t.Errorf("%+v became %+v, %v", e, again, err)
			}
		}
		if s, err := ParseStatus(h); err == nil {
			if again, err := ParseStatus(s.Msg("s").Header); err != nil || again != s {
				t.Errorf("%+v became %+v, %v", s, again, err)
			}
		}
	})
}

func TestNextAfter(t *testing.T) {
	day := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	f := func(name string, p Position, e extent, seq uint64, surprise string) {
		t.Helper()
		if s, why := nextAfter(p, e); s != seq || why != surprise {
			t.Errorf("%s: %d %q, want %d %q", name, s, why, seq, surprise)
		}
	}
	at := Position{Stream: "s", Created: day, Seq: 10}
	f("cold", Position{}, extent{day, 5, 20}, 5, "")
	f("as it was", at, extent{day, 5, 20}, 11, "")
	f("at the end", at, extent{day, 5, 10}, 11, "")
	f("what is ours is gone, what is next is there", at, extent{day, 11, 20}, 11, "")
	f("purged", at, extent{day, 12, 20}, 12, surprisePurged)
	f("purged to nothing, nothing new", at, extent{day, 11, 10}, 11, "")
	f("purged to nothing", at, extent{day, 21, 20}, 21, surprisePurged)
	f("created anew", at, extent{day.Add(1), 1, 20}, 1, surpriseRecreated)
	f("created anew, empty", at, extent{day.Add(1), 0, 0}, 0, surpriseRecreated)
	f("lost its end", at, extent{day, 5, 9}, 5, surpriseShortened)
}
