package events

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/kvindex/kvindex/indexer"
)

// The oracle is a second decoder, written for clarity: the library decodes
// the payload into generic values, and plain code maps these to a Batch. It
// trusts its input, so only payloads of engines may be given to it.

// genericDecode decodes a payload with the library.
func genericDecode(payload []byte) (any, error) {
	return msgpack.NewDecoder(bytes.NewReader(payload)).DecodeInterface()
}

// oracle maps generic values, from msgpack or JSON (numbers as json.Number,
// bytes as hex), to a Batch without skipped events.
func oracle(generic any) (b Batch, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("oracle: %v", r)
		}
	}()
	var ts, events, rank any
	switch g := generic.(type) {
	case []any:
		ts, events = g[0], g[1]
		if len(g) > 2 {
			rank = g[2]
		}
	case map[string]any:
		ts, events, rank = g["ts"], g["events"], g["data_parallel_rank"]
	}
	b.Timestamp = oracleFloat(ts)
	if rank != nil {
		b.Rank, b.HasRank = int(oracleInt(rank)), true
	}
	for i, e := range events.([]any) {
		b.Events = append(b.Events, oracleEvent(i, e))
	}
	return b, nil
}

func oracleEvent(index int, generic any) Event {
	fields, ok := generic.(map[string]any)
	if !ok {
		fields = oracleNames(generic.([]any))
	}
	ev := Event{Index: index, Group: -1}
	str := func(name string) string {
		s, _ := fields[name].(string)
		return s
	}
	switch str("type") {
	case "BlockStored":
		ev.Kind = BlockStored
	case "BlockRemoved":
		ev.Kind = BlockRemoved
	case "AllBlocksCleared":
		ev.Kind = AllBlocksCleared
	default:
		panic("unknown type " + str("type"))
	}
	if hashes, ok := fields["block_hashes"].([]any); ok {
		for _, h := range hashes {
			ev.Hashes = append(ev.Hashes, oracleHash(h))
		}
	}
	if parent := fields["parent_block_hash"]; parent != nil {
		ev.Parent, ev.HasParent = oracleHash(parent), true
	}
	if tokens, ok := fields["token_ids"].([]any); ok {
		for _, tok := range tokens {
			if pair, ok := tok.([]any); ok {
				ev.Bigram = true
				ev.Tokens = append(ev.Tokens, uint32(oracleInt(pair[0])), uint32(oracleInt(pair[1])))
			} else {
				ev.Tokens = append(ev.Tokens, uint32(oracleInt(tok)))
			}
		}
	}
	if size := fields["block_size"]; size != nil {
		ev.BlockSize = int(oracleInt(size))
	}
	if id := fields["lora_id"]; id != nil {
		ev.LoRAID, ev.HasLoRA = int64(oracleInt(id)), true
	}
	if group := fields["group_idx"]; group != nil {
		ev.Group = int(oracleInt(group))
	}
	if window := fields["kv_cache_spec_sliding_window"]; window != nil {
		ev.Window = int(oracleInt(window))
	}
	ev.LoRAName, ev.Medium, ev.Locality = str("lora_name"), str("medium"), str("locality")
	ev.Ownership, ev.SpecKind, ev.Salt = str("ownership"), str("kv_cache_spec_kind"), str("cache_salt")
	ev.SessionID = str("session_id")
	if extra, ok := fields["extra_keys"].([]any); ok {
		ev.HasExtra, ev.ExtraLen = true, len(extra)
		ev.Extra = oracleExtra(extra)
	}
	return ev
}

// oracleNames gives the positions of an array event their names.
func oracleNames(array []any) map[string]any {
	names := map[string][]string{
		"BlockStored": {"type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium",
			"lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window"},
		"BlockRemoved":     {"type", "block_hashes", "medium", "group_idx"},
		"AllBlocksCleared": {"type"},
	}[array[0].(string)]
	fields := map[string]any{}
	for i, value := range array[:min(len(array), len(names))] {
		fields[names[i]] = value
	}
	if meta, ok := fields["lora_name"].(map[string]any); ok {
		delete(fields, "lora_name")
		for name, value := range meta {
			fields[name] = value
		}
	}
	return fields
}

func oracleExtra(extra []any) []BlockExtra {
	blocks := make([]BlockExtra, len(extra))
	some := false
	for i, entry := range extra {
		list, ok := entry.([]interface{})
		if !ok {
			continue
		}
		for _, key := range list {
			some = true
			switch k := key.(type) {
			case string:
				blocks[i] = append(blocks[i], ExtraKey{Kind: ExtraString, Str: k})
			case []byte:
				blocks[i] = append(blocks[i], ExtraKey{Kind: ExtraBytes, Str: string(k)})
			case []interface{}:
				blocks[i] = append(blocks[i], ExtraKey{Kind: ExtraOffset, Str: k[0].(string), Offset: int64(oracleInt(k[1]))})
			default:
				panic(fmt.Sprintf("extra key of type %T", key))
			}
		}
	}
	if !some {
		return nil
	}
	return blocks
}

func oracleHash(v any) indexer.EngineHash {
	b, ok := v.([]byte)
	if s, isString := v.(string); isString {
		decoded, err := hex.DecodeString(s)
		if err != nil {
			panic(err)
		}
		b, ok = decoded, true
	}
	if !ok {
		return indexer.EngineHash(oracleInt(v))
	}
	var u uint64
	for _, x := range b { // the last 8 remain
		u = u<<8 | uint64(x)
	}
	return indexer.EngineHash(u)
}

// oracleInt gives any integer as two's complement.
func oracleInt(v any) uint64 {
	switch n := v.(type) {
	case int8:
		return uint64(n)
	case int16:
		return uint64(n)
	case int32:
		return uint64(n)
	case int64:
		return uint64(n)
	case uint8:
		return uint64(n)
	case uint16:
		return uint64(n)
	case uint32:
		return uint64(n)
	case uint64:
		return n
	case json.Number:
		if u, err := strconv.ParseUint(n.String(), 10, 64); err == nil {
			return u
		}
		i, err := n.Int64()
		if err != nil {
			panic(err)
		}
		return uint64(i)
	}
	panic(fmt.Sprintf("%T is no integer", v))
}

func oracleFloat(v any) float64 {
	switch n := v.(type) {
	case float64:
		return n
	case json.Number:
		f, err := n.Float64()
		if err != nil {
			panic(err)
		}
		return f
	}
	return float64(int64(oracleInt(v)))
}

// diffBatch compares two batches; nil and empty slices are the same.
func diffBatch(want, got *Batch) string {
	if reflect.DeepEqual(withoutEmpty(want), withoutEmpty(got)) { // much faster
		return ""
	}
	return cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateNaNs())
}

// withoutEmpty returns a copy with nil for empty slices.
func withoutEmpty(b *Batch) *Batch {
	c := *b
	c.Events, c.Skipped = append([]Event(nil), b.Events...), append([]Skip(nil), b.Skipped...)
	for i := range c.Events {
		ev := &c.Events[i]
		if len(ev.Hashes) == 0 {
			ev.Hashes = nil
		}
		if len(ev.Tokens) == 0 {
			ev.Tokens = nil
		}
	}
	return &c
}

// cloneBatch copies a batch out of its decoder.
func cloneBatch(b *Batch) *Batch {
	c := *b
	c.Events = slices.Clone(b.Events)
	c.Skipped = slices.Clone(b.Skipped)
	for i := range c.Events {
		ev := &c.Events[i]
		ev.Hashes, ev.Tokens = slices.Clone(ev.Hashes), slices.Clone(ev.Tokens)
		ev.Extra = slices.Clone(ev.Extra)
		for j := range ev.Extra {
			ev.Extra[j] = slices.Clone(ev.Extra[j])
		}
	}
	return &c
}

// sameAsOracle fails the test unless payload decodes to what the oracle finds
// and without skipped events.
func sameAsOracle(t *testing.T, d *Decoder, payload []byte) {
	t.Helper()
	generic, err := genericDecode(payload)
	if err != nil {
		t.Fatalf("library: %v", err)
	}
	want, err := oracle(generic)
	if err != nil {
		t.Fatal(err)
	}
	got, err := d.Decode(payload)
	if err != nil {
		t.Fatal(err)
	}
	if diff := diffBatch(&want, got); diff != "" {
		t.Fatalf("oracle and decoder differ (-oracle +decoder):\n%s", diff)
	}
}

func TestOracleReadsEveryWidth(t *testing.T) {
	if got := oracleHash(int8(-1)); got != math.MaxUint64 {
		t.Errorf("oracleHash(-1) = %d", got)
	}
	if got := oracleHash("000102030405060708090a0b0c0d0e0f"); got != 579005069656919567 {
		t.Errorf("oracleHash of 16 bytes = %d", got)
	}
}
