package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvindex/kvindex/events"
)

func newDecodeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "decode FILE...",
		Short: "Show what batches of events say, one JSON object a line",
		Long: `Decode the payload of a batch (msgpack, as a publisher sends it in the last
frame), or every batch of a recording (*.jsonl or *.jsonl.gz, as written by
kvindex record), to one JSON object a line:

  {"file","ok","ts","dp_rank","events":[...],"skipped":[{"index","reason"}],"error"}

ok is false if the whole batch is rejected; error says why. Events that this
version cannot use are listed under skipped. Hashes are decimal strings. "-"
is standard input. The exit status is 0 if every file could be read, whatever
it holds.

The output contains token ids, that is, prompts: look before you pass it on.`,
		Example: `  kvindex decode payload.msgpack
  kvindex decode pod-0.jsonl.gz | jq -c 'select(.ok | not)'`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out := bufio.NewWriter(cmd.OutOrStdout())
			enc := json.NewEncoder(out)
			enc.SetEscapeHTML(false)
			d := describer{dec: events.NewDecoder(events.Limits{}), enc: enc}
			var errs []error
			for _, name := range args {
				errs = append(errs, d.file(name, cmd.InOrStdin()))
			}
			return errors.Join(append(errs, out.Flush())...)
		},
	}
}

// describer prints batches.
type describer struct {
	dec *events.Decoder
	enc *json.Encoder
}

// maxInput bounds what is read of a payload file: a byte more than the decoder
// accepts is enough to say so.
const maxInput = 16<<20 + 1

func (d describer) file(name string, stdin io.Reader) error {
	in := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return fmt.Errorf("cannot decode: %w", err)
		}
		defer f.Close()
		in = f
	}
	if strings.HasSuffix(name, ".jsonl") || strings.HasSuffix(name, ".jsonl.gz") {
		return d.recording(name, in)
	}
	payload, err := io.ReadAll(io.LimitReader(in, maxInput))
	if err != nil {
		return fmt.Errorf("cannot decode %s: %w", name, err)
	}
	return d.enc.Encode(events.DescribePayload(d.dec, name, payload))
}

// recordedMessage is a line of a recording.
type recordedMessage struct {
	T       float64 `json:"t"`   // receive time, Unix seconds
	Pod     string  `json:"pod"` // instance
	Topic   string  `json:"topic"`
	Seq     uint64  `json:"seq"`
	Payload string  `json:"payload_b64"`
}

func (d describer) recording(name string, in io.Reader) error {
	if strings.HasSuffix(name, ".gz") {
		z, err := gzip.NewReader(in)
		if err != nil {
			return fmt.Errorf("cannot decode %s: %w", name, err)
		}
		defer z.Close()
		in = z
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 2*maxInput) // base64 and the rest of the line
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var m recordedMessage
		err := json.Unmarshal(lines.Bytes(), &m)
		if err != nil {
			return fmt.Errorf("cannot decode %s: line %d is no recorded message: %w", name, n, err)
		}
		payload, err := base64.StdEncoding.DecodeString(m.Payload)
		if err != nil {
			return fmt.Errorf("cannot decode %s: line %d: payload_b64: %w", name, n, err)
		}
		if err := d.enc.Encode(events.DescribePayload(d.dec, fmt.Sprintf("%s:%d", name, n), payload)); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("cannot decode %s: %w", name, err)
	}
	return nil
}
