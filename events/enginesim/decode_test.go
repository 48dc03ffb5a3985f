package enginesim

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

// decodeBatch reads a good payload of any revision: the tests' own reader, of
// the generic kind, which knows nothing of how the encoder works. Never for
// payloads from outside.
func decodeBatch(t testing.TB, payload []byte) Batch {
	t.Helper()
	d := msgpack.NewDecoder(bytes.NewReader(payload))
	d.UseLooseInterfaceDecoding(false)
	v, err := d.DecodeInterface()
	if err != nil {
		t.Fatalf("cannot decode %x: %v", payload, err)
	}
	a := v.([]any)
	b := Batch{Time: a[0].(float64), NoRank: len(a) < 3 || a[2] == nil}
	if !b.NoRank {
		b.Rank = int(toInt(a[2]))
	}
	for _, ev := range a[1].([]any) {
		b.Events = append(b.Events, decodeEvent(ev))
	}
	return b
}

func decodeEvent(v any) Event {
	if m, ok := v.(map[string]any); ok {
		return decodeMap(m)
	}
	a := v.([]any)
	m := map[string]any{"type": a[0]}
	names := []string{"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name",
		"extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window"}
	if a[0] == "BlockRemoved" {
		names = []string{"block_hashes", "medium", "group_idx"}
	}
	for i, f := range a[1:] {
		if salt, ok := f.(map[string]any); ok {
			m["cache_salt"] = salt["cache_salt"]
			continue
		}
		m[names[i]] = f
	}
	return decodeMap(m)
}

func decodeMap(m map[string]any) Event {
	text := func(k string) string { s, _ := m[k].(string); return s }
	number := func(k string, absent int) int {
		if m[k] == nil {
			return absent
		}
		return int(toInt(m[k]))
	}
	ev := Event{
		BlockSize: number("block_size", 0), LoRAID: number("lora_id", 0), LoRAName: text("lora_name"),
		Medium: text("medium"), Group: number("group_idx", NoGroup), SpecKind: text("kv_cache_spec_kind"),
		Window: number("kv_cache_spec_sliding_window", 0), Locality: text("locality"), Ownership: text("ownership"),
		Salt: text("cache_salt"), SessionID: text("session_id"),
	}
	switch m["type"] {
	case "BlockStored":
		ev.Kind = Stored
	case "BlockRemoved":
		ev.Kind = Removed
	case "AllBlocksCleared":
		return Event{Kind: Cleared}
	default:
		panic(fmt.Sprintf("unknown event %v", m["type"]))
	}
	for _, h := range m["block_hashes"].([]any) {
		ev.Hashes = append(ev.Hashes, toHash(h))
	}
	if p := m["parent_block_hash"]; p != nil {
		ev.Parent, ev.HasParent = toHash(p), true
	}
	if ts, ok := m["token_ids"].([]any); ok {
		for _, tok := range ts {
			if pair, ok := tok.([]any); ok {
				ev.Bigram = true
				ev.Tokens = append(ev.Tokens, uint32(toInt(pair[0])), uint32(toInt(pair[1])))
				continue
			}
			ev.Tokens = append(ev.Tokens, uint32(toInt(tok)))
		}
	}
	if extra, ok := m["extra_keys"].([]any); ok {
		ev.Extra = [][]ExtraKey{}
		for _, keys := range extra {
			ev.Extra = append(ev.Extra, decodeExtra(keys))
		}
	}
	return ev
}

func decodeExtra(v any) []ExtraKey {
	if v == nil {
		return nil
	}
	keys := []ExtraKey{}
	for _, k := range v.([]any) {
		switch k := k.(type) {
		case string:
			keys = append(keys, ExtraKey{Text: k})
		case []byte:
			keys = append(keys, ExtraKey{Digest: k})
		case []any:
			keys = append(keys, ExtraKey{Text: k[0].(string), Offset: toInt(k[1]), HasOffset: true})
		}
	}
	return keys
}

func toHash(v any) Hash {
	switch v := v.(type) {
	case []byte:
		return BytesHash(v)
	case uint64:
		return UintHash(v)
	}
	n := toInt(v)
	if n < 0 {
		return IntHash(n)
	}
	return UintHash(uint64(n))
}

func toInt(v any) int64 {
	switch v := v.(type) {
	case int8:
		return int64(v)
	case int16:
		return int64(v)
	case int32:
		return int64(v)
	case int64:
		return v
	case uint8:
		return int64(v)
	case uint16:
		return int64(v)
	case uint32:
		return int64(v)
	case uint64:
		return int64(v)
	}
	panic(fmt.Sprintf("%T is no integer", v))
}
