package enginesim

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/kvindex/kvindex/indexer"
)

// HashMode says how an engine hashes blocks and in which form events show the
// hash.
type HashMode uint8

const (
	// HashUint64 is vLLM's sha256_cbor with integer hashes: the last 8 bytes
	// of the digest, big-endian. These are vLLM's own values; with a LoRA they
	// depend on where its adapter lies, here in /adapters.
	HashUint64 HashMode = iota
	// HashBytes is the same digest as 32 raw bytes.
	HashBytes
	// HashSGLang is SGLang's chain over little-endian token ids: the first 8
	// bytes of the digest as a signed integer, about half of them negative.
	HashSGLang
)

// String returns the mode's name.
func (m HashMode) String() string {
	switch m {
	case HashUint64:
		return "uint64"
	case HashBytes:
		return "bytes"
	case HashSGLang:
		return "sglang"
	}
	return "unknown"
}

// DefaultHashSeed is the seed of an engine that was given none (vLLM since
// August 2026): all such engines share one hash space. It plays the part of
// PYTHONHASHSEED and is a text there too.
const DefaultHashSeed = "vllm-none-hash"

type digest [sha256.Size]byte

// prefix is one block's worth of tokens at one place: behind everything that
// came before it, in one scope. Physical blocks that hold the same prefix have
// equal ids. Immutable.
type prefix struct {
	parent *prefix // nil at token 0
	depth  int     // blocks before this one
	tokens []uint32
	scope  *scope

	chain digest // what the next block's digest is computed from
	id    digest // identity in the cache
	hash  Hash   // as events show it
}

// scope is a LoRA adapter and a salt, and what hashing derives from them.
type scope struct {
	lora, salt string
	loraID     int
	root       digest // parent of first blocks
	rooted     bool   // SGLang hashes first blocks without a parent unless salted
	namespace  *digest
}

// hasher computes engine hashes. A value for one hash space.
type hasher struct {
	mode     HashMode
	seed     digest // vLLM's NONE_HASH
	untagged bool   // PoolOptions.UntaggedKeys
}

func newHasher(mode HashMode, seed string, untagged bool) hasher {
	if seed == "" {
		seed = DefaultHashSeed
	}
	return hasher{mode: mode, seed: sha256.Sum256(appendCBORText(nil, seed)), untagged: untagged}
}

func (h hasher) scope(lora, salt string, loraID int) *scope {
	s := &scope{lora: lora, salt: salt, loraID: loraID, root: h.seed, rooted: true}
	if h.mode != HashSGLang {
		return s
	}
	if s.rooted = salt != ""; s.rooted {
		s.root = sha256.Sum256([]byte("sglang-cache-salt-v1\x00" + salt))
	}
	if lora != "" {
		ns := sglangNamespace(lora, salt)
		s.namespace = &ns
	}
	return s
}

// next returns the prefix that tokens make behind parent. It keeps tokens.
func (h hasher) next(s *scope, parent *prefix, tokens []uint32) *prefix {
	p := &prefix{parent: parent, tokens: tokens, scope: s}
	from := s.root
	if parent != nil {
		p.depth = parent.depth + 1
		from = parent.chain
	}
	if h.mode == HashSGLang {
		h.nextSGLang(p, from, parent != nil || s.rooted)
		return p
	}
	buf := make([]byte, 0, 128+5*len(tokens)+2*len(s.lora)+len(s.salt))
	buf = appendCBORBlock(buf, from, tokens)
	p.chain = sha256.Sum256(h.appendExtraKeys(buf, s, p.depth))
	p.id = p.chain
	if h.mode == HashBytes {
		p.hash = BytesHash(p.id[:])
	} else {
		p.hash = UintHash(binary.BigEndian.Uint64(p.id[len(p.id)-8:]))
	}
	return p
}

func (h hasher) nextSGLang(p *prefix, from digest, chained bool) {
	buf := make([]byte, 0, len(from)+4*len(p.tokens))
	if chained {
		buf = append(buf, from[:]...)
	}
	for _, t := range p.tokens {
		buf = binary.LittleEndian.AppendUint32(buf, t)
	}
	p.chain = sha256.Sum256(buf)
	p.id = p.chain
	if ns := p.scope.namespace; ns != nil {
		p.id = sha256.Sum256(append(ns[:len(ns):len(ns)], p.chain[:8]...))
	}
	p.hash = IntHash(int64(binary.BigEndian.Uint64(p.id[:8])))
}

// extraKeys are those of the block at depth, as events show them: the name of
// the adapter in every block, the salt in the first.
func (s *scope) extraKeys(depth int) []ExtraKey {
	var keys []ExtraKey
	if s.lora != "" {
		keys = append(keys, ExtraKey{Text: s.lora})
	}
	if s.salt != "" && depth == 0 {
		keys = append(keys, ExtraKey{Text: s.salt})
	}
	return keys
}

// sglangNamespace is what SGLang mixes into the hashes of an adapter's blocks.
func sglangNamespace(extraKey, salt string) digest {
	buf := []byte("sglang-kv-event-namespace-v1")
	for _, part := range [...]string{extraKey, salt} {
		if part == "" {
			buf = append(buf, 0)
			continue
		}
		buf = binary.LittleEndian.AppendUint64(append(buf, 1), uint64(len(part)))
		buf = append(buf, part...)
	}
	return sha256.Sum256(buf)
}

// sequenceHash is the index's key of p. memo holds what is known already and
// gains p and its ancestors.
func (p *prefix) sequenceHash(h indexer.Hasher, tenant string, memo map[*prefix]indexer.SeqHash) indexer.SeqHash {
	var todo []*prefix
	for q := p; q != nil; q = q.parent {
		if _, ok := memo[q]; ok {
			break
		}
		todo = append(todo, q)
	}
	for i := len(todo) - 1; i >= 0; i-- {
		q := todo[i]
		local := h.Local(q.tokens, nil)
		if q.parent != nil {
			memo[q] = h.Next(memo[q.parent], local)
			continue
		}
		memo[q] = h.Root(h.Scope(indexer.Scope{Tenant: tenant, LoRA: q.scope.lora, Salt: q.scope.salt}), local)
	}
	return memo[p]
}

// appendCBORBlock is the canonical CBOR of (parent, tokens, extra keys), which
// is what vLLM hashes, up to the extra keys.
func appendCBORBlock(b []byte, parent digest, tokens []uint32) []byte {
	b = append(b, 0x83)
	b = append(appendCBORHead(b, 2, len(parent)), parent[:]...)
	b = appendCBORHead(b, 4, len(tokens))
	for _, t := range tokens {
		b = appendCBORHead(b, 0, int(t))
	}
	return b
}

// appendExtraKeys is the last part of a block's CBOR. Without tags, an adapter
// and a salt of the same name are the same.
func (h hasher) appendExtraKeys(b []byte, s *scope, depth int) []byte {
	keys := s.extraKeys(depth)
	if keys == nil {
		return append(b, 0xf6)
	}
	b = appendCBORHead(b, 4, len(keys))
	for i, k := range keys {
		switch {
		case h.untagged:
			b = appendCBORText(b, k.Text)
		case i == 0 && s.lora != "":
			b = appendCBORText(appendCBORHead(b, 4, 3), "lora")
			b = appendCBORText(appendCBORText(b, k.Text), "/adapters/"+k.Text)
		default:
			b = appendCBORText(appendCBORText(appendCBORHead(b, 4, 2), "cache_salt"), k.Text)
		}
	}
	return b
}

func appendCBORText(b []byte, s string) []byte {
	return append(appendCBORHead(b, 3, len(s)), s...)
}

func appendCBORHead(b []byte, major byte, n int) []byte {
	major <<= 5
	switch {
	case n < 24:
		return append(b, major|byte(n))
	case n < 1<<8:
		return append(b, major|24, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, major|25), uint16(n))
	case n < 1<<32:
		return binary.BigEndian.AppendUint32(append(b, major|26), uint32(n))
	}
	panic(fmt.Sprintf("enginesim: %d is out of range for a token id or a length", n))
}
