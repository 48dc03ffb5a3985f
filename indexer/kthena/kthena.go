// Package kthena reads what the sidecars of kthena write to Redis about the
// blocks of their engines, so that a fleet which has them gets answers before
// its engines are followed directly. It only reads.
//
// There is one hash a block:
//
//	matrix:kv:block:MODEL@HASH    POD.NAMESPACE -> SECONDS or SECONDS|MEDIUM
//
// The last @ separates the hash, for models' names may contain one. SECONDS is
// the Unix time of the last report, MEDIUM the engine's name of the tier.
// (kthena's docs/proposal/kvcache-aware-plugin-design.md describes it.)
//
// # What a match is worth
//
// HASH is of a block's own tokens, not of the prefix that ends with it: a pod
// that holds equal blocks of other prompts seems to hold these ("flat"). Nor is
// it known whether the engine still runs, has been reset, or which adapter or
// salt the blocks are of. So such a match is approximate, and may be too high;
// whoever shows it must say so.
package kthena

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

const keyPrefix = "matrix:kv:block:"

// FlatHash returns kthena's hash of one block: the first 8 bytes, big-endian, of
// the SHA-256 of its token ids as big-endian uint32, with the top bit cleared.
func FlatHash(tokens []uint32) uint64 {
	var stack [512]byte // 128 tokens, kthena's default
	buf := stack[:0]
	if n := 4 * len(tokens); n > len(stack) {
		buf = make([]byte, 0, n)
	}
	for _, t := range tokens {
		buf = binary.BigEndian.AppendUint32(buf, t)
	}
	sum := sha256.Sum256(buf)
	return binary.BigEndian.Uint64(sum[:]) & math.MaxInt64
}

// FlatHashes returns the hashes of the full blocks of a prompt. A blockSize
// below 1 has none.
func FlatHashes(tokens []uint32, blockSize int) []uint64 {
	if blockSize < 1 {
		return nil
	}
	hashes := make([]uint64, 0, len(tokens)/blockSize)
	for ; len(tokens) >= blockSize; tokens = tokens[blockSize:] {
		hashes = append(hashes, FlatHash(tokens[:blockSize]))
	}
	return hashes
}

// Key returns the Redis key of a block.
func Key(model string, hash uint64) string {
	return keyPrefix + model + "@" + strconv.FormatUint(hash, 10)
}

// ParseKey is the inverse of Key; ok is false for keys that are no block's.
func ParseKey(key string) (model string, hash uint64, ok bool) {
	rest, ok := strings.CutPrefix(key, keyPrefix)
	at := strings.LastIndexByte(rest, '@')
	if !ok || at < 1 {
		return "", 0, false
	}
	hash, err := strconv.ParseUint(rest[at+1:], 10, 64)
	if err != nil || strconv.FormatUint(hash, 10) != rest[at+1:] {
		return "", 0, false
	}
	return rest[:at], hash, true
}

// ParsePod splits the name of a pod: POD.NAMESPACE, perhaps with a domain after
// it. Without a dot there is no namespace.
func ParsePod(field string) (pod, namespace string) {
	pod, rest, _ := strings.Cut(field, ".")
	namespace, _, _ = strings.Cut(rest, ".")
	return pod, namespace
}

// ParseValue reads what is stored about one pod's block: when it was last
// reported, and the engine's name of the tier, "" if it is not told.
func ParseValue(value string) (reported time.Time, medium string, err error) {
	text, medium, _ := strings.Cut(value, "|")
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || !(seconds >= 0 && seconds < 1<<40) {
		return time.Time{}, "", fmt.Errorf("cannot read %.40q: it is not SECONDS or SECONDS|MEDIUM", value)
	}
	whole, fraction := math.Modf(seconds)
	return time.Unix(int64(whole), int64(fraction*1e9)), medium, nil
}
