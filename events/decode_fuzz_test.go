package events

import (
	"bytes"
	"encoding/binary"
	"errors"
	"path/filepath"
	"runtime"
	"testing"
)

// seedPayloads calls add with the fixtures and with some captured batches of
// every engine version.
func seedPayloads(t testing.TB, add func([]byte)) {
	for _, f := range loadManifest(t).Fixtures {
		if payload := f.payload(t); len(payload) <= 4096 {
			add(payload)
		}
	}
	streams, err := filepath.Glob("testdata/captures/*/stream.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range streams {
		n := 0
		for payload := range capturedPayloads(t, path) {
			if len(payload) <= 2048 {
				add(payload)
				n++
			}
			if n == 3 {
				break
			}
		}
	}
	add(batchOf(t, storedMap(2, 2, []any{[]any{"ada", []any{"img", 1}, []byte{1}, 3}, nil}), storedArray(2, 4)))
}

func FuzzDecode(f *testing.F) {
	seedPayloads(f, func(b []byte) { f.Add(b) })
	f.Fuzz(func(t *testing.T, payload []byte) {
		intact := bytes.Clone(payload)
		d := NewDecoder(Limits{})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		b, err := d.Decode(payload)
		runtime.ReadMemStats(&after)
		// One byte that claims to be an extra key takes 32 bytes, an event of
		// 18 bytes 300; arenas and append round up.
		if grown, limit := after.TotalAlloc-before.TotalAlloc, uint64(256<<10+128*len(payload)); grown > limit {
			t.Errorf("decoding %d bytes allocated %d, want at most %d", len(payload), grown, limit)
		}
		if !bytes.Equal(payload, intact) {
			t.Fatal("Decode changed the payload")
		}
		if err != nil {
			var be *BatchError
			if !errors.As(err, &be) || be.Reason == "" || be.Offset < 0 || be.Offset > len(payload) || be.Error() == "" {
				t.Fatalf("error %v", err)
			}
			if b != nil {
				t.Fatal("a batch and an error")
			}
			return
		}
		checkBatch(t, b)
		checkExtents(t, payload, b)

		// The decoder keeps nothing from the batches before.
		first := cloneBatch(b)
		if _, err := d.Decode(payload[:len(payload)/2]); err == nil && len(payload) > 0 {
			t.Error("half of a batch is a batch")
		}
		second, err := d.Decode(payload)
		if err != nil {
			t.Fatal(err)
		}
		if diff := diffBatch(first, second); diff != "" {
			t.Errorf("decoded again (-first +second):\n%s", diff)
		}
	})
}

// checkBatch checks what holds for every batch.
func checkBatch(t *testing.T, b *Batch) {
	t.Helper()
	if b.Rank < 0 || b.Rank > maxRank || !b.HasRank && b.Rank != 0 {
		t.Errorf("rank %d, %v", b.Rank, b.HasRank)
	}
	next := 0 // good and bad events together are all events, in order
	good, bad := b.Events, b.Skipped
	for len(good)+len(bad) > 0 {
		switch {
		case len(good) > 0 && good[0].Index == next:
			checkEvent(t, &good[0])
			good = good[1:]
		case len(bad) > 0 && bad[0].Index == next:
			if bad[0].Reason == "" {
				t.Errorf("event %d skipped without a reason", next)
			}
			bad = bad[1:]
		default:
			t.Fatalf("event %d is neither good nor skipped", next)
		}
		next++
	}
}

func checkEvent(t *testing.T, ev *Event) {
	t.Helper()
	ok := ev.BlockSize >= 0 && ev.BlockSize <= maxRank && ev.Group >= -1 && ev.Group <= maxRank && ev.Window >= 0 &&
		(ev.HasParent || ev.Parent == 0) && (ev.HasLoRA || ev.LoRAID == 0) && (ev.HasExtra || ev.ExtraLen == 0) &&
		(!ev.Bigram || len(ev.Tokens) > 0 && len(ev.Tokens)%2 == 0) &&
		(ev.Extra == nil || len(ev.Extra) == ev.ExtraLen)
	switch ev.Kind {
	case BlockStored:
	case BlockRemoved:
		ok = ok && ev.Tokens == nil && !ev.HasParent && !ev.HasExtra
	case AllBlocksCleared:
		ok = ok && ev.Hashes == nil && ev.Tokens == nil
	default:
		ok = false
	}
	keys := 0
	for _, block := range ev.Extra {
		keys += len(block)
		for _, key := range block {
			ok = ok && key.Kind >= ExtraString && key.Kind <= ExtraOther && (key.Kind == ExtraOffset || key.Offset == 0)
		}
	}
	if ok = ok && (ev.Extra == nil) == (keys == 0); !ok {
		t.Errorf("inconsistent event %+v", ev)
	}
}

// checkExtents decodes every event of an array batch from where skip says it
// begins and checks that decoding ends where skip says it ends.
func checkExtents(t *testing.T, payload []byte, b *Batch) {
	t.Helper()
	d := NewDecoder(Limits{})
	d.cur.buf = payload
	if n, ok := d.cur.arrayLen(); !ok || n < 2 {
		return
	}
	if err := d.cur.skip(depthBatchField); err != nil {
		t.Fatal(err)
	}
	n, ok := d.cur.arrayLen()
	if !ok || n != len(b.Events)+len(b.Skipped) {
		t.Fatalf("%d events, have %d and skipped %d", n, len(b.Events), len(b.Skipped))
	}
	good := 0
	for i := range n {
		start := d.cur.pos
		if err := d.cur.skip(depthEvent); err != nil {
			t.Fatal(err)
		}
		end := d.cur.pos
		d.cur.pos = start
		if reason := d.eventFields(&Event{}); reason == "" {
			good++
			if d.cur.pos != end {
				t.Fatalf("event %d: decoding ends at %d, the event at %d", i, d.cur.pos, end)
			}
		}
		d.cur.pos = end
	}
	if good != len(b.Events) {
		t.Errorf("%d events are good one by one, %d in the batch", good, len(b.Events))
	}
}

// frames for the fuzzer: each begins with its length in one byte
func splitFrames(b []byte) (frames [][]byte) {
	for len(b) > 0 {
		n := min(int(b[0]), len(b)-1)
		frames = append(frames, b[1:1+n])
		b = b[1+n:]
	}
	return frames
}

func joinFrames(frames ...string) (b []byte) {
	for _, f := range frames {
		b = append(append(b, byte(len(f))), f...)
	}
	return b
}

func FuzzDecodeFrames(f *testing.F) {
	seq, end := "\x00\x00\x00\x00\x00\x00\x00\x05", "\xff\xff\xff\xff\xff\xff\xff\xff"
	for _, message := range [][]string{
		{"kv@pod@m", seq, "payload"}, {"", seq, "payload"}, {"", end, "payload"}, {seq, "payload"}, {"payload"}, {},
		{"", "kv", seq, "payload"}, {"", end, ""}, {"", "", end, ""}, {"", ""}, {"", "kv", "5", "payload"},
	} {
		f.Add(joinFrames(message...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		frames := splitFrames(b)
		var fe *FrameError
		topic, seq, payload, err := ParseLive(frames)
		if err == nil {
			rebuilt := [][]byte{topic, binary.BigEndian.AppendUint64(nil, seq), payload}
			if seq == EndSeq || !equalFrames(rebuilt, frames) {
				t.Errorf("ParseLive(%q) = %q, %d, %q", frames, topic, seq, payload)
			}
		} else if !errors.As(err, &fe) || fe.Reason == "" || fe.Error() == "" {
			t.Errorf("ParseLive(%q) = %v", frames, err)
		}
		reply, err := ParseReplay(frames)
		if err == nil {
			if reply.End != (reply.Seq == EndSeq) || reply.End && len(reply.Payload) != 0 {
				t.Errorf("ParseReplay(%q) = %+v", frames, reply)
			}
			if last := frames[len(frames)-1]; !bytes.Equal(reply.Payload, last) {
				t.Errorf("ParseReplay(%q) has the payload %q", frames, reply.Payload)
			}
		} else if !errors.As(err, &fe) || fe.Reason == "" || fe.Error() == "" {
			t.Errorf("ParseReplay(%q) = %v", frames, err)
		}
		// What follows the delimiter of an old reply is what follows the topic
		// of a live message: both read the same.
		if len(frames) == 3 && err == nil && !reply.End && (reply.Seq != seq || !bytes.Equal(reply.Payload, payload)) {
			t.Errorf("ParseLive and ParseReplay disagree on %q", frames)
		}
	})
}
