package events

import "fmt"

// State says how far an answer about a stream can be trusted.
type State uint8

// States of a stream. An instance has the worst state of its streams.
const (
	// Connecting: the engine has not been reached yet.
	Connecting State = iota
	// Live: connected, and every batch since the engine's start, since its
	// last clear or since a verified position has been applied.
	Live
	// Replaying: connected; missed batches are being fetched.
	Replaying
	// Degraded: connected, but something is missing for good; the Reason says
	// what. What is answered was reported by the engine, but is not complete.
	Degraded
	// Disconnected: the transport is down; the answer is from before.
	Disconnected
	// Gone: no longer followed.
	Gone
)

var stateNames = [...]string{"connecting", "live", "replaying", "degraded", "disconnected", "gone"}

// String returns the state as the API spells it.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// severity orders states from best to worst for an instance's summary.
func (s State) severity() int {
	return [...]int{Connecting: 4, Live: 0, Replaying: 1, Degraded: 2, Disconnected: 3, Gone: 5}[s]
}

// Causes of State Degraded; a Reason begins with one of them.
const (
	CauseHistory    = "history"          // batches before the first one seen are unknown, or some since: what is known is true
	CauseGap        = "gap"              // batches were lost and no replay could bring them: what was held before is suspect
	CausePoison     = "poison"           // batches that could not be decoded: likewise
	CauseEvents     = "bad_events"       // events of a known kind that could not be decoded or applied
	CauseCapacity   = "capacity"         // the index is full: blocks were not admitted, and the engine still has them
	CauseBlockSize  = "block_size"       // the engine's blocks are not of the registered size: refused
	CauseUnchained  = "unchained_hashes" // engine hashes name no prefix (SGLang before 0.5.8)
	CauseRestored   = "restored"         // from a snapshot, and the engine has not yet proved to be the one that it tells of
	CauseUnverified = "unverified"       // nothing proves that the engine did not restart when the connection broke, or that no batch is missing: the next one decides
)
