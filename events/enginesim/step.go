package enginesim

import "encoding/json/jsontext"

// Step is one thing that happened in a recording: a Publish, a Restart, an Ask
// or a Marker.
type Step interface {
	// Time is when it happened, in seconds since 1970.
	Time() float64
}

// Publish is a message that the recording's subscriber received.
type Publish struct {
	At      float64
	Pod     string // the stream's name in the recording
	Topic   string
	Seq     uint64
	Payload []byte
}

// Restart is the end of one process of a pod and the begin of the next: its
// sequence numbers start again. What the process cached is gone from here on,
// though nothing on the wire says so but the lost connection.
type Restart struct {
	At  float64
	Pod string
}

// Ask is a line of the request log that was answered by an engine, good or
// bad. Most are prompts; Endpoint tells others, such as /reset_prefix_cache.
type Ask struct {
	At       float64 // when it was sent
	Finished float64 // when the answer was complete, 0 if unknown
	ID       string
	Scenario string
	Endpoint string // "" in recordings that were driven by hand
	Status   int    // HTTP status, 0 where there was none

	// Pod is the name in the log. Instance and Rank are those of its stream;
	// Rank is -1 where the log does not know which rank answered.
	Pod      string
	Instance string
	Rank     int

	// Body is the request as it was sent; {} where there was none.
	Body jsontext.Value
	// PromptTokens is the prompt; nil where it is unknown or where the request
	// had several, which Prompts has.
	PromptTokens []uint32
	Prompts      [][]uint32
	// Outputs are the generated tokens of each choice.
	Outputs [][]uint32

	// CachedTokens is what the engine said it had cached of the prompt; valid
	// if HasCached. In SGLang recordings it is the match of the whole list, and
	// CachedTokensScheduler that of all tokens but the last, which a response
	// would show. In others the two are equal.
	CachedTokens          int
	CachedTokensScheduler int
	HasCached             bool

	ExtraKey string // SGLang's namespace of the request, "" if none
	Salt     string // cache_salt of the request, "" if none

	// Line is the whole line, for fields that are not above.
	Line jsontext.Value
}

// Marker is any other line of the request log: the begin of a scenario, an
// operation on the cache, the stop of an engine.
type Marker struct {
	At   float64
	Name string // the marker's text, or the operation
	Pod  string // "" if it is about none
	Line jsontext.Value
}

// Time implements Step.
func (p Publish) Time() float64 { return p.At }

// Time implements Step.
func (r Restart) Time() float64 { return r.At }

// Time implements Step.
func (a Ask) Time() float64 { return a.At }

// Time implements Step.
func (m Marker) Time() float64 { return m.At }
