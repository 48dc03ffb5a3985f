package api

import (
	"context"
	"encoding/json/jsontext"
	"fmt"
	"strings"
	"time"
)

// Fleet is what the API needs to know of whatever follows the engines: which
// instances exist, how well each is followed, and the few commands that an
// operator may give. The API calls it from many goroutines at once.
//
// Instances, Find and the Health function of an Instance lie on the path of
// every query: they must not block, take a contended lock, or allocate.
type Fleet interface {
	// Register starts following an instance, or one more rank of it. The
	// same registration again changes nothing and is no error. Errors that
	// the API explains to the caller: *ConflictError, *IncompleteError,
	// *UnreachableError, *InvalidError, *NotYetError; any other is a fault of
	// the server.
	Register(ctx context.Context, r Registration) (Outcome, error)

	// Unregister stops following an instance, or one rank of it, and retires
	// what it held. It reports whether there was anything to stop.
	Unregister(ctx context.Context, u Unregistration) (bool, error)

	// Instances returns all instances, sorted by ID. The slice is shared:
	// callers only read it.
	Instances() []*Instance

	// Find returns the instance that a caller means: by instance id,
	// "pod.namespace", "namespace/pod", IP, IP:port, URL, or a configured
	// alias.
	Find(alias string) (*Instance, bool)

	// Detail returns the state and the counters of the instance with this
	// ID. It may be slower than the other methods.
	Detail(id string) (InstanceDetail, bool)

	// Clear forgets every block that the instance holds, Resync throws its
	// state away and follows its streams anew. Both report whether the
	// instance exists.
	Clear(ctx context.Context, id string) (bool, error)
	Resync(ctx context.Context, id string) (bool, error)
}

// State says how well an instance or a stream is followed.
type State string

// The states of a stream and of an instance (the worst of its streams).
const (
	// Connecting: registered, and never yet in contact with the engine. A
	// model of which every stream is connecting answers "cold".
	Connecting State = "connecting"
	// Live: every event up to now has been applied; answers are exact.
	Live State = "live"
	// Replaying: missed events are being fetched from the engine.
	Replaying State = "replaying"
	// Degraded: something is missing for good or not yet proved; the reason
	// says what (gap, history, restored, capacity, ...).
	Degraded State = "degraded"
	// Disconnected: the connection is lost; the last known state answers for
	// a grace time.
	Disconnected State = "disconnected"
	// Gone: the engine is given up; nothing of it answers any more.
	Gone State = "gone"
	// Unknown: no such instance is followed. Only answers use it, for named
	// candidates that no instance matches.
	Unknown State = "unknown"
)

// states are the states that a Fleet reports, in the order of metrics.
func states() []State {
	return []State{Connecting, Live, Replaying, Degraded, Disconnected, Gone}
}

// Age is the time since something last happened. In JSON it is a whole number
// of milliseconds, or null where it never happened.
type Age struct {
	Since time.Duration
	Known bool // false: it never happened
}

// MarshalJSONTo writes the age in milliseconds, or null.
func (a Age) MarshalJSONTo(enc *jsontext.Encoder) error {
	if !a.Known {
		return enc.WriteToken(jsontext.Null)
	}
	return enc.WriteToken(jsontext.Int(a.Since.Milliseconds()))
}

// Health is what a query says of an instance beside its match.
type Health struct {
	State     State
	Reason    string // why it is not live; "" when it is
	LastEvent Age    // since the newest event of any of its streams was applied
	BlockSize int    // tokens a block, 0 until it is known
}

// Instance is one followed model server, as queries see it. It is immutable:
// a change of any field is a new Instance in a new slice.
type Instance struct {
	ID        string
	NumericID bool   // registered with a JSON number as its id: /workers gives it back as one
	Model     string // the index's name of the model
	Tenant    string // "" is the default tenant
	LoRA      string // the adapter it was registered with, if any
	Aliases   []string

	// Health reads a few atomics. It is never nil and may be called by any
	// goroutine.
	Health func() Health
}

// Registration asks to follow an instance. The zero value of a field means
// that the caller said nothing of it.
type Registration struct {
	InstanceID     string
	NumericID      bool // InstanceID was a JSON number
	Model          string
	URL            string // the engine's HTTP address, which may tell all the rest
	Endpoint       string // where it publishes events, tcp://host:port
	ReplayEndpoint string // where it replays them
	Type           string // the engine's kind as the caller spells it: vLLM, SGLang, ...
	Tenant         string
	LoRA           string
	Salt           string // additional_salt: separates the instance's blocks as a cache salt does
	BlockSize      int
	DPRank         *int // nil: not said (an engine's own description may say; else 0)
	Aliases        []string
}

// Unregistration asks to stop following an instance.
type Unregistration struct {
	InstanceID string
	Model      string // "" matches any
	Tenant     string // "" matches any
	DPRank     *int   // nil: all ranks
}

// Outcome is what a registration came to.
type Outcome struct {
	ID      string // the instance's id: the caller's, or what the engine said of itself
	Model   string // the model it serves
	Created bool   // false: it was registered like this already
}

// ConflictError says that a registration contradicts an earlier one.
type ConflictError struct {
	Field      string // the request field, such as "block_size"
	Have, Want string // what is registered, what was asked for
}

// Error states both values.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s is registered as %s and cannot become %s: unregister it first", e.Field, e.Have, e.Want)
}

// IncompleteError says that a registration lacks fields that nothing else
// supplied.
type IncompleteError struct {
	Missing []string // names of request fields
	Detail  string   // what was tried to find them, if anything
}

// Error names what is missing.
func (e *IncompleteError) Error() string {
	s := "the registration lacks " + strings.Join(e.Missing, ", ")
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// UnreachableError says that an engine could not be asked to describe itself.
type UnreachableError struct {
	URL   string
	Tried []string // one line for each attempt: what was asked, what came back
}

// Error lists what was tried.
func (e *UnreachableError) Error() string {
	s := fmt.Sprintf("%s does not describe itself", e.URL)
	if len(e.Tried) > 0 {
		s += ": " + strings.Join(e.Tried, "; ")
	}
	return s + ". Register it by endpoint instead"
}

// NotYetError says that the fleet cannot be changed now, and when to try again.
type NotYetError struct {
	Reason     string
	RetryAfter time.Duration
}

// Error is the reason.
func (e *NotYetError) Error() string { return e.Reason }

// InvalidError says that a field of a registration cannot be meant as it
// stands, such as an endpoint that nothing can connect to.
type InvalidError struct {
	Field  string
	Reason string // a sentence with the value
}

// Error is the reason.
func (e *InvalidError) Error() string { return e.Reason }

// TierCounts counts blocks by tier.
type TierCounts struct {
	GPU  int `json:"gpu"`
	CPU  int `json:"cpu"`
	Disk int `json:"disk"`
}

// InstanceDetail is all that is known of an instance; it is also the JSON of
// GET /v1/instances/{id}.
type InstanceDetail struct {
	ID        string         `json:"id"`
	Model     string         `json:"model"`
	Tenant    string         `json:"tenant_id,omitzero"`
	LoRA      string         `json:"lora_name,omitzero"`
	BlockSize int            `json:"block_size"` // 0 until it is known
	State     State          `json:"state"`      // the worst of its streams
	Reason    string         `json:"reason,omitzero"`
	Hint      string         `json:"hint,omitzero"`   // what the operator might do about it
	Engine    string         `json:"engine,omitzero"` // its kind and version as far as known
	Source    string         `json:"source,omitzero"` // how it came to be followed: static, register, dns, ...
	URL       string         `json:"url,omitzero"`
	Aliases   []string       `json:"aliases"`
	Streams   []StreamDetail `json:"streams"` // by rank
}

// StreamDetail is the state and the counters of one stream. Counters start
// with the process and never fall.
type StreamDetail struct {
	DPRank         int     `json:"dp_rank"`
	Endpoint       string  `json:"endpoint"`
	ReplayEndpoint string  `json:"replay_endpoint,omitzero"`
	State          State   `json:"state"`
	Reason         string  `json:"reason,omitzero"`
	Hint           string  `json:"hint,omitzero"`
	BlockSize      int     `json:"block_size"` // 0 until an event told it
	LastSeq        *uint64 `json:"last_seq"`   // nil before the first batch
	LastEvent      Age     `json:"last_event_age_ms"`
	Lag            Age     `json:"lag_ms"` // from the engine's timestamp of the last batch to its application

	Batches       uint64            `json:"batches"`         // received, whatever became of them
	BatchResults  map[string]uint64 `json:"batch_results"`   // applied, duplicate, poison, ...: few, fixed names
	Events        map[string]uint64 `json:"events"`          // by type: stored, removed, cleared, ...
	Skips         map[string]uint64 `json:"skipped"`         // events that could not be applied, by reason
	LostBatches   uint64            `json:"lost_batches"`    // known to have existed, never received
	Replays       uint64            `json:"replays"`         // replays asked for
	Reconnects    uint64            `json:"reconnects"`      // connections after the first
	Incarnations  uint64            `json:"incarnations"`    // engine processes seen behind this stream
	SuspectBlocks int               `json:"suspect_blocks"`  // held, and not known to be so still
	Pending       int               `json:"pending_batches"` // received, waiting for an earlier one
	Blocks        TierCounts        `json:"blocks"`
}
