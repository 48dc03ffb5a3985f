package indexer

// Tier is where an instance keeps a block. The wire calls it medium.
type Tier uint8

// The tiers, nearest first.
const (
	GPU Tier = iota
	CPU
	Disk
	NumTiers = 3
)

// String returns the tier's name as the API spells it.
func (t Tier) String() string {
	switch t {
	case GPU:
		return "gpu"
	case CPU:
		return "cpu"
	case Disk:
		return "disk"
	}
	return "unknown"
}
