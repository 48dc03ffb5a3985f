package relay

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"

	"github.com/kvindex/kvindex/events"
	"github.com/kvindex/kvindex/events/natssource"
)

// TestBootIDsSort: each id sorts after the one before, whatever the clock did.
func TestBootIDsSort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var id uuid.UUID
		copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "after"))
		after := rapid.SampledFrom([]string{"", id.String(), uuid.NewV7().String()}).Draw(t, "id")
		for range 5 {
			next, ok := nextBoot(after)
			if !ok {
				if !strings.HasPrefix(after, "ffffffff-ffff") {
					t.Fatalf("none after %s", after)
				}
				return
			}
			if parsed, err := uuid.Parse(next); err != nil || parsed.String() != next || next <= after {
				t.Fatalf("%q after %q", next, after)
			}
			after = next
		}
	})
}

// TestBufferKeepsASuffix: the buffer has the last batches, never with a hole,
// within its bounds, and publishes in order what it can.
func TestBufferKeepsASuffix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := buffer{maxBatches: rapid.IntRange(1, 20).Draw(t, "batches"), maxBytes: rapid.IntRange(1, 200).Draw(t, "bytes")}
		next, sent, dropped := uint64(0), uint64(0), uint64(0) // sent: the first that is not
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				n := b.add(entry{next, make([]byte, rapid.IntRange(0, 40).Draw(t, "size"))})
				next++
				dropped += uint64(n)
				sent += uint64(n)
			},
			"publish": func(t *rapid.T) {
				list := b.waiting(rapid.IntRange(1, 5).Draw(t, "n"), 50)
				for _, e := range list {
					if e.seq != sent {
						t.Fatalf("publishes %d, want %d", e.seq, sent)
					}
					sent++
					b.published(e.seq)
				}
			},
			"": func(t *rapid.T) {
				bytes := 0
				for i, e := range b.entries {
					bytes += len(e.payload)
					if e.seq != next-uint64(len(b.entries)-i) {
						t.Fatalf("a hole before %d", e.seq)
					}
				}
				if bytes != b.bytes || len(b.entries) > b.maxBatches || bytes > b.maxBytes && len(b.entries) > 1 {
					t.Fatalf("%d batches of %d bytes, counted %d", len(b.entries), bytes, b.bytes)
				}
				from := uint64(rapid.IntRange(0, 50).Draw(t, "from"))
				for i, e := range b.from(from, 3, 60) {
					first := next - uint64(len(b.entries))
					if e.seq != max(first, from)+uint64(i) {
						t.Fatalf("from %d: %d at %d", from, e.seq, i)
					}
				}
			},
		})
		if waiting := uint64(b.reset()); sent+waiting != next {
			t.Fatalf("%d sent or dropped (%d), %d waiting, %d in all", sent, dropped, waiting, next)
		}
	})
}

func TestDifferences(t *testing.T) {
	var l StreamLimits
	l.setDefaults()
	have := l.config()
	if d := differences(have, l.config()); len(d) > 0 {
		t.Errorf("differences: %v", d)
	}
	have.MaxBytes, have.Replicas, have.Description = 1<<30, 3, "ours" // not ours to say
	if d := differences(have, l.config()); len(d) > 0 {
		t.Errorf("differences: %v", d)
	}
	have.Retention, have.Storage, have.Duplicates = jetstream.InterestPolicy, jetstream.MemoryStorage, time.Second
	if d := fmt.Sprint(differences(have, l.config())); d != "[retention is Interest, not Limits duplicates window is 1s, not 2m0s storage is Memory, not File]" {
		t.Errorf("differences: %s", d)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	err := Options{Streams: []events.StreamSpec{{Endpoint: "nats://x"}}, BufferBytes: -1, Connect: natssource.ConnectOptions{KeyFile: "k"}}.Validate()
	for _, want := range []string{"instance_id", "model", "URL of NATS", "certificate", "follow the engine", "not a socket", "buffer"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
}
