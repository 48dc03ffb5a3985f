package indexer

// Tier is where an instance keeps a block. The wire calls it medium.
type Tier uint8

// The tiers, nearest first.
const (
	GPU  Tier = iota // the accelerator's memory
	CPU              // the host's memory
	Disk             // files, of the host or attached to it

	NumTiers = 3 // how many there are; tiers are 0 to NumTiers-1
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
