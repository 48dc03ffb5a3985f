package events

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/kvindex/kvindex/indexer"
)

// manifest is testdata/fixtures/manifest.json: payloads of every revision and
// hostile ones, with what each must give.
type manifest struct {
	Frames   frameVectors `json:"frames"`
	Fixtures []fixture    `json:"fixtures"`
}

type fixture struct {
	File   string `json:"file"`
	Expect struct {
		Outcome    string           `json:"outcome"`
		Reason     string           `json:"reason"`
		TS         any              `json:"ts"`
		Rank       *int             `json:"dp_rank"`
		Events     []map[string]any `json:"events"`
		NEvents    int              `json:"n_events"`
		GoodEvents int              `json:"good_events"`
	} `json:"expect"`
}

func loadManifest(t testing.TB) manifest {
	t.Helper()
	f, err := os.Open("testdata/fixtures/manifest.json")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dec := json.NewDecoder(f)
	dec.UseNumber()
	var m manifest
	if err := dec.Decode(&m); err != nil {
		t.Fatal(err)
	}
	if len(m.Fixtures) == 0 {
		t.Fatal("the manifest lists no fixtures")
	}
	return m
}

func (f fixture) payload(t testing.TB) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata/fixtures", f.File))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestFixtures(t *testing.T) {
	for _, f := range loadManifest(t).Fixtures {
		t.Run(f.File, func(t *testing.T) {
			payload := f.payload(t)
			d := NewDecoder(Limits{})
			b, err := d.Decode(payload)
			switch f.Expect.Outcome {
			case "accept":
				if err != nil {
					t.Fatal(err)
				}
				f.check(t, b)
			case "reject_batch":
				var be *BatchError
				if !errors.As(err, &be) {
					t.Fatalf("Decode = %+v, %v; want a *BatchError for: %s", b, err, f.Expect.Reason)
				}
				t.Logf("%v (manifest: %s)", err, f.Expect.Reason)
			case "accept_skip_bad_event":
				if err != nil {
					t.Fatal(err)
				}
				if len(b.Events) != f.Expect.GoodEvents || len(b.Skipped) == 0 {
					t.Fatalf("%d good events, skipped %v; want %d good ones and a skip for: %s",
						len(b.Events), b.Skipped, f.Expect.GoodEvents, f.Expect.Reason)
				}
				t.Logf("%v (manifest: %s)", b.Skipped, f.Expect.Reason)
			case "accept_or_skip":
				if err != nil {
					t.Fatal(err)
				}
			default:
				t.Fatalf("unknown outcome %q", f.Expect.Outcome)
			}
		})
	}
}

// check compares a batch with the manifest.
func (f fixture) check(t *testing.T, b *Batch) {
	t.Helper()
	if len(b.Skipped) != 0 {
		t.Errorf("skipped %v", b.Skipped)
	}
	switch want := f.Expect.TS.(type) {
	case json.Number:
		if ts, err := want.Float64(); err != nil || ts != b.Timestamp {
			t.Errorf("ts = %v, want %v", b.Timestamp, want)
		}
	case string:
		if want == "NaN" != math.IsNaN(b.Timestamp) || want == "+Inf" != math.IsInf(b.Timestamp, 1) {
			t.Errorf("ts = %v, want %v", b.Timestamp, want)
		}
	}
	if want := f.Expect.Rank; (want != nil) != b.HasRank || want != nil && *want != b.Rank {
		t.Errorf("rank = %d, %v", b.Rank, b.HasRank)
	}
	if want := f.Expect.NEvents; want != 0 {
		if len(b.Events) != want {
			t.Errorf("%d events, want %d", len(b.Events), want)
		}
		return
	}
	want := Batch{Timestamp: b.Timestamp, Rank: b.Rank, HasRank: b.HasRank}
	for i, fields := range f.Expect.Events {
		want.Events = append(want.Events, expectedEvent(t, i, fields))
	}
	if diff := diffBatch(&want, b); diff != "" {
		t.Errorf("events differ (-manifest +decoder):\n%s", diff)
	}
}

// notDecoded are keys of the manifest for fields that kvindex skips.
var notDecoded = map[string]bool{
	"origin": true, "remaining_copy_counts": true, "skipped_token_ids": true, "skipped_extra_keys": true,
	"skipped_parent_block_hash": true,
}

func expectedEvent(t *testing.T, index int, fields map[string]any) Event {
	t.Helper()
	ev := Event{Index: index, Group: -1}
	for key, value := range fields {
		if notDecoded[key] || value == nil {
			continue
		}
		switch key {
		case "type":
			ev.Kind = map[string]Kind{"BlockStored": BlockStored, "BlockRemoved": BlockRemoved,
				"AllBlocksCleared": AllBlocksCleared}[value.(string)]
		case "block_hashes":
			for _, h := range value.([]any) {
				ev.Hashes = append(ev.Hashes, expectedHash(t, h))
			}
		case "parent":
			ev.Parent, ev.HasParent = expectedHash(t, value), true
		case "token_ids":
			for _, tok := range value.([]any) {
				ev.Tokens = append(ev.Tokens, uint32(oracleInt(tok)))
			}
		case "token_ids_bigram":
			ev.Bigram = true
			for _, pair := range value.([]any) {
				for _, tok := range pair.([]any) {
					ev.Tokens = append(ev.Tokens, uint32(oracleInt(tok)))
				}
			}
		case "block_size":
			ev.BlockSize = int(oracleInt(value))
		case "lora_id":
			ev.LoRAID, ev.HasLoRA = int64(oracleInt(value)), true
		case "lora_name":
			ev.LoRAName = value.(string)
		case "medium":
			ev.Medium = value.(string)
		case "extra_keys":
			list := value.([]any)
			ev.HasExtra, ev.ExtraLen = true, len(list)
			ev.Extra = oracleExtra(unhex(list).([]any))
		case "group_idx":
			ev.Group = int(oracleInt(value))
		case "kv_cache_spec_kind":
			ev.SpecKind = value.(string)
		case "kv_cache_spec_sliding_window":
			ev.Window = int(oracleInt(value))
		case "locality":
			ev.Locality = value.(string)
		case "ownership":
			ev.Ownership = value.(string)
		case "cache_salt":
			ev.Salt = value.(string)
		case "session_id":
			ev.SessionID = value.(string)
		default:
			t.Errorf("the manifest has a field %q that this test does not know", key)
		}
	}
	return ev
}

// expectedHash reads {"int"|"bytes_hex", "u64"}.
func expectedHash(t *testing.T, v any) indexer.EngineHash {
	t.Helper()
	u, err := strconv.ParseUint(v.(map[string]any)["u64"].(string), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return indexer.EngineHash(u)
}

// unhex replaces {"bytes_hex": ...} by bytes, at any depth.
func unhex(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = unhex(v[i])
		}
	case map[string]any:
		b, err := hex.DecodeString(fmt.Sprint(v["bytes_hex"]))
		if err != nil {
			panic(err)
		}
		return b
	}
	return v
}

// The library decodes what is benign to the same values.
func TestFixturesAgreeWithOracle(t *testing.T) {
	d := NewDecoder(Limits{})
	for _, f := range loadManifest(t).Fixtures {
		if f.Expect.Outcome == "accept" {
			t.Run(f.File, func(t *testing.T) { sameAsOracle(t, d, f.payload(t)) })
		}
	}
}

// Hostile payloads cost memory in proportion to their own size, whatever
// lengths they claim. A decoder without bounds dies of some of them.
func TestFixturesBoundedMemory(t *testing.T) {
	payloads := map[string][]byte{
		"20 MB of nested arrays": repeat(0x91, 20<<20),
		"bin32 of 4 GiB":         {0x92, 0xc6, 0xff, 0xff, 0xff, 0xff},
		"bin32 of 4 GiB as hash": append(batchHead(1), 0x92, 0xac, 'B', 'l', 'o', 'c', 'k', 'R', 'e', 'm', 'o', 'v',
			'e', 'd', 0x91, 0xc6, 0xff, 0xff, 0xff, 0xff),
		"array32 of hashes": append(batchHead(1), 0x92, 0xac, 'B', 'l', 'o', 'c', 'k', 'R', 'e', 'm', 'o', 'v',
			'e', 'd', 0xdd, 0xff, 0xff, 0xff, 0xff),
		"ext32 of 4 GiB": append(batchHead(1), 0xc9, 0xff, 0xff, 0xff, 0xff, 0x01),
	}
	for _, f := range loadManifest(t).Fixtures {
		payloads[f.File] = f.payload(t)
	}
	for name, payload := range payloads {
		t.Run(name, func(t *testing.T) {
			d := NewDecoder(Limits{})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _ = d.Decode(payload)
			runtime.ReadMemStats(&after)
			// An event of 18 bytes (AllBlocksCleared) takes some 300, and
			// append doubles.
			limit := uint64(128<<10 + 64*min(len(payload), 64<<10))
			if grown := after.TotalAlloc - before.TotalAlloc; grown > limit {
				t.Errorf("decoding %d bytes allocated %d, want at most %d", len(payload), grown, limit)
			}
		})
	}
}

func repeat(b byte, n int) []byte {
	s := make([]byte, n)
	for i := range s {
		s[i] = b
	}
	return s
}
