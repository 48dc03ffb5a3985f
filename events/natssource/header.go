package natssource

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"uuid"

	"github.com/nats-io/nats.go"

	"github.com/kvindex/kvindex/events"
)

// Headers of messages. Numbers are decimal.
const (
	headerBoot   = "Kv-Boot"   // UUID of the engine's process; ids sort by age
	headerSeq    = "Kv-Seq"    // the engine's number of the batch; absent: the news that the process has begun
	headerSchema = "Kv-Schema" // version of these headers
	headerLast   = "Kv-Last"   // with the news: seq and CRC-32C of the batch before it, SEQ-CRC

	headerFrom = "Kv-From" // of a request: the first batch that is wanted
	headerTo   = "Kv-To"   // ... and the first that is not; absent: all there are
	headerEnd  = "Kv-End"  // of the last answer to a request: done, more or gone
	headerNext = "Kv-Next" // seq of the batch that comes next

	headerState  = "Kv-State"  // of a status: the state of the relay's stream
	headerUp     = "Kv-Up"     // ... whether its engine is connected: true or false
	headerReason = "Kv-Reason" // ... and what is wrong
)

// Schema is the version of the headers that this package writes. Messages of
// another version are counted and left out.
const Schema = "1"

// Why a message cannot be read.
var (
	errSchema  = errors.New("the headers are of another version than " + Schema)
	errBoot    = errors.New("Kv-Boot is no UUID")
	errSeq     = errors.New("Kv-Seq is no sequence number")
	errLast    = errors.New("Kv-Last is no sequence number and CRC")
	errPayload = errors.New("a message without Kv-Seq has a payload")
	errRequest = errors.New("Kv-From or Kv-To is no sequence number")
	errEnd     = errors.New("Kv-End is none of done, more, gone")
	errStatus  = errors.New("Kv-Next or Kv-Up is missing or makes no sense")
)

// Batch is a message of the log or an answer of a relay.
type Batch struct {
	Boot    string
	Began   bool // no batch, but the news that the process has begun
	Seq     uint64
	Payload []byte
	Last    *Mark // with Began: the last batch of the process that went before; nil: none
}

// Mark names a batch and tells it from another of the same number.
type Mark struct {
	Seq uint64
	CRC uint32 // events.Checksum of its payload
}

// Msg is the message that carries b. The payload is not copied.
func (b Batch) Msg(subject string) *nats.Msg {
	m := &nats.Msg{Subject: subject, Data: b.Payload, Header: nats.Header{
		headerBoot: {b.Boot}, headerSchema: {Schema},
	}}
	switch {
	case !b.Began:
		m.Header[headerSeq] = []string{strconv.FormatUint(b.Seq, 10)}
	case b.Last != nil:
		m.Header[headerLast] = []string{strconv.FormatUint(b.Last.Seq, 10) + "-" + strconv.FormatUint(uint64(b.Last.CRC), 10)}
	}
	return m
}

// ParseBatch reads a message of the log. The payload is not copied.
func ParseBatch(h nats.Header, payload []byte) (Batch, error) {
	b := Batch{Payload: payload}
	var err error
	if b.Boot, err = parseBoot(h); err != nil {
		return Batch{}, err
	}
	text, given := get(h, headerSeq)
	if !given {
		if len(payload) > 0 {
			return Batch{}, errPayload
		}
		last, err := parseMark(h)
		return Batch{Boot: b.Boot, Began: true, Last: last}, err
	}
	if b.Seq, err = parseNumber(text); err != nil || b.Seq == events.EndSeq {
		return Batch{}, errSeq
	}
	return b, nil
}

func parseMark(h nats.Header) (*Mark, error) {
	text, given := get(h, headerLast)
	if !given {
		return nil, nil
	}
	seq, crc, _ := strings.Cut(text, "-")
	n, err := parseNumber(seq)
	sum, err2 := parseNumber(crc)
	if err != nil || err2 != nil || n == events.EndSeq || sum > math.MaxUint32 {
		return nil, errLast
	}
	return &Mark{n, uint32(sum)}, nil
}

// Request asks a relay for batches.
type Request struct {
	Boot     string
	From, To uint64 // To 0: all there are
}

// Msg is the message that carries r; the answers go to reply.
func (r Request) Msg(subject, reply string) *nats.Msg {
	m := &nats.Msg{Subject: subject, Reply: reply, Header: nats.Header{
		headerBoot: {r.Boot}, headerSchema: {Schema}, headerFrom: {strconv.FormatUint(r.From, 10)},
	}}
	if r.Boot == "" {
		delete(m.Header, headerBoot)
	}
	if r.To > 0 {
		m.Header[headerTo] = []string{strconv.FormatUint(r.To, 10)}
	}
	return m
}

// ParseRequest reads a request. A Source that knows no process yet sends no
// Kv-Boot.
func ParseRequest(h nats.Header) (Request, error) {
	var r Request
	var err error
	if _, given := get(h, headerBoot); given {
		if r.Boot, err = parseBoot(h); err != nil {
			return Request{}, err
		}
	} else if s, _ := get(h, headerSchema); s != Schema {
		return Request{}, errSchema
	}
	text, _ := get(h, headerFrom)
	if r.From, err = parseNumber(text); err != nil {
		return Request{}, errRequest
	}
	if text, given := get(h, headerTo); given {
		if r.To, err = parseNumber(text); err != nil {
			return Request{}, errRequest
		}
	}
	return r, nil
}

// Ends of an answer.
const (
	EndDone = "done" // there is no more
	EndMore = "more" // ask again, from Next on
	EndGone = "gone" // the process that was asked for is not the present one
)

// End is the last message of an answer.
type End struct {
	How  string
	Next uint64 // where to go on, with EndMore
}

// Msg is the message that carries e.
func (e End) Msg(subject string) *nats.Msg {
	return &nats.Msg{Subject: subject, Header: nats.Header{headerEnd: {e.How}, headerNext: {strconv.FormatUint(e.Next, 10)}}}
}

// ParseEnd reads the last message of an answer; ok is false for any other.
func ParseEnd(h nats.Header) (e End, ok bool, err error) {
	if e.How, ok = get(h, headerEnd); !ok {
		return End{}, false, nil
	}
	text, _ := get(h, headerNext)
	if e.Next, err = parseNumber(text); err != nil || e.How != EndDone && e.How != EndMore && e.How != EndGone {
		return End{}, true, errEnd
	}
	return e, true, nil
}

// Status is what a relay says of itself.
type Status struct {
	Boot   string
	Next   uint64 // seq of the batch that comes next
	State  string // of the relay's own stream, as events.State spells it
	Reason string
	Up     bool // the engine is connected, known to be the process Boot, and Next is where it is
}

// Msg is the message that carries s.
func (s Status) Msg(subject string) *nats.Msg {
	return &nats.Msg{Subject: subject, Header: nats.Header{
		headerBoot: {s.Boot}, headerSchema: {Schema}, headerNext: {strconv.FormatUint(s.Next, 10)},
		headerState: {s.State}, headerUp: {strconv.FormatBool(s.Up)}, headerReason: {strings.Join(strings.Fields(s.Reason), " ")},
	}}
}

// ParseStatus reads what a relay says.
func ParseStatus(h nats.Header) (Status, error) {
	var s Status
	var err error
	if s.Boot, err = parseBoot(h); err != nil {
		return Status{}, err
	}
	text, _ := get(h, headerNext)
	if s.Next, err = parseNumber(text); err != nil {
		return Status{}, errStatus
	}
	up, _ := get(h, headerUp)
	if up != "true" && up != "false" {
		return Status{}, errStatus
	}
	s.Up = up == "true"
	s.State, _ = get(h, headerState)
	s.Reason, _ = get(h, headerReason)
	return s, nil
}

func parseBoot(h nats.Header) (string, error) {
	if s, _ := get(h, headerSchema); s != Schema {
		return "", errSchema
	}
	text, _ := get(h, headerBoot)
	// Ids are compared as text, so only one spelling of each will do.
	if id, err := uuid.Parse(text); err != nil || id.String() != text {
		return "", errBoot
	}
	return text, nil
}

func parseNumber(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err == nil && strconv.FormatUint(n, 10) != text {
		err = fmt.Errorf("%q is not how a number is written", text)
	}
	return n, err
}

// get is Header.Get for names that are spelt as they are sent.
func get(h nats.Header, name string) (string, bool) {
	if v := h[name]; len(v) > 0 {
		return v[0], true
	}
	return "", false
}
