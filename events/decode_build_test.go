package events

import (
	"bytes"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

// Payloads for tests, written with the library's encoder in the widths that
// engines use.

// pairs of a map, in order
type entries []any

// raw msgpack
type raw []byte

// encode encodes nil, numbers, strings, bytes, []any, entries and raw.
func encode(t testing.TB, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	enc := msgpack.NewEncoder(&b)
	enc.UseCompactInts(true)
	encodeTo(t, &b, enc, v)
	return b.Bytes()
}

func encodeTo(t testing.TB, b *bytes.Buffer, enc *msgpack.Encoder, v any) {
	t.Helper()
	var err error
	switch v := v.(type) {
	case []any:
		err = enc.EncodeArrayLen(len(v))
		for _, x := range v {
			encodeTo(t, b, enc, x)
		}
	case entries:
		err = enc.EncodeMapLen(len(v) / 2)
		for _, x := range v {
			encodeTo(t, b, enc, x)
		}
	case raw:
		_, err = b.Write(v)
	default:
		err = enc.Encode(v)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// batchOf encodes the array [ts, events, 0].
func batchOf(t testing.TB, events ...any) []byte {
	t.Helper()
	return encode(t, []any{1789095808.5, events, 0})
}

// batchHead is the start of the array [ts, events] with n events.
func batchHead(n int) []byte {
	return []byte{0x92, 0xcb, 0x41, 0xda, 0xa8, 0xdb, 0xe0, 0x20, 0, 0, 0x90 | byte(n)}
}

// tokensOf returns n token ids that have the widths of real ones: most take 3
// bytes, some 2 or 5.
func tokensOf(n int) []any {
	tokens := make([]any, n)
	x := uint32(12345)
	for i := range tokens {
		x = x*1664525 + 1013904223
		switch r := x >> 24; {
		case r < 40:
			tokens[i] = x >> 8 & 0xff
		case r < 240:
			tokens[i] = 256 + x>>8&0x7fff
		default:
			tokens[i] = 1<<16 + x>>8&0xffff
		}
	}
	return tokens
}

func hashesOf(n int) []any {
	hashes := make([]any, n)
	x := uint64(0x9e3779b97f4a7c15)
	for i := range hashes {
		x = x*6364136223846793005 + 1442695040888963407
		hashes[i] = x | 1<<63
	}
	return hashes
}

// storedMap is a BlockStored as vLLM writes it since v0.24.
func storedMap(blocks, blockSize int, extra any) entries {
	if extra == nil {
		extra = make([]any, blocks)
	}
	return entries{"type", "BlockStored", "block_hashes", hashesOf(blocks), "parent_block_hash", hashesOf(1)[0],
		"token_ids", tokensOf(blocks * blockSize), "block_size", blockSize, "lora_id", nil, "medium", "GPU",
		"lora_name", nil, "extra_keys", extra, "group_idx", 0, "kv_cache_spec_kind", "full_attention"}
}

// storedArray is a BlockStored as vLLM wrote it up to v0.23.
func storedArray(blocks, blockSize int) []any {
	return []any{"BlockStored", hashesOf(blocks), hashesOf(1)[0], tokensOf(blocks * blockSize), blockSize, nil, "GPU",
		nil, make([]any, blocks), 0, "full_attention", nil}
}

// removedMap is a BlockRemoved as vLLM writes it since v0.24.
func removedMap() entries { return removedMapOf(hashesOf(1)...) }

// removedMapOf removes blocks with the given ids.
func removedMapOf(hashes ...any) entries {
	return entries{"type", "BlockRemoved", "block_hashes", hashes, "medium", "GPU", "group_idx", 0}
}
