package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvindex/kvindex/events"
	"github.com/kvindex/kvindex/events/natssource"
)

// TestSnapshotHead: what is written is read again, and so is what the version
// before wrote.
func TestSnapshotHead(t *testing.T) {
	instances := []events.InstanceState{{Spec: events.InstanceSpec{ID: "pod-0", Model: "m"}, Streams: []events.StreamState{{Endpoint: "tcp://a:1", Seq: 7}}}}
	mark := &natsMark{natssource.Position{Stream: "KV_EVENTS", Created: time.Unix(1, 234567891).UTC(), Seq: 42}, []string{"m"}}
	f := func(v any, want snapshotHead) {
		t.Helper()
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		got := snapshotHead{NATS: &natsMark{}} // of another snapshot, which could not be used
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", b, diff)
		}
	}
	f(snapshotHead{instances, mark}, snapshotHead{instances, mark})
	f(snapshotHead{instances, nil}, snapshotHead{instances, nil})
	f(instances, snapshotHead{instances, nil}) // version 1
	if err := new(snapshotHead).UnmarshalJSON([]byte(`"x"`)); err == nil {
		t.Error("a text is no head")
	}
}
