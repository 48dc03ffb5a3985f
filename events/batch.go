package events

import "github.com/kvindex/kvindex/indexer"

// Kind says what an event reports.
type Kind uint8

// The kinds of events that engines publish and kvindex understands.
const (
	BlockStored Kind = iota + 1
	BlockRemoved
	AllBlocksCleared
)

// String returns the event's tag on the wire.
func (k Kind) String() string {
	switch k {
	case BlockStored:
		return "BlockStored"
	case BlockRemoved:
		return "BlockRemoved"
	case AllBlocksCleared:
		return "AllBlocksCleared"
	}
	return "unknown"
}

// Batch is one decoded message of a stream. It and everything it points to
// belong to the Decoder that returned it and live until its next Decode.
type Batch struct {
	Timestamp float64 // the engine's clock, seconds; may be NaN or Inf: hostile input is kept as it is
	Rank      int     // data_parallel_rank of the batch; valid if HasRank
	HasRank   bool
	Events    []Event // the good ones, in wire order
	Skipped   []Skip  // the bad ones, in wire order
}

// Event is one event, of any revision, with the fields that kvindex uses.
type Event struct {
	Kind  Kind
	Index int // position in the batch, counted over good and skipped events

	// Hashes name the blocks: an int as two's complement, bytes by their last
	// 8, big-endian. A block has the same EngineHash in either form.
	Hashes    []indexer.EngineHash
	Parent    indexer.EngineHash // valid if HasParent
	HasParent bool

	// Tokens of all blocks, one after the other. With Bigram (EAGLE in SGLang)
	// every token is a pair, flattened: a0, b0, a1, b1, ...
	Tokens    []uint32
	Bigram    bool
	BlockSize int // tokens (or pairs) a block; 0 in offload events

	LoRAID   int64 // deprecated on the wire; valid if HasLoRA
	HasLoRA  bool
	LoRAName string

	Medium    string // as on the wire; "" where it is nil or absent, which means GPU
	Locality  string // LOCAL, REMOTE or ""
	Ownership string
	Group     int    // KV-cache group, -1 where absent
	SpecKind  string // kind of attention of the group, "" where absent
	Window    int    // sliding window of the group in tokens, 0 where absent
	Salt      string // SGLang's cache_salt field
	SessionID string

	// Extra holds the extra keys, one element a block; nil where the event
	// has none or all are nil.
	Extra []BlockExtra
	// HasExtra says that the field was a list (even if all elements are nil);
	// ExtraLen is its length, to be checked against len(Hashes).
	HasExtra bool
	ExtraLen int
}

// BlockExtra is the list of extra keys of one block; empty where nil.
type BlockExtra []ExtraKey

// ExtraKind says which shape an extra key has on the wire.
type ExtraKind uint8

// The shapes of extra keys.
const (
	ExtraString ExtraKind = iota + 1 // LoRA name, cache_salt, or a bare multimodal id
	ExtraOffset                      // (multimodal id, offset in the block, may be negative)
	ExtraBytes                       // digest of prompt embeddings
	ExtraOther                       // anything else (old vLLM: LoRA id): Str holds its msgpack bytes
)

// ExtraKey is one extra key of a block.
type ExtraKey struct {
	Kind   ExtraKind
	Str    string // text, id, or raw bytes, by Kind
	Offset int64  // of ExtraOffset
}

// Skip is an event that was left out, and why.
type Skip struct {
	Index  int
	Reason SkipReason
}

// SkipReason names why an event was left out; the values are metric labels.
type SkipReason string

// Reasons found while decoding.
const (
	SkipUnknownTag SkipReason = "unknown_tag" // a kind of event that this version does not know
	SkipBadTag     SkipReason = "bad_tag"     // tag missing, given twice or not a string
	SkipBadShape   SkipReason = "bad_shape"   // neither an array nor a map, empty, or too few fields
	SkipBadHash    SkipReason = "bad_hash"    // a hash that is no integer and no bytes of 1..64
	SkipBadTokens  SkipReason = "bad_tokens"  // a token id out of range, mixed with pairs, or no integer
	SkipBadSize    SkipReason = "bad_block_size"
	SkipBadMedium  SkipReason = "bad_medium"
	SkipBadField   SkipReason = "bad_field" // another known field of the wrong type or out of range
	SkipTooLarge   SkipReason = "too_large" // more elements than the limits allow
	SkipTooDeep    SkipReason = "too_deep"
)
