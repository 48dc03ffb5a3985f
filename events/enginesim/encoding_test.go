package enginesim

import (
	"bytes"
	"encoding/hex"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The values that the fixtures were made of.
const (
	fixtureTime = 1789095808.5

	h0 = 12687895063098490012
	h1 = 1814341696565857452
	h2 = 2713165534665270607
	s0 = 6738917275443968386
	s1 = 5080553031686747138
)

func upTo(from, to int) []uint32 {
	var tokens []uint32
	for i := from; i < to; i++ {
		tokens = append(tokens, uint32(i))
	}
	return tokens
}

func fromHex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestFixtures encodes known values and compares with payloads that were
// written by hand after msgspec's source.
func TestFixtures(t *testing.T) {
	f := func(name string, e Encoding, b Batch) {
		t.Helper()
		want, err := os.ReadFile(filepath.Join("testdata", name+".msgpack"))
		if err != nil {
			t.Fatal(err)
		}
		if b.Time == 0 {
			b.Time = fixtureTime
		}
		if got := e.AppendBatch([]byte("kept"), b); !bytes.Equal(got, append([]byte("kept"), want...)) {
			t.Errorf("%s in %v:\n got %x\nwant %x", name, e, got[4:], want)
		}
	}
	stored := func(ev Event) Event { ev.Kind = Stored; ev.BlockSize = 16; return ev }
	cleared := Event{Kind: Cleared}

	f("vllm_r1_array_v090", R1, Batch{Events: []Event{
		stored(Event{Hashes: []Hash{IntHash(-1234567890123456789), IntHash(h1)}, Tokens: upTo(0, 32)}),
		{Kind: Removed, Hashes: []Hash{IntHash(-1234567890123456789)}},
		cleared,
	}})
	f("vllm_r2_array_dprank_v091", R2, Batch{Rank: 3, Events: []Event{
		stored(Event{Hashes: []Hash{UintHash(h0)}, Tokens: upTo(0, 16), LoRAID: 7}),
		{Kind: Removed, Hashes: []Hash{UintHash(h0)}},
	}})
	f("vllm_r2_array_dprank_nil", R2, Batch{NoRank: true, Events: []Event{cleared}})
	b0 := BytesHash(fromHex(t, "d830de3d42c00f25a2949b5d12d98642664a44872c1614c5b0147556276afc9c"))
	b1 := BytesHash(fromHex(t, "fedd9e4abebebbe6f6cf96b682f08d316063fe2f22a5c552192dd62904fcccac"))
	b2 := BytesHash(fromHex(t, "ee4c34c217da17ac84268f864db16efed5fcefe10fcc4a9625a719adc68e654f"))
	f("vllm_r3_bytes_hashes", R3, Batch{Events: []Event{
		stored(Event{Hashes: []Hash{b0, b1}, Tokens: upTo(0, 32)}),
		stored(Event{Hashes: []Hash{b2}, Parent: b1, HasParent: true, Tokens: upTo(32, 48)}),
		{Kind: Removed, Hashes: []Hash{b2}},
	}})
	f("vllm_r4_array_medium", R4, Batch{Events: []Event{
		stored(Event{Hashes: []Hash{UintHash(h0), UintHash(h1)}, Tokens: upTo(0, 32), Medium: MediumGPU}),
		stored(Event{Hashes: []Hash{UintHash(h2)}, Parent: UintHash(h1), HasParent: true, Tokens: upTo(32, 48), Medium: MediumGPU}),
		{Kind: Removed, Hashes: []Hash{UintHash(h2)}, Medium: MediumGPU},
	}})
	f("vllm_r4_offload_cpu_empty_tokens", R4, Batch{Events: []Event{
		{Kind: Stored, Hashes: []Hash{UintHash(h0)}, Medium: MediumCPU},
		{Kind: Removed, Hashes: []Hash{UintHash(h0)}, Medium: MediumCPU},
	}})
	f("vllm_r5_array_lora_name", R5, Batch{Events: []Event{
		stored(Event{Hashes: []Hash{UintHash(h0)}, Tokens: upTo(0, 16), LoRAID: 1, Medium: MediumGPU, LoRAName: "my-lora"}),
		{Kind: Removed, Hashes: []Hash{UintHash(h0)}, Medium: MediumGPU},
	}})
	f("vllm_r6_array_extra_keys", R6, Batch{Events: []Event{
		stored(Event{Hashes: []Hash{UintHash(h0), UintHash(h1)}, Tokens: upTo(0, 32), Medium: MediumGPU, Extra: [][]ExtraKey{
			{{Text: "tenant-a"}, {Text: "img-1", Offset: 4, HasOffset: true}},
			{{Text: "img-1", Offset: -12, HasOffset: true}},
		}}),
	}})
	f("vllm_r6_array_extra_keys_nil", R6, Batch{Events: []Event{
		stored(Event{Hashes: []Hash{UintHash(h0)}, Tokens: upTo(0, 16), Medium: MediumGPU}),
	}})
	f("vllm_r6_array_extra_keys_prompt_embeds", R6, Batch{Events: []Event{
		stored(Event{Hashes: []Hash{UintHash(h0)}, Tokens: upTo(0, 16), Medium: MediumGPU, LoRAID: 1, LoRAName: "my-lora",
			Extra: [][]ExtraKey{{{Text: "my-lora"}, {Digest: fromHex(t, "3f79bb7b435b05321651daefd374cdc681dc06faa65e374e38337b88ca046dea")}}}}),
	}})
	one := Event{Hashes: []Hash{UintHash(h0)}, Tokens: upTo(0, 16), Medium: MediumGPU, Extra: [][]ExtraKey{nil}, SpecKind: "full_attention"}
	window := one
	window.Group, window.SpecKind, window.Window = 1, "sliding_window", 1024
	f("vllm_r8_array_spec_kind", R8, Batch{Events: []Event{
		stored(one), stored(window), {Kind: Removed, Hashes: []Hash{UintHash(h0)}, Medium: MediumGPU, Group: 1},
	}})
	f("vllm_r9_map_full", R9, Batch{Rank: 2, Events: []Event{
		stored(Event{Hashes: []Hash{UintHash(h0), UintHash(h1)}, Tokens: upTo(0, 32), Medium: MediumGPU, LoRAID: 1, LoRAName: "my-lora",
			SpecKind: "full_attention", Extra: [][]ExtraKey{{{Text: "my-lora"}, {Text: "tenant-a"}}, {{Text: "my-lora"}}}}),
		{Kind: Removed, Hashes: []Hash{UintHash(h1)}, Medium: MediumGPU},
		cleared,
	}})
	f("vllm_r9_map_minimal", R9, Batch{NoRank: true, Events: []Event{
		stored(Event{Hashes: []Hash{UintHash(h0)}, Tokens: upTo(0, 16), Group: NoGroup}),
		{Kind: Removed, Hashes: []Hash{UintHash(h0)}, Group: NoGroup},
	}})
	f("vllm_r9_map_kthena1535_v0260", R9, Batch{Time: 1789095808.8378847, Events: []Event{
		stored(Event{Hashes: []Hash{UintHash(15760518052499183552)}, Medium: MediumGPU, Extra: [][]ExtraKey{nil}, SpecKind: "full_attention",
			Tokens: []uint32{151644, 872, 198, 9064, 374, 279, 6722, 315, 5616, 30, 151645, 198, 151644, 77091, 198, 151667}}),
	}})
	f("vllm_r10_locality_ownership", R9, Batch{Events: []Event{
		stored(Event{Hashes: []Hash{UintHash(h0)}, Tokens: upTo(0, 16), Medium: MediumCPU, SpecKind: "full_attention", Locality: "LOCAL", Ownership: "fs-0"}),
		{Kind: Removed, Hashes: []Hash{UintHash(h0)}, Medium: "STORAGE", Locality: "REMOTE", Ownership: "fs-0"},
	}})
	f("vllm_empty_events", R2, Batch{})
	f("token_ids_array16", R9, Batch{Events: []Event{
		{Kind: Stored, Hashes: []Hash{UintHash(h0)}, Tokens: upTo(100, 1124), BlockSize: 1024, Medium: MediumGPU, Group: NoGroup},
	}})
	widths := Event{Kind: Removed, Medium: MediumGPU}
	for _, v := range []uint64{0, 1, 127, 128, 255, 256, 65535, 65536, math.MaxUint32, 1 << 32, math.MaxInt64, 1 << 63, math.MaxUint64} {
		widths.Hashes = append(widths.Hashes, UintHash(v))
	}
	for _, v := range []int64{-1, -32, -33, -128, -129, -32768, -32769, math.MinInt32, math.MinInt32 - 1, math.MinInt64} {
		widths.Hashes = append(widths.Hashes, IntHash(v))
	}
	f("int_width_boundaries", R4, Batch{Events: []Event{widths}})

	f("sglang_s1_array", S1, Batch{Events: []Event{
		stored(Event{Hashes: []Hash{IntHash(s0)}, Tokens: upTo(0, 16)}), {Kind: Removed, Hashes: []Hash{IntHash(s0)}}, cleared,
	}})
	f("sglang_s3_array_medium", S3, Batch{Events: []Event{
		stored(Event{Hashes: []Hash{IntHash(s0)}, Tokens: upTo(0, 16), Medium: MediumGPU}),
		stored(Event{Hashes: []Hash{IntHash(s1)}, Parent: IntHash(s0), HasParent: true, Tokens: upTo(16, 32), Medium: MediumCPUPinned}),
		{Kind: Removed, Hashes: []Hash{IntHash(s0), IntHash(s1)}, Medium: MediumGPU},
	}})
	salted := stored(Event{Hashes: []Hash{IntHash(s0)}, Tokens: upTo(0, 16), Medium: MediumGPU, Salt: "tenant-a"})
	f("sglang_s4_array_metadata_map", S4, Batch{NoRank: true, Events: []Event{salted}})
	salted.SessionID = "s1"
	f("sglang_s5_map", S5, Batch{Rank: 1, Events: []Event{
		salted, {Kind: Removed, Hashes: []Hash{IntHash(s0)}, Medium: MediumGPU}, cleared,
	}})
	var pairs []uint32
	for i := range uint32(16) {
		pairs = append(pairs, i, i+1)
	}
	f("sglang_eagle_bigram", S3, Batch{Events: []Event{
		stored(Event{Hashes: []Hash{IntHash(440277523378430797)}, Tokens: pairs, Bigram: true, Medium: MediumGPU}),
	}})
}

// TestEncodeRecorded decodes every payload that real engines published and
// encodes it again, in the revision of its engine: every byte is the same.
func TestEncodeRecorded(t *testing.T) {
	revisions := map[string]Encoding{
		"hand_v0.9.0": R1, "hand_v0.9.2": R2, "hand_v0.11.2": R4, "hand_v0.14.1": R5, "hand_v0.16.0": R5,
		"hand_v0.20.2": R7, "hand_v0.22.1": R8, "old_v0.23.0": R8,
		"sglang_v0.4.9": S2, "sglang_v0.5.2": S2, "sglang_v0.5.8": S2, "sglang_v0.5.12": S3, "sglang_v0.5.16": S3,
		"sglang_v0.5.18": S4, "sglang_v0.5.20": S5, "sglang_v0.5.23": S5,
	}
	for _, name := range recordingNames(t) {
		e := R9 // everything from v0.24.0 on
		for prefix, r := range revisions {
			if name == prefix || strings.HasPrefix(name, prefix+"_") {
				e = r
			}
		}
		for _, s := range loadRecording(t, name).Steps {
			p, ok := s.(Publish)
			if !ok {
				continue
			}
			if got := e.AppendBatch(nil, decodeBatch(t, p.Payload)); !bytes.Equal(got, p.Payload) {
				t.Errorf("%s: batch %d of %s in %v:\n got %x\nwant %x", name, p.Seq, p.Pod, e, got, p.Payload)
				break
			}
		}
	}
}

func TestEngineHash(t *testing.T) {
	f := func(h Hash, want uint64) {
		t.Helper()
		if got := h.Engine(); uint64(got) != want {
			t.Errorf("%v: got %d, want %d", h, got, want)
		}
	}
	f(UintHash(h0), h0)
	f(IntHash(-1), math.MaxUint64)
	f(BytesHash(fromHex(t, "d830de3d42c00f25a2949b5d12d98642664a44872c1614c5b0147556276afc9c")), h0)
	f(BytesHash([]byte{1, 2}), 0x102)
	f(BytesHash(nil), 0)
}
