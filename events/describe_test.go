package events

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDescribePayload(t *testing.T) {
	d := NewDecoder(Limits{})
	f := func(name string, payload []byte, want string) {
		t.Helper()
		got, err := json.Marshal(DescribePayload(d, name, payload))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	f("map", batchOf(t,
		entries{"type", "BlockStored", "block_hashes", []any{uint64(math.MaxUint64), int64(-2)}, "parent_block_hash", 7,
			"token_ids", []any{1, 2, 3, 4}, "block_size", 2, "lora_id", nil, "medium", nil, "lora_name", "ada",
			"extra_keys", []any{[]any{"ada", []any{"img", -3}, []byte{0xab}, 5}, nil}, "group_idx", 0},
		removedMapOf(1), entries{"type", "AllBlocksCleared"}, 42),
		`{"file":"map","ok":true,"ts":1789095808.5,"dp_rank":0,"events":[`+
			`{"type":"BlockStored","block_hashes":["18446744073709551615","18446744073709551614"],"parent_block_hash":"7",`+
			`"token_ids":[1,2,3,4],"block_size":2,"lora_name":"ada","group_idx":0,`+
			`"extra_keys":[["ada",["img",-3],{"bytes":"ab"},{"msgpack":"05"}],null]},`+
			`{"type":"BlockRemoved","block_hashes":["1"],"medium":"GPU","group_idx":0},`+
			`{"type":"AllBlocksCleared"}],"skipped":[{"index":3,"reason":"bad_shape"}],"error":""}`)
	f("pairs", encode(t, []any{math.NaN(), []any{[]any{"BlockStored", []any{1}, nil, []any{[]any{1, 2}, []any{2, 3}}, 2, 9,
		"G\xffPU"}}}),
		`{"file":"pairs","ok":true,"ts":"NaN","dp_rank":null,"events":[{"type":"BlockStored","block_hashes":["1"],`+
			`"token_ids":[[1,2],[2,3]],"block_size":2,"lora_id":9,"medium":"G`+"\uFFFD"+`PU"}],"skipped":[],"error":""}`)
	f("offload", encode(t, []any{math.Inf(-1), []any{[]any{"BlockStored", []any{1}, nil, []any{}, 0}}}),
		`{"file":"offload","ok":true,"ts":"-Inf","dp_rank":null,"events":[{"type":"BlockStored","block_hashes":["1"],`+
			`"token_ids":[],"block_size":0}],"skipped":[],"error":""}`)
	f("rejected", []byte{0xc0},
		`{"file":"rejected","ok":false,"ts":null,"dp_rank":null,"events":[],"skipped":[],`+
			`"error":"cannot decode batch: not_a_batch at byte 0 of 1: want an array or a map, have nil"}`)
}

// A description survives the next Decode.
func TestDescribeCopies(t *testing.T) {
	d := NewDecoder(Limits{})
	first := batchOf(t, storedMap(2, 4, nil))
	desc := DescribePayload(d, "first", first)
	want, _ := json.Marshal(desc)
	DescribePayload(d, "second", batchOf(t, storedArray(3, 4)))
	if got, _ := json.Marshal(desc); string(got) != string(want) {
		t.Errorf("description changed from %s to %s", want, got)
	}
}

// Every fixture has a description that JSON can carry.
func TestDescribeFixtures(t *testing.T) {
	d := NewDecoder(Limits{})
	for _, fx := range loadManifest(t).Fixtures {
		desc := DescribePayload(d, fx.File, fx.payload(t))
		if _, err := json.Marshal(desc); err != nil {
			t.Errorf("%s: %v", fx.File, err)
		}
		if rejected := fx.Expect.Outcome == "reject_batch"; desc.OK == rejected || (desc.Error != "") != rejected {
			t.Errorf("%s: ok = %v, error %q", fx.File, desc.OK, desc.Error)
		}
	}
}
