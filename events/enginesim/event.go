package enginesim

import (
	"encoding/binary"

	"github.com/kvindex/kvindex/indexer"
)

// Kind says what an event reports.
type Kind uint8

// The kinds of events that engines publish.
const (
	Stored  Kind = iota + 1 // BlockStored
	Removed                 // BlockRemoved
	Cleared                 // AllBlocksCleared
)

// Media as engines spell them.
const (
	MediumGPU       = "GPU"
	MediumCPU       = "CPU"        // vLLM's offloading connectors
	MediumCPUPinned = "CPU_PINNED" // SGLang's host tier
)

// NoGroup is the Group of an event that names no KV-cache group.
const NoGroup = -1

// Event is one KV-cache event before it is encoded. Which fields reach the
// wire depends on the Encoding: revisions that do not know a field leave it
// out.
type Event struct {
	Kind   Kind
	Hashes []Hash

	Parent    Hash // valid if HasParent; a run that starts at token 0 has none
	HasParent bool
	// Tokens of all blocks one after the other. With Bigram (EAGLE in SGLang)
	// they are pairs, flattened: a0, b0, a1, b1, ...
	Tokens    []uint32
	Bigram    bool
	BlockSize int // tokens (or pairs) a block; 0 in placeholder offload events

	LoRAID   int    // 0 is nil on the wire: engines count adapters from 1
	LoRAName string // "" is nil
	Medium   string // "" is nil, which means GPU

	// Extra has one element a block; a nil element is nil on the wire. Extra
	// itself is nil where the event has no extra keys at all.
	Extra     [][]ExtraKey
	Group     int    // NoGroup is nil
	SpecKind  string // kind of attention of the group, "" is nil
	Window    int    // sliding window in tokens, 0 is nil
	Locality  string // LOCAL, REMOTE, or "" for nil
	Ownership string // "" is nil
	Salt      string // SGLang's cache_salt field; vLLM has the salt in Extra
	SessionID string // "" is nil
}

// ExtraKey is one extra key of a block: a bare string (LoRA name, salt), a
// multimodal item at an offset, or the digest of prompt embeddings.
type ExtraKey struct {
	Text      string
	Offset    int64 // from the start of the block, may be negative; valid if HasOffset
	HasOffset bool
	Digest    []byte // not nil: the key is these bytes and nothing else
}

// Batch is what one scheduler step publishes.
type Batch struct {
	Time   float64 // the engine's clock, seconds
	Events []Event
	Rank   int  // data_parallel_rank
	NoRank bool // the rank is nil on the wire
}

// Hash is an engine's id of a block in one of the forms it has on the wire:
// an unsigned or a signed 64-bit integer, or raw bytes. It is comparable.
// The zero Hash is the unsigned integer 0.
type Hash struct {
	form hashForm
	n    uint64
	raw  string
}

type hashForm uint8

const (
	hashUint hashForm = iota
	hashInt
	hashBytes
)

// UintHash is vLLM's default form.
func UintHash(v uint64) Hash { return Hash{form: hashUint, n: v} }

// IntHash is SGLang's form. A non-negative value is the same bytes as the
// unsigned one.
func IntHash(v int64) Hash { return Hash{form: hashInt, n: uint64(v)} }

// BytesHash is the form of VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0: the whole
// digest, 32 or 16 bytes.
func BytesHash(b []byte) Hash { return Hash{form: hashBytes, raw: string(b)} }

// Engine returns the 64-bit key of the block: an integer as two's
// complement, bytes by their last 8, big-endian, so that a block has one key
// in every form.
func (h Hash) Engine() indexer.EngineHash {
	if h.form != hashBytes {
		return indexer.EngineHash(h.n)
	}
	var last [8]byte
	b := h.raw
	if len(b) > 8 {
		b = b[len(b)-8:]
	}
	copy(last[8-len(b):], b)
	return indexer.EngineHash(binary.BigEndian.Uint64(last[:]))
}
