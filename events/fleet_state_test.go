package events

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/kvindex/kvindex/indexer"
)

// idle is a Source that delivers nothing.
func idle(ctx context.Context, _ *Session) error {
	<-ctx.Done()
	return nil
}

func newTestFleet(t *testing.T) (*Fleet, *indexer.Index) {
	t.Helper()
	x, err := indexer.New(indexer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := NewFleet(FleetOptions{Index: x, Source: idle, SuspectTTL: time.Minute})
	t.Cleanup(func() {
		f.Close()
		x.Close()
	})
	return f, x
}

func podSpec(id string) InstanceSpec {
	return InstanceSpec{ID: id, Model: "m", Source: "static", Streams: []StreamSpec{
		{Rank: 0, Endpoint: "tcp://" + id + ":5557", ReplayEndpoint: "tcp://" + id + ":6557"},
	}}
}

// TestFleetRestore: a stream goes on from a snapshot if its instance comes
// again with the same facts; what nobody asks for is dropped in the end.
func TestFleetRestore(t *testing.T) {
	old, x := newTestFleet(t)
	ids := []string{"pod-0", "pod-1", "pod-2", "pod-3"}
	b := &bench{t: t, ts: 1}
	for _, id := range ids {
		if _, err := old.Add(podSpec(id)); err != nil {
			t.Fatal(err)
		}
		in, _ := old.Find(id)
		b.s = in.sessions[0]
		b.s.Connected()
		b.settle(b.batch(stored(1, 0, 2)))
	}
	if _, err := old.Add(podSpec("silent")); err != nil {
		t.Fatal(err)
	}
	var states []byte
	var body []byte
	before := old.Changes()
	old.Freeze(func(list []InstanceState) {
		var err error
		if states, err = json.Marshal(list); err != nil {
			t.Error(err)
		}
		body = x.AppendSnapshot(nil)
	})
	if old.Changes() != before || before == 0 {
		t.Errorf("%d changes, then %d", before, old.Changes())
	}

	f, y := newTestFleet(t)
	read, err := y.ReadSnapshot(body)
	if err != nil {
		t.Fatal(err)
	}
	read.Use()
	var list []InstanceState
	if err := json.Unmarshal(states, &list); err != nil {
		t.Fatal(err)
	}
	f.Restore(list, read.Holders)
	holding := func() (ids []string) {
		var r indexer.Result
		y.Table(indexer.TableKey{Model: "m", BlockSize: 4}).MatchTokens(promptTokens(1, 2), 0, 0, &r)
		for _, s := range r.Streams {
			ids = append(ids, s.Stream.Instance)
		}
		slices.Sort(ids)
		return ids
	}
	expect := func(want ...string) {
		t.Helper()
		if got := holding(); !slices.Equal(got, want) {
			t.Errorf("%q hold the prompt, want %q", got, want)
		}
	}
	expect(ids...)
	if _, err := f.Add(podSpec("pod-0")); err != nil {
		t.Fatal(err)
	}
	in, _ := f.Find("pod-0")
	if h := in.Health(); h.State != Degraded || h.Reason == "" || in.BlockSize() != 4 {
		t.Errorf("%+v, block size %d", h, in.BlockSize())
	}
	other := podSpec("pod-1") // the id is another engine's now
	other.Streams[0].Endpoint = "tcp://elsewhere:5557"
	if _, err := f.Add(other); err != nil {
		t.Fatal(err)
	}
	expect("pod-0", "pod-2", "pod-3")
	tenant := podSpec("pod-2")
	tenant.Tenant = "acme"
	if _, err := f.Add(tenant); err != nil {
		t.Fatal(err)
	}
	expect("pod-0", "pod-3")
	if got := f.Awaited(); !slices.Equal(got, []string{"pod-3"}) {
		t.Errorf("awaited are %q", got)
	}
	f.tick(time.Now().Add(59 * time.Second))
	expect("pod-0", "pod-3")
	f.tick(time.Now().Add(2 * time.Minute))
	expect() // pod-0 was never proved either
}

// TestAnAddressIsOneInstances: who registers at an address takes it from the
// instance that had registered there; what is configured stays.
func TestAnAddressIsOneInstances(t *testing.T) {
	f, _ := newTestFleet(t)
	spec := func(id, source string, endpoints ...string) InstanceSpec {
		s := InstanceSpec{ID: id, Model: "m", Source: source}
		for rank, e := range endpoints {
			s.Streams = append(s.Streams, StreamSpec{Rank: rank, Endpoint: e})
		}
		return s
	}
	for _, s := range []InstanceSpec{
		spec("fixed", "static", "tcp://a:1"), spec("old", "register", "tcp://a:1", "tcp://b:1"), spec("other", "register", "tcp://c:1"),
		spec("new", "register", "tcp://b:1"),
	} {
		if created, err := f.Add(s); !created || err != nil {
			t.Fatalf("%s: %v, %v", s.ID, created, err)
		}
	}
	var got []string
	for _, in := range f.Instances() {
		for _, st := range in.Spec().Streams {
			got = append(got, in.Spec().ID+" "+st.Endpoint)
		}
	}
	if want := []string{"fixed tcp://a:1", "new tcp://b:1", "old tcp://a:1", "other tcp://c:1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
