package events

import (
	"encoding/hex"
	"math"
	"strconv"
	"strings"

	"github.com/kvindex/kvindex/indexer"
)

// Description is a decoded payload as JSON, for people who look at what their
// engines publish. It shows token ids, salts and session ids: it is not meant
// for logs.
type Description struct {
	File    string             `json:"file"`
	OK      bool               `json:"ok"` // the batch was accepted; events of it may still be skipped
	TS      any                `json:"ts"` // number; "NaN", "+Inf" or "-Inf" where it is none; null if not OK
	Rank    *int               `json:"dp_rank"`
	Events  []EventDescription `json:"events"`
	Skipped []SkipDescription  `json:"skipped"`
	Error   string             `json:"error"` // why the batch was rejected, "" if OK
}

// EventDescription is an event as JSON, with the keys of the newest wire
// format whatever format it came in. Hashes are decimal strings: they take 64
// bits, which JSON numbers lose in many readers. Fields that the event does
// not have, or has as nil, are left out.
type EventDescription struct {
	Type      string   `json:"type"`
	Hashes    []string `json:"block_hashes,omitzero"`
	Parent    string   `json:"parent_block_hash,omitzero"`
	Tokens    any      `json:"token_ids,omitzero"` // []uint32, or [][2]uint32 of pairs (EAGLE)
	BlockSize *int     `json:"block_size,omitzero"`
	LoRAID    *int64   `json:"lora_id,omitzero"`
	LoRAName  string   `json:"lora_name,omitzero"`
	Medium    string   `json:"medium,omitzero"`
	Locality  string   `json:"locality,omitzero"`
	Ownership string   `json:"ownership,omitzero"`
	Group     *int     `json:"group_idx,omitzero"`
	SpecKind  string   `json:"kv_cache_spec_kind,omitzero"`
	Window    int      `json:"kv_cache_spec_sliding_window,omitzero"`
	Salt      string   `json:"cache_salt,omitzero"`
	SessionID string   `json:"session_id,omitzero"`
	// Extra has an entry a block: null, or a list of strings, [id, offset],
	// {"bytes": hex} and {"msgpack": hex}.
	Extra []any `json:"extra_keys,omitzero"`
}

// SkipDescription is an event that was left out.
type SkipDescription struct {
	Index  int        `json:"index"` // position in the batch
	Reason SkipReason `json:"reason"`
}

// DescribePayload decodes a payload and describes the result; file is copied.
func DescribePayload(d *Decoder, file string, payload []byte) Description {
	b, err := d.Decode(payload)
	if err != nil {
		return Description{File: file, Events: []EventDescription{}, Skipped: []SkipDescription{}, Error: err.Error()}
	}
	desc := Describe(b)
	desc.File = file
	return desc
}

// Describe describes an accepted batch. The result does not refer to b.
func Describe(b *Batch) Description {
	desc := Description{
		OK:      true,
		TS:      describeTime(b.Timestamp),
		Events:  make([]EventDescription, len(b.Events)),
		Skipped: make([]SkipDescription, len(b.Skipped)),
	}
	if b.HasRank {
		desc.Rank = new(b.Rank)
	}
	for i := range b.Events {
		desc.Events[i] = describeEvent(&b.Events[i])
	}
	for i, s := range b.Skipped {
		desc.Skipped[i] = SkipDescription(s)
	}
	return desc
}

func describeTime(ts float64) any {
	if math.IsNaN(ts) || math.IsInf(ts, 0) {
		return strconv.FormatFloat(ts, 'g', -1, 64)
	}
	return ts
}

func describeEvent(ev *Event) EventDescription {
	desc := EventDescription{
		Type:      ev.Kind.String(),
		LoRAName:  describeText(ev.LoRAName),
		Medium:    describeText(ev.Medium),
		Locality:  describeText(ev.Locality),
		Ownership: describeText(ev.Ownership),
		SpecKind:  describeText(ev.SpecKind),
		Window:    ev.Window,
		Salt:      describeText(ev.Salt),
		SessionID: describeText(ev.SessionID),
	}
	if ev.Kind != AllBlocksCleared {
		desc.Hashes = make([]string, len(ev.Hashes))
		for i, h := range ev.Hashes {
			desc.Hashes[i] = describeHash(h)
		}
	}
	if ev.Kind == BlockStored {
		desc.Tokens = describeTokens(ev)
		desc.BlockSize = new(ev.BlockSize)
	}
	if ev.HasParent {
		desc.Parent = describeHash(ev.Parent)
	}
	if ev.HasLoRA {
		desc.LoRAID = new(ev.LoRAID)
	}
	if ev.Group >= 0 {
		desc.Group = new(ev.Group)
	}
	if ev.HasExtra {
		desc.Extra = make([]any, ev.ExtraLen)
		for i, keys := range ev.Extra {
			if len(keys) > 0 {
				desc.Extra[i] = describeExtra(keys)
			}
		}
	}
	return desc
}

// describeText makes a string fit for JSON: msgpack does not promise UTF-8.
func describeText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func describeHash(h indexer.EngineHash) string { return strconv.FormatUint(uint64(h), 10) }

func describeTokens(ev *Event) any {
	if !ev.Bigram {
		return append([]uint32{}, ev.Tokens...)
	}
	pairs := make([][2]uint32, len(ev.Tokens)/2)
	for i := range pairs {
		pairs[i] = [2]uint32(ev.Tokens[2*i:])
	}
	return pairs
}

func describeExtra(keys BlockExtra) []any {
	list := make([]any, len(keys))
	for i, key := range keys {
		switch key.Kind {
		case ExtraString:
			list[i] = describeText(key.Str)
		case ExtraOffset:
			list[i] = []any{describeText(key.Str), key.Offset}
		case ExtraBytes:
			list[i] = map[string]string{"bytes": hex.EncodeToString([]byte(key.Str))}
		default:
			list[i] = map[string]string{"msgpack": hex.EncodeToString([]byte(key.Str))}
		}
	}
	return list
}
