package load

import (
	"bufio"
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// TraceBlock is how many tokens of a prompt an id of a trace stands for.
const TraceBlock = 512

// TraceRequest is a request of a trace in the format that kvcache-ai/Mooncake
// published: its prompt as ids of pieces of TraceBlock tokens, of which the last
// may be a part. Equal ids mean equal prompts up to there.
type TraceRequest struct {
	Timestamp   int      `json:"timestamp"` // milliseconds
	InputLength int      `json:"input_length"`
	HashIDs     []uint64 `json:"hash_ids"`
}

//go:embed testdata/conversation.jsonl.gz
var sampleTrace []byte

// SampleTrace is the begin of a public trace of a chat service.
func SampleTrace() ([]TraceRequest, error) { return ReadTrace(bytes.NewReader(sampleTrace)) }

// ReadTrace reads a trace of JSON lines, compressed with gzip or not.
func ReadTrace(r io.Reader) ([]TraceRequest, error) {
	in := bufio.NewReader(r)
	if magic, err := in.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("cannot read the trace: %w", err)
		}
		in = bufio.NewReader(z)
	}
	var out []TraceRequest
	for dec := json.NewDecoder(in); ; {
		var t TraceRequest
		err := dec.Decode(&t)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read request %d of the trace: %w", len(out)+1, err)
		}
		if len(t.HashIDs) == 0 {
			return nil, fmt.Errorf("cannot use request %d of the trace: it has no hash_ids", len(out)+1)
		}
		out = append(out, t)
	}
	if len(out) == 0 {
		return nil, errors.New("cannot use the trace: it is empty")
	}
	return out, nil
}

// Tokens returns token ids of the prompt: an id always stands for the same.
func (t TraceRequest) Tokens() []uint32 {
	var out []uint32
	for _, id := range t.HashIDs {
		out = append(out, Tokens(id, TraceBlock)...)
	}
	if 0 < t.InputLength && t.InputLength < len(out) {
		out = out[:t.InputLength]
	}
	return out
}

// FromTrace makes the bodies of the requests of a trace. They are made at once,
// so that making them is not measured: 12,000 tokens take 80 KB as JSON.
func FromTrace(requests []TraceRequest, f Form, e Encoder) (Bodies, error) {
	var out Bodies
	for _, t := range requests {
		if f == Chat {
			out = append(out, ChatOf(e.Model, t.HashIDs))
			continue
		}
		b, err := e.Query(f, t.Tokens())
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}
