package events

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/kvindex/kvindex/indexer"
)

// decodeOne decodes a batch that holds one event and a clear behind it, which
// has to survive whatever is wrong with the event.
func decodeOne(t *testing.T, limits Limits, event any) (*Event, SkipReason) {
	t.Helper()
	b, err := NewDecoder(limits).Decode(batchOf(t, event, []any{"AllBlocksCleared"}))
	if err != nil {
		t.Fatalf("%v: %v", event, err)
	}
	n := len(b.Events)
	if n == 0 || b.Events[n-1].Kind != AllBlocksCleared || b.Events[n-1].Index != 1 {
		t.Fatalf("%v cost the next event: %+v", event, b)
	}
	if n == 1 {
		if len(b.Skipped) != 1 || b.Skipped[0].Index != 0 {
			t.Fatalf("%v: skipped %v", event, b.Skipped)
		}
		return nil, b.Skipped[0].Reason
	}
	return &b.Events[0], ""
}

func TestDecodeSkipsBadEvents(t *testing.T) {
	f := func(event any, want SkipReason) {
		t.Helper()
		if _, reason := decodeOne(t, Limits{}, event); reason != want {
			t.Errorf("%v: reason %q, want %q", event, reason, want)
		}
	}
	hashes, tokens := []any{1, 2}, []any{1, 2, 3, 4}
	stored := func(fields ...any) []any { return append([]any{"BlockStored"}, fields...) }

	f(nil, SkipBadShape)
	f("BlockStored", SkipBadShape)
	f([]any{}, SkipBadShape)
	f(entries{}, SkipBadShape)
	f([]any{nil}, SkipBadTag)
	f([]any{[]any{"BlockStored"}}, SkipBadTag)
	f([]any{"blockstored"}, SkipUnknownTag)
	f(entries{"type", 1}, SkipBadTag)
	f(entries{"kind", "AllBlocksCleared"}, SkipBadTag)
	f(entries{[]byte("type"), "AllBlocksCleared"}, SkipBadTag)
	f(entries{"type", "TierBlocksCleared", "medium", 7}, SkipUnknownTag)
	f(entries{"medium", 7, "type", "TierBlocksCleared"}, SkipUnknownTag)
	f(entries{"type", "AllBlocksCleared", "type", "AllBlocksCleared"}, SkipBadTag)
	f(entries{"type", "AllBlocksCleared", "type", 1}, SkipBadTag)
	f(entries{"medium", nil, "type", "AllBlocksCleared", "type", "BlockRemoved"}, SkipBadTag)
	f(entries{"type", "BlockRemoved", "block_hashes", hashes, "block_hashes", hashes}, SkipBadField)
	f(entries{"type", "BlockRemoved", "medium", nil}, SkipBadShape)
	f(entries{"type", "BlockStored", "block_hashes", hashes, "block_size", 2}, SkipBadShape)
	f(entries{"type", "BlockStored", "block_hashes", hashes, "token_ids", tokens}, SkipBadShape)
	f(stored(hashes, nil, tokens), SkipBadShape)
	f([]any{"BlockRemoved"}, SkipBadShape)

	f(stored(nil, nil, tokens, 2), SkipBadHash)
	f(stored(entries{1, 2}, nil, tokens, 2), SkipBadHash)
	f(stored([]any{make([]byte, 65)}, nil, tokens, 2), SkipBadHash)
	f(stored([]any{[]any{1}}, nil, tokens, 2), SkipBadHash)
	f(stored(hashes, "parent", tokens, 2), SkipBadHash)
	f(stored(hashes, []byte{}, tokens, 2), SkipBadHash)
	f(stored(hashes, nil, nil, 2), SkipBadTokens)
	f(stored(hashes, nil, "abcd", 2), SkipBadTokens)
	f(stored(hashes, nil, []any{1, uint64(math.MaxUint32) + 1}, 2), SkipBadTokens)
	f(stored(hashes, nil, []any{1, nil}, 2), SkipBadTokens)
	f(stored(hashes, nil, []any{1, 2, 3, 4, 5, 6, 7, 8, 9, -1, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 2), SkipBadTokens)
	f(stored(hashes, nil, []any{1, []any{1, 2}}, 2), SkipBadTokens)
	f(stored(hashes, nil, []any{[]any{1, 2}, 1}, 2), SkipBadTokens)
	f(stored(hashes, nil, []any{[]any{1, 2}, []any{1}}, 2), SkipBadTokens)
	f(stored(hashes, nil, []any{[]any{1, 2, 3}}, 2), SkipBadTokens)
	f(stored(hashes, nil, []any{[]any{}}, 2), SkipBadTokens)
	f(stored(hashes, nil, []any{[]any{1, -2}}, 2), SkipBadTokens)
	f(stored(hashes, nil, tokens, nil), SkipBadSize)
	f(stored(hashes, nil, tokens, 2.0), SkipBadSize)
	f(stored(hashes, nil, tokens, int64(math.MaxInt32)+1), SkipBadSize)
	f(stored(hashes, nil, tokens, 2, "1"), SkipBadField)
	f(stored(hashes, nil, tokens, 2, uint64(math.MaxUint64)), SkipBadField)
	f(stored(hashes, nil, tokens, 2, nil, 1), SkipBadMedium)
	f(stored(hashes, nil, tokens, 2, nil, ""), SkipBadMedium)
	f(stored(hashes, nil, tokens, 2, nil, nil, 1), SkipBadField)
	f(stored(hashes, nil, tokens, 2, nil, nil, entries{"cache_salt", 1}), SkipBadField)
	f(stored(hashes, nil, tokens, 2, nil, nil, entries{"cache_salt", "a", "cache_salt", "b"}), SkipBadField)
	f(stored(hashes, nil, tokens, 2, nil, nil, nil, "extra"), SkipBadField)
	f(stored(hashes, nil, tokens, 2, nil, nil, nil, []any{"extra"}), SkipBadField)
	f(stored(hashes, nil, tokens, 2, nil, nil, nil, []any{[]any{"x"}, 1}), SkipBadField)
	f(stored(hashes, nil, tokens, 2, nil, nil, nil, nil, -1), SkipBadField)
	f(stored(hashes, nil, tokens, 2, nil, nil, nil, nil, 0, 1), SkipBadField)
	f(stored(hashes, nil, tokens, 2, nil, nil, nil, nil, 0, nil, "256"), SkipBadField)
}

func TestDecodeAcceptsOddEvents(t *testing.T) {
	f := func(event any, want Event) {
		t.Helper()
		got, reason := decodeOne(t, Limits{}, event)
		if got == nil {
			t.Errorf("%v: skipped, %s", event, reason)
			return
		}
		if diff := diffBatch(&Batch{Events: []Event{want}}, &Batch{Events: []Event{*got}}); diff != "" {
			t.Errorf("%v (-want +got):\n%s", event, diff)
		}
	}
	hashes, tokens := []any{1, 2}, []any{1, 2, 3, 4}
	base := Event{Kind: BlockStored, Hashes: []indexer.EngineHash{1, 2}, Tokens: []uint32{1, 2, 3, 4}, BlockSize: 2, Group: -1}
	with := func(change func(*Event)) Event {
		ev := base
		change(&ev)
		return ev
	}

	// The tag may come last, unknown and non-string keys anywhere.
	f(entries{"block_size", 2, 7, []any{1}, "token_ids", tokens, "new", entries{"a", raw{0xd6, 1, 2, 3, 4, 5}},
		"block_hashes", hashes, "type", "BlockStored"}, base)
	// What a kind of event does not have is unknown there.
	f(entries{"type", "BlockRemoved", "token_ids", "x", "block_hashes", hashes, "lora_id", "x", "token_ids", 1},
		Event{Kind: BlockRemoved, Hashes: base.Hashes, Group: -1})
	f(entries{"type", "AllBlocksCleared", "medium", "CPU", "block_hashes", "all"},
		Event{Kind: AllBlocksCleared, Medium: "CPU", Group: -1})
	// Fields that appear late in the array; positions of a later revision.
	f([]any{"BlockStored", hashes, nil, tokens, 2}, base)
	f([]any{"BlockStored", hashes, -1, tokens, 2, -7, "DISK", "ada", nil, 3, "mamba", 99, []any{1}, entries{"a", 1}},
		with(func(ev *Event) {
			ev.Parent, ev.HasParent, ev.LoRAID, ev.HasLoRA, ev.Medium = math.MaxUint64, true, -7, true, "DISK"
			ev.LoRAName, ev.Group, ev.SpecKind, ev.Window = "ada", 3, "mamba", 99
		}))
	f([]any{"BlockStored", hashes, nil, tokens, 2, nil, "GPU", entries{"cache_salt", "s", 1, 2, "session_id", "x", "new", nil}},
		with(func(ev *Event) { ev.Medium, ev.Salt, ev.SessionID = "GPU", "s", "x" }))
	// Lengths in wider forms than needed.
	f([]any{"BlockRemoved", raw{0xdd, 0, 0, 0, 3, 0xc5, 0, 1, 9, 0xc6, 0, 0, 0, 2, 1, 2, 0xd0, 0x81}},
		Event{Kind: BlockRemoved, Hashes: []indexer.EngineHash{9, 0x102, math.MaxUint64 - 126}, Group: -1})
	f(entries{"type", raw{0xda, 0, 12, 'B', 'l', 'o', 'c', 'k', 'R', 'e', 'm', 'o', 'v', 'e', 'd'},
		"block_hashes", raw{0xdc, 0, 0}}, Event{Kind: BlockRemoved, Group: -1})
	// Token ids in signed and wide forms.
	f([]any{"BlockStored", hashes, nil, raw{0x94, 0xd0, 1, 0xd1, 0, 2, 0xd3, 0, 0, 0, 0, 0, 0, 0, 3,
		0xcf, 0, 0, 0, 0, 0, 0, 0, 4}, 2}, base)
	f([]any{"BlockStored", []any{1}, nil, []any{[]any{1, 2}, []any{2, uint32(math.MaxUint32)}}, 2},
		Event{Kind: BlockStored, Hashes: []indexer.EngineHash{1}, Tokens: []uint32{1, 2, 2, math.MaxUint32}, Bigram: true,
			BlockSize: 2, Group: -1})
	// Extra keys of every shape.
	extra := []any{nil, []any{"ada", []any{"img", -12}, []byte{1, 2}, 7, []any{"img", "4"}, entries{"mm", 1},
		[]any{"mm", "id", 3}, raw{0xc3}}, []any{}}
	f([]any{"BlockStored", hashes, nil, tokens, 2, nil, nil, nil, extra}, with(func(ev *Event) {
		ev.HasExtra, ev.ExtraLen = true, 3
		ev.Extra = []BlockExtra{nil, {
			{Kind: ExtraString, Str: "ada"}, {Kind: ExtraOffset, Str: "img", Offset: -12}, {Kind: ExtraBytes, Str: "\x01\x02"},
			{Kind: ExtraOther, Str: "\x07"}, {Kind: ExtraOther, Str: "\x92\xa3img\xa14"}, {Kind: ExtraOther, Str: "\x81\xa2mm\x01"},
			{Kind: ExtraOther, Str: "\x93\xa2mm\xa2id\x03"}, {Kind: ExtraOther, Str: "\xc3"},
		}, nil}
	}))
	f([]any{"BlockStored", hashes, nil, tokens, 2, nil, nil, nil, []any{nil, []any{}}}, with(func(ev *Event) {
		ev.HasExtra, ev.ExtraLen = true, 2
	}))
}

func TestDecodeLimits(t *testing.T) {
	limits := Limits{MaxHashes: 4, MaxTokens: 8, MaxExtra: 6, MaxString: 5}
	f := func(event any, want SkipReason) {
		t.Helper()
		if _, reason := decodeOne(t, limits, event); reason != want {
			t.Errorf("%v: reason %q, want %q", event, reason, want)
		}
	}
	pairs := []any{[]any{1, 2}, []any{1, 2}, []any{1, 2}, []any{1, 2}}
	stored := func(hashes, tokens []any, lora string, extra ...any) []any {
		return []any{"BlockStored", hashes, nil, tokens, 2, nil, "GPU", lora, extra}
	}
	f(stored(hashesOf(4), tokensOf(8), "loras"), "")
	f(stored(hashesOf(5), tokensOf(8), ""), SkipTooLarge)
	f(stored(hashesOf(4), tokensOf(9), ""), SkipTooLarge)
	f(stored(hashesOf(4), pairs, ""), "")
	f(stored(hashesOf(4), append(pairs, pairs[0]), ""), SkipTooLarge)
	f(stored(hashesOf(4), tokensOf(8), "longer"), SkipTooLarge)
	f(stored(hashesOf(4), tokensOf(8), "", make([]any, 1000)...), "")
	f(stored(hashesOf(4), tokensOf(8), "", []any{"1", "2"}, nil, nil, nil), "")
	f(stored(hashesOf(4), tokensOf(8), "", []any{"1", "2", "3"}, nil, nil, nil), SkipTooLarge)
	f(stored(hashesOf(4), tokensOf(8), "", []any{"longer"}, nil, nil, nil), SkipTooLarge)

	reject := func(limits Limits, payload []byte, want BatchReason) {
		t.Helper()
		_, err := NewDecoder(limits).Decode(payload)
		var be *BatchError
		if !errors.As(err, &be) || be.Reason != want {
			t.Errorf("%d bytes: error %v, want %s", len(payload), err, want)
		}
	}
	clears := func(n int) []byte {
		events := make([]any, n)
		for i := range events {
			events[i] = []any{"AllBlocksCleared"}
		}
		return batchOf(t, events...)
	}
	if _, err := NewDecoder(Limits{MaxEvents: 3}).Decode(clears(3)); err != nil {
		t.Error(err)
	}
	reject(Limits{MaxEvents: 3}, clears(4), BatchTooLarge)
	reject(Limits{MaxPayload: 100}, make([]byte, 101), BatchTooLarge)

	nested := func(depth int) []byte { // in an unknown field of an event
		var v any = []any{1}
		for range depth - 1 {
			v = []any{v}
		}
		return batchOf(t, entries{"type", "AllBlocksCleared", "new", v})
	}
	if _, err := NewDecoder(Limits{}).Decode(nested(13)); err != nil {
		t.Error(err)
	}
	reject(Limits{}, nested(14), BatchTooDeep)
	reject(Limits{MaxDepth: 1}, nested(6), BatchTooDeep) // 1 is raised to 8
	if _, err := NewDecoder(Limits{MaxDepth: 1}).Decode(nested(5)); err != nil {
		t.Error(err)
	}
}

// What is known never exceeds the least MaxDepth.
func TestDecodeKnownFieldsFitMinDepth(t *testing.T) {
	event := storedMap(2, 4, []any{[]any{[]any{"img", 1}}, nil})
	c := newCursor(minDepth - 2)
	c.buf = batchOf(t, event)
	if err := c.skip(0); err != nil {
		t.Error(err)
	}
}

func TestDecodeRejects(t *testing.T) {
	d := NewDecoder(Limits{})
	f := func(payload []byte, want BatchReason, offset int) {
		t.Helper()
		b, err := d.Decode(payload)
		var be *BatchError
		if !errors.As(err, &be) || be.Reason != want || be.Offset != offset || be.Size != len(payload) || b != nil {
			t.Errorf("% x: %v, want %s at %d", payload, err, want, offset)
		}
	}
	one := encode(t, 1.5) // 9 bytes
	cat := func(parts ...[]byte) (all []byte) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	f(nil, BatchTruncated, 0)
	f([]byte{0xc1}, BatchReserved, 0)
	f([]byte{0xdc, 0}, BatchTruncated, 0)
	f([]byte{0xdf, 0, 0}, BatchTruncated, 0)
	f([]byte{0xd4, 1, 2}, BatchNotABatch, 0)
	f([]byte{0x92, 0xcb, 0}, BatchTruncated, 1)
	f([]byte{0x92, 0xc1, 0x90}, BatchReserved, 1)
	f([]byte{0x92, 0xc3, 0x90}, BatchBadTS, 1)
	f(cat([]byte{0x92}, one, []byte{0xdc, 0, 9}), BatchTruncated, 10)
	f(cat([]byte{0x92}, one, []byte{0xa0}), BatchBadEvents, 10)
	f(cat([]byte{0x93}, one, []byte{0x90, 0xcc}), BatchTruncated, 11)
	f(cat([]byte{0x93}, one, []byte{0x90, 0xca, 0, 0, 0, 0}), BatchBadRank, 11)
	f(cat([]byte{0x93}, one, []byte{0x90, 0xc1}), BatchReserved, 11)
	f(cat([]byte{0x94}, one, []byte{0x90, 0x00, 0xa2, 'a'}), BatchTruncated, 12)
	f(cat([]byte{0x92}, one, []byte{0x90, 0x00}), BatchTrailing, 11)
	f(cat([]byte{0x92}, one, []byte{0x92, 0xc0, 0xc1}), BatchReserved, 12)
	f(cat([]byte{0x92}, one, []byte{0x91, 0xc7, 5, 1, 2}), BatchTruncated, 11)
	f(cat([]byte{0x92}, one, []byte{0x91, 0xc9, 0xff, 0xff, 0xff, 0xff, 0}), BatchTruncated, 11)
	// Bad contents do not hide that the event is cut off.
	f(cat([]byte{0x92}, one, []byte{0x91, 0x92, 0xac}, []byte("BlockRemoved"), []byte{0x91, 0xc0, 0xc0}), BatchTrailing, 27)
	f(cat([]byte{0x92}, one, []byte{0x91, 0x92, 0xac}, []byte("BlockRemoved"), []byte{0x92, 0xc0}), BatchTruncated, 25)

	ts, events, rank := []any{"ts", 1.5}, []any{"events", []any{}}, []any{"data_parallel_rank", 1}
	maps := func(reason BatchReason, parts ...[]any) {
		t.Helper()
		var all entries
		for _, p := range parts {
			all = append(all, p...)
		}
		_, err := d.Decode(encode(t, all))
		var be *BatchError
		if reason == "" && err != nil || reason != "" && (!errors.As(err, &be) || be.Reason != reason) {
			t.Errorf("%v: %v, want %q", all, err, reason)
		}
	}
	maps("", rank, events, ts)
	maps("", events, []any{7, []any{}}, ts, []any{"new", nil})
	maps(BatchNotABatch)
	maps(BatchNotABatch, rank)
	maps(BatchBadTS, events)
	maps(BatchBadEvents, ts)
	maps(BatchBadTS, ts, events, ts)
	maps(BatchBadEvents, ts, events, events)
	maps(BatchBadRank, ts, events, rank, []any{"attn_dp_rank", 1})
	maps(BatchReserved, ts, events, []any{raw{0xc1}, 1})
}

// Errors and reasons never quote what is the users'.
func TestErrorsHoldNoContents(t *testing.T) {
	secret := "sesame"
	for _, payload := range [][]byte{
		encode(t, []any{secret, []any{}}),
		encode(t, []any{1.5, secret}),
		encode(t, []any{1.5, []any{}, secret}),
		encode(t, entries{secret, secret}),
		append(encode(t, []any{1.5, []any{}}), secret...),
		encode(t, []any{1.5, []any{[]any{secret}, raw{0xc1}}}),
	} {
		_, err := NewDecoder(Limits{}).Decode(payload)
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("Decode = %v", err)
		}
	}
}
