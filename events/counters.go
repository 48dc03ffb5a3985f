package events

import "maps"

// Counters counts what a stream has gone through since it was first followed.
// Nothing is reset by restarts of the engine.
type Counters struct {
	Batches  map[string]uint64            // by result: applied, poison and the reasons of drops
	Events   [AllBlocksCleared + 1]uint64 // applied events by Kind
	Skips    map[SkipReason]uint64        // events left out, by reason
	Lost     uint64                       // batches lost for good
	Replays  uint64                       // replays asked for
	Connects uint64                       // times that the transport came up
	Restarts map[string]uint64            // incarnations ended, by how it was noticed
	Frames   map[FrameReason]uint64       // messages that were no batch, by reason
	Orphans  uint64                       // blocks parked because their parent is unknown
	Refused  uint64                       // blocks not admitted because the index is full
	Unknown  uint64                       // removed blocks that were not known
}

// Results of batches beside the reasons of drops.
const (
	resultApplied = "applied"
	resultPoison  = "poison"
)

func newCounters() Counters {
	return Counters{
		Batches:  map[string]uint64{},
		Skips:    map[SkipReason]uint64{},
		Restarts: map[string]uint64{},
		Frames:   map[FrameReason]uint64{},
	}
}

// clone returns a copy that shares nothing with c.
func (c *Counters) clone() Counters {
	d := *c
	d.Batches = maps.Clone(c.Batches)
	d.Skips = maps.Clone(c.Skips)
	d.Restarts = maps.Clone(c.Restarts)
	d.Frames = maps.Clone(c.Frames)
	return d
}
