package events

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kvindex/kvindex/indexer"
)

// StreamSpec says where the events of one (instance, dp_rank) are.
type StreamSpec struct {
	Rank           int
	Endpoint       string // of the engine's PUB socket
	ReplayEndpoint string // of its replay ROUTER; "" if it has none
	Topic          string // subscription prefix; "" for all
}

// Transports of a stream, by the scheme of its endpoint.
const (
	TransportZMQ  = "zmq"  // tcp:// and ipc://: the engine's own sockets
	TransportNATS = "nats" // nats://SUBJECT: a log that a relay writes
)

// Transport says how the stream comes: one of the constants.
func (s StreamSpec) Transport() string {
	if strings.HasPrefix(s.Endpoint, "nats://") {
		return TransportNATS
	}
	return TransportZMQ
}

// SessionOptions configure a Session.
type SessionOptions struct {
	Index     *indexer.Index // nil: batches are put in order and given to Tap, undecoded
	Instance  string
	Model     string
	Tenant    string // scope of every block of the instance
	LoRA      string // scope of blocks that name no adapter
	Salt      string // scope of blocks that carry no salt
	BlockSize int    // 0: whatever the engine announces
	Stream    StreamSpec

	// GPUClearOnly makes AllBlocksCleared drop only what is on the GPU, for
	// engines whose offload tiers survive a reset (vllm #57296).
	GPUClearOnly bool
	// MaxPending bounds the bytes of live batches that wait for a replay;
	// 0 means 64 MiB.
	MaxPending int
	Limits     Limits
	Logger     *slog.Logger // nil: discard
	// Tap, if not nil, is called with every batch right before it is applied,
	// in order; a recorder, for example. topic is "" for replayed batches. The
	// payload may be kept but not written to.
	Tap func(topic string, seq uint64, payload []byte)
	// Restarted, if not nil, is called when an incarnation has ended, before
	// the first batch of the next one reaches Tap; why is one of the reasons in
	// Counters.Restarts. Tap and it must not call the session.
	Restarted func(why string)
	// SuspectTTL is how long what is suspect goes on to answer; 0 means
	// DefaultSuspectTTL. Grace is how long a transport may be down before what
	// is held becomes suspect; 0 means DefaultGrace.
	SuspectTTL, Grace time.Duration
	// Restore, if not nil, is what a snapshot tells of the stream: it answers,
	// as suspect, and the first contact proves it or drops it.
	Restore *Restore
	// changes, if not nil, is raised with whatever a snapshot would hold.
	changes *atomic.Uint64
	// Resume, if not nil, is where the stream was followed to before. The first
	// contact proves it or starts a new incarnation. It needs a replay endpoint
	// to prove anything, and is ignored without one.
	Resume *Resume
}

// Resume is the position of a stream: the batch that was applied last.
type Resume struct {
	Seq uint64
	CRC uint32 // Checksum of its payload
}
