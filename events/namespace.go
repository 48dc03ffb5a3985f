package events

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"

	"github.com/kvindex/kvindex/indexer"
)

// namespaces finds prompts that an SGLang engine keeps apart by an extra_key
// that its events do not name. With "format":"dynamo" in its KV-events
// configuration the namespace is part of the hashes: a first page whose hash
// is not the plain one of its tokens is of some namespace, and no plain prompt
// may meet it. (In the default format the hashes are the plain ones and nothing
// can be told; see the README's limits.)
type namespaces struct {
	plain  bool // a plain hash of SGLang has been seen
	misses int  // first pages with another hash before that
}

// maxMisses is after how many first pages without a plain hash a stream is
// taken not to be SGLang's, and no more are hashed.
const maxMisses = 16

// of returns the name of the hidden namespace that the event's prompt is in;
// "" for none.
func (n *namespaces) of(e *Event) string {
	if e.HasParent || n.misses >= maxMisses {
		return ""
	}
	page := e.Tokens[:len(e.Tokens)/len(e.Hashes)]
	if e.Hashes[0] == sglangFirstHash(page) {
		n.plain = true
		return ""
	}
	if !n.plain {
		n.misses++
		return ""
	}
	// Prompts of one namespace that begin with the same page share it.
	return "\x00namespace:" + strconv.FormatUint(uint64(e.Hashes[0]), 16)
}

// sglangFirstHash is the hash of a first page in SGLang 0.5.8 and later: the
// first 8 bytes of SHA-256 over its tokens (with EAGLE: pairs, flattened).
func sglangFirstHash(page []uint32) indexer.EngineHash {
	h := sha256.New()
	var buf [4]byte
	for _, t := range page {
		binary.LittleEndian.PutUint32(buf[:], t)
		h.Write(buf[:])
	}
	var sum [sha256.Size]byte
	return indexer.EngineHash(binary.BigEndian.Uint64(h.Sum(sum[:0])))
}
