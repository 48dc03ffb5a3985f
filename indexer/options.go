package indexer

import "fmt"

// DefaultMaxOrphanBlocks bounds what one holder parks when Options names no
// bound.
const DefaultMaxOrphanBlocks = 1 << 16

// DuplicatePolicy says what a second store of a block means that the same
// stream already holds in the same tier.
type DuplicatePolicy uint8

const (
	// Refcount counts copies: engines keep several physical copies of a block
	// and announce each store and each removal. The block is gone when as many
	// removals as stores were applied. The count saturates at 65,535.
	Refcount DuplicatePolicy = iota
	// Set ignores further stores, so that one removal removes. It is for fleets
	// that announce cache hits as stores, without removals that match them.
	Set
)

// String returns the policy's name as the configuration spells it.
func (p DuplicatePolicy) String() string {
	switch p {
	case Refcount:
		return "refcount"
	case Set:
		return "set"
	}
	return "unknown"
}

// Options are the settings of an Index. The zero value is useful.
type Options struct {
	// Seed of the hashes; 0 means DefaultSeed. Clients that send hashes must
	// use the same one. A secret seed keeps hostile tenants from crafting
	// collisions.
	Seed uint64

	// MaxOrphanBlocks bounds, for each holder, how many blocks wait for a
	// parent that is not known yet; 0 means DefaultMaxOrphanBlocks. What comes
	// beyond it is dropped and counted. A parked block takes about 150 bytes.
	MaxOrphanBlocks int

	// Bounds on what the index keeps, in all and for each model; 0 means none.
	// Blocks are counted once, however many streams hold them. Bytes are those of
	// TableStats.Bytes. Where a bound is reached, blocks that nobody holds yet are
	// not admitted (StoreResult.Refused) until removals make room; everything
	// else goes on, and answers stay true: what was not admitted is a hole. Memory
	// that removals need is never refused, so that Bytes may come to lie a little
	// above its bound.
	MaxBlocks, MaxModelBlocks int
	MaxBytes, MaxModelBytes   int64

	// DuplicatePolicy is Refcount unless set.
	DuplicatePolicy DuplicatePolicy
}

// Validate reports the first setting that cannot be used.
func (o Options) Validate() error {
	if o.MaxOrphanBlocks < 0 {
		return fmt.Errorf("cannot park %d orphan blocks: the bound must not be negative", o.MaxOrphanBlocks)
	}
	if o.MaxBlocks < 0 || o.MaxModelBlocks < 0 || o.MaxBytes < 0 || o.MaxModelBytes < 0 {
		return fmt.Errorf("cannot keep %d blocks (%d a model) in %d bytes (%d a model): bounds must not be negative",
			o.MaxBlocks, o.MaxModelBlocks, o.MaxBytes, o.MaxModelBytes)
	}
	if o.DuplicatePolicy > Set {
		return fmt.Errorf("cannot use duplicate policy %d: it must be refcount or set", o.DuplicatePolicy)
	}
	return nil
}

// withDefaults fills in what o leaves open.
func (o Options) withDefaults() Options {
	if o.Seed == 0 {
		o.Seed = DefaultSeed
	}
	if o.MaxOrphanBlocks == 0 {
		o.MaxOrphanBlocks = DefaultMaxOrphanBlocks
	}
	return o
}
