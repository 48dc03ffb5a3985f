package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvindex/kvindex/events"
	"github.com/kvindex/kvindex/events/zmqsource"
	"github.com/kvindex/kvindex/indexer"
)

// recordOptions are the flags of `kvindex record`.
type recordOptions struct {
	endpoint, replay, topic, pod, output string
	duration                             time.Duration
	batches                              int
}

func newRecordCommand() *cobra.Command {
	var o recordOptions
	cmd := &cobra.Command{
		Use:   "record",
		Short: "Write what an engine publishes to a file",
		Long: `Follow an engine's event socket (and its replay socket, to begin at its start
and to fill gaps) and write every batch, in order, to a recording: JSON lines
{"t","pod","topic","seq","payload_b64"}, compressed if the name ends in .gz.
It ends at --duration, after --batches, or with Ctrl-C.

A recording contains token ids, that is, prompts: look before you pass it on.
kvindex decode shows what is in it.`,
		Example: `  kvindex record --endpoint tcp://10.0.0.7:5557 --replay-endpoint tcp://10.0.0.7:5558 --output pod-0.jsonl.gz`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return record(cmd.Context(), o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.endpoint, "endpoint", "", "the engine's event `address`, tcp://HOST:PORT")
	f.StringVar(&o.replay, "replay-endpoint", "", "its replay `address`")
	f.StringVar(&o.topic, "topic", "", "subscription `prefix` (default everything)")
	f.StringVar(&o.pod, "pod", "pod-0", "`name` to write for the engine")
	f.StringVar(&o.output, "output", "-", "`file` to write; - is standard output")
	f.DurationVar(&o.duration, "duration", 0, "stop after this `time` (default never)")
	f.IntVar(&o.batches, "batches", 0, "stop after this `number` of batches (default never)")
	_ = cmd.MarkFlagRequired("endpoint") // the flag exists
	return cmd
}

func record(ctx context.Context, o recordOptions, stdout, stderr io.Writer) (err error) {
	spec := events.InstanceSpec{ID: o.pod, Model: "-", Streams: []events.StreamSpec{{Endpoint: o.endpoint, ReplayEndpoint: o.replay, Topic: o.topic}}}
	if err := spec.Validate(); err != nil {
		return err
	}
	out := stdout
	if o.output != "-" {
		f, err := os.Create(o.output)
		if err != nil {
			return fmt.Errorf("cannot record: %w", err)
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		out = f
	}
	if strings.HasSuffix(o.output, ".gz") {
		z := gzip.NewWriter(out)
		defer func() { err = errors.Join(err, z.Close()) }()
		out = z
	}
	buf := bufio.NewWriter(out)
	defer func() { err = errors.Join(err, buf.Flush()) }()

	index, err := indexer.New(indexer.Options{})
	if err != nil {
		return err
	}
	defer index.Close()
	source, err := zmqsource.New(zmqsource.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if o.duration > 0 {
		ctx, stop = context.WithTimeout(ctx, o.duration)
		defer stop()
	}
	w := &recorder{pod: o.pod, enc: json.NewEncoder(buf), limit: o.batches, stop: stop}
	session := events.NewSession(events.SessionOptions{
		Index: index, Instance: o.pod, Model: "-", Stream: spec.Streams[0], Tap: w.write,
	})
	defer session.Close()
	var wg sync.WaitGroup
	wg.Go(func() { w.report(ctx, session, stderr) })
	err = source.Follow(ctx, session)
	wg.Wait()
	if ctx.Err() != nil {
		err = nil // how a recording ends
	}
	fmt.Fprintf(stderr, "recorded %d batches\n", w.count())
	return errors.Join(err, w.err)
}

// recorder writes batches.
type recorder struct {
	pod   string
	enc   *json.Encoder
	limit int
	stop  func()

	mu  sync.Mutex
	n   int
	err error
}

func (r *recorder) write(topic string, seq uint64, payload []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil || r.limit > 0 && r.n >= r.limit {
		return
	}
	r.err = r.enc.Encode(recordedMessage{
		T: float64(time.Now().UnixMicro()) / 1e6, Pod: r.pod, Topic: topic, Seq: seq,
		Payload: base64.StdEncoding.EncodeToString(payload),
	})
	r.n++
	if r.err != nil || r.n == r.limit {
		r.stop()
	}
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n
}

// report says every two seconds how it is going.
func (r *recorder) report(ctx context.Context, s *events.Session, stderr io.Writer) {
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			st := s.Status()
			line := fmt.Sprintf("%s: %d batches", st.State, r.count())
			for _, more := range []string{st.Reason, st.Note} {
				if more != "" {
					line += "; " + more
				}
			}
			fmt.Fprintln(stderr, line)
		}
	}
}
