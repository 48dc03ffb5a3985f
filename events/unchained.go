package events

import (
	"math/bits"

	"github.com/kvindex/kvindex/indexer"
)

// pythonTupleHash is CPython's hash of a tuple of small integers (3.8 and
// later: xxHash of the items' hashes, which are the integers themselves).
//
// SGLang up to 0.5.3 names a page by hash(tuple(page)): equal pages anywhere
// have equal names, so that a name tells nothing about what came before. That
// the hash is a function of the page alone gives such an engine away with its
// first block.
func pythonTupleHash(items []uint32) indexer.EngineHash {
	const (
		prime1 = 11400714785074694791
		prime2 = 14029467366897019727
		prime5 = 2870177450012600261
	)
	acc := uint64(prime5)
	for _, x := range items {
		acc += uint64(x) * prime2
		acc = bits.RotateLeft64(acc, 31)
		acc *= prime1
	}
	acc += uint64(len(items)) ^ (prime5 ^ 3527539)
	if acc == 1<<64-1 { // -1 is an error in CPython
		acc = 1546275796
	}
	return indexer.EngineHash(acc)
}
