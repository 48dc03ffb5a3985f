package indexer

import (
	"crypto/sha256"
	"encoding/binary"
	"unsafe"

	"github.com/zeebo/xxh3"
)

// DefaultSeed is the XXH3 seed of the public indexer convention
// (kvcache-ai/Mooncake#1403 as implemented by Dynamo): clients that send
// hashes instead of tokens compute them with it.
const DefaultSeed uint64 = 1337

// EngineHash is the engine's own id of a block, as it stands in events.
// It is opaque: engines differ in algorithm and seed, so it means something
// only inside the stream that announced it.
type EngineHash uint64

// LocalHash is our hash of one block's own tokens (and extra keys).
type LocalHash uint64

// SeqHash is our hash of a whole prefix, up to and including a block. It is
// the key of the block table.
type SeqHash uint64

// ScopeKey is the hash of a Scope; 0 is the default scope.
type ScopeKey uint64

// DefaultTenant is the tenant of requests and instances that name none.
const DefaultTenant = "default"

// Scope separates prompts that never share blocks even where their tokens
// are equal. The zero value is the default scope.
type Scope struct {
	Tenant string // "" and DefaultTenant are the same
	LoRA   string // name of the adapter, "" for the base model
	Salt   string // the request's cache_salt
}

// Hasher computes the keys of the index. The write path (events) and the
// read path (queries) both call it, so that they cannot disagree. It is a
// value, safe for concurrent use.
//
// The functions are those of the public convention:
//
//	local    = XXH3-64(seed, tokens as little-endian uint32 || extra)
//	seq[0]   = local[0]                                in the default scope
//	seq[0]   = XXH3-64(seed, LE64(scope) || LE64(local[0]))   in any other
//	seq[i]   = XXH3-64(seed, LE64(seq[i-1]) || LE64(local[i]))
//
// XXH3 is not cryptographic: a crafted collision gives a wrong hint to a
// router, never wrong output of a model. Use a secret seed where tenants
// are hostile.
type Hasher struct {
	seed uint64
}

// NewHasher returns a Hasher with the given seed.
func NewHasher(seed uint64) Hasher { return Hasher{seed: seed} }

// Seed returns the seed that h was made with.
func (h Hasher) Seed() uint64 { return h.seed }

// fingerprint tells seeds apart, and does not give them away.
func (h Hasher) fingerprint() uint64 {
	sum := sha256.Sum256(binary.LittleEndian.AppendUint64([]byte("kvindex seed"), h.seed))
	return binary.LittleEndian.Uint64(sum[:])
}

// Local hashes the tokens of one block. For streams of bigrams (EAGLE) the
// tokens are the pairs, flattened: a0, b0, a1, b1, ... extra is the
// canonical encoding of the block's extra keys and is empty for plain text.
func (h Hasher) Local(tokens []uint32, extra []byte) LocalHash {
	if len(extra) == 0 {
		if b, ok := tokenBytes(tokens); ok {
			return LocalHash(xxh3.HashSeed(b, h.seed))
		}
	}
	// The usual blocks (16, 32, 64 tokens) with their extra keys fit on the
	// stack; larger ones go through a heap buffer.
	var stack [512]byte
	n := 4*len(tokens) + len(extra)
	buf := stack[:0]
	if n > len(stack) {
		buf = make([]byte, 0, n)
	}
	buf = appendTokens(buf, tokens)
	buf = append(buf, extra...)
	return LocalHash(xxh3.HashSeed(buf, h.seed))
}

// Root is the sequence hash of a first block.
func (h Hasher) Root(scope ScopeKey, local LocalHash) SeqHash {
	if scope == 0 {
		return SeqHash(local)
	}
	return SeqHash(h.pair(uint64(scope), uint64(local)))
}

// Next is the sequence hash of the block that follows parent.
func (h Hasher) Next(parent SeqHash, local LocalHash) SeqHash {
	return SeqHash(h.pair(uint64(parent), uint64(local)))
}

// Scope hashes a scope. The fields are length-prefixed, so that no two
// scopes have one encoding.
func (h Hasher) Scope(s Scope) ScopeKey {
	if s.Tenant == DefaultTenant {
		s.Tenant = ""
	}
	if s == (Scope{}) {
		return 0
	}
	buf := make([]byte, 0, 12+len(s.Tenant)+len(s.LoRA)+len(s.Salt))
	for _, f := range [...]string{s.Tenant, s.LoRA, s.Salt} {
		buf = binary.LittleEndian.AppendUint32(buf, uint32(len(f)))
		buf = append(buf, f...)
	}
	k := ScopeKey(xxh3.HashSeed(buf, h.seed))
	if k == 0 { // 0 is taken by the default scope
		k = 1
	}
	return k
}

func (h Hasher) pair(a, b uint64) uint64 {
	var buf [16]byte
	binary.LittleEndian.PutUint64(buf[:8], a)
	binary.LittleEndian.PutUint64(buf[8:], b)
	return xxh3.HashSeed(buf[:], h.seed)
}

// tokenBytes returns the memory of tokens, which on a little-endian machine
// is what the convention hashes. ok is false on any other machine.
func tokenBytes(tokens []uint32) (b []byte, ok bool) {
	one := uint16(1)
	if *(*byte)(unsafe.Pointer(&one)) != 1 {
		return nil, false
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(tokens))), 4*len(tokens)), true
}

func appendTokens(buf []byte, tokens []uint32) []byte {
	for _, t := range tokens {
		buf = binary.LittleEndian.AppendUint32(buf, t)
	}
	return buf
}
