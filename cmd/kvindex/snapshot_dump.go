package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kvindex/kvindex/events"
	"github.com/kvindex/kvindex/indexer"
	"github.com/kvindex/kvindex/indexer/snapshot"
)

func newSnapshotDumpCommand(f *snapshotFlags) *cobra.Command {
	var blocks bool
	var seed uint64
	cmd := &cobra.Command{
		Use:   "dump DIR|URL",
		Short: "Show what is in the newest snapshot",
		Long: `Show what the newest snapshot in a directory or in Redis holds: its streams and
where they had got to, or with --blocks every block, an object a line, as
GET /v1/dump shows them.

` + snapshotPlaces,
		Example: `  kvindex snapshot dump /var/lib/kvindex
  kvindex snapshot dump redis://10.0.0.1:6379 --cluster prod --format json | jq .streams
  kvindex snapshot dump /var/lib/kvindex --blocks | jq -c 'select(.position == 0)'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.dump(cmd.Context(), args[0], seed, blocks, cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&blocks, "blocks", false, "show every block")
	cmd.Flags().Uint64Var(&seed, "seed", indexer.DefaultSeed, "index.seed of whoever wrote it, a `number`")
	return cmd
}

func (f *snapshotFlags) dump(ctx context.Context, place string, seed uint64, blocks bool, out io.Writer) (err error) {
	s, closeStore, err := f.open(place)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeStore()) }()
	r, err := s.Open(ctx, snapshot.ID{})
	if err != nil {
		return fmt.Errorf("cannot open the newest snapshot in %s: %w", s, err)
	}
	x, err := indexer.New(indexer.Options{Seed: seed})
	if err != nil {
		return errors.Join(err, r.Close())
	}
	defer x.Close()
	var head snapshotHead
	want := snapshot.Expect{Kind: snapshotKind, MinVersion: snapshotOldest, MaxVersion: snapshotVersion, Params: r.Header().Params}
	info, err := snapshot.Restore(r, want, func(_ snapshot.Header, body io.Reader) (func(), error) {
		b, err := io.ReadAll(io.LimitReader(body, maxSnapshotBody))
		if err != nil {
			return nil, err
		}
		var read *indexer.Snapshot
		if head, read, err = decodeSnapshot(x, b); err != nil {
			return nil, err
		}
		return read.Use, nil
	})
	if err != nil {
		return fmt.Errorf("cannot read the newest snapshot in %s: %w", s, err)
	}
	if blocks {
		return dumpBlocks(x, out)
	}
	d := newSnapshotDump(info, head, x)
	if f.format == "json" {
		return json.NewEncoder(out).Encode(d)
	}
	return d.table(out)
}

// snapshotDump is what a snapshot holds, in short.
type snapshotDump struct {
	Snapshot snapshotRow      `json:"snapshot"`
	Tables   []dumpedTable    `json:"tables"`
	Streams  []dumpedInstance `json:"streams"`
	NATS     *natsMark        `json:"nats,omitempty"`
}

type dumpedTable struct {
	Model     string `json:"model"`
	BlockSize int    `json:"block_size"`
	Bigram    bool   `json:"bigram,omitempty"`
	Blocks    int    `json:"unique_blocks"`
	Bytes     int64  `json:"bytes"`
}

// dumpedInstance is one stream of an instance.
type dumpedInstance struct {
	Instance string `json:"instance"`
	Model    string `json:"model"`
	events.StreamState
}

func newSnapshotDump(info snapshot.Info, head snapshotHead, x *indexer.Index) snapshotDump {
	d := snapshotDump{Snapshot: newSnapshotRow(info, nil), Tables: []dumpedTable{}, Streams: []dumpedInstance{}, NATS: head.NATS}
	for _, t := range x.Stats().Tables {
		d.Tables = append(d.Tables, dumpedTable{t.Key.Model, t.Key.BlockSize, t.Key.Bigram, t.UniqueBlocks, t.Bytes})
	}
	for _, in := range head.Instances {
		for _, st := range in.Streams {
			d.Streams = append(d.Streams, dumpedInstance{in.Spec.ID, in.Spec.Model, st})
		}
	}
	return d
}

func (d *snapshotDump) table(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "snapshot\t%s\ncreated\t%s\nbytes\t%d\n", d.Snapshot.ID, d.Snapshot.Created.UTC().Format("2006-01-02 15:04:05"), d.Snapshot.Bytes)
	if d.NATS != nil {
		fmt.Fprintf(w, "read over NATS\t%s up to message %d\n", d.NATS.Stream, d.NATS.Seq)
	}
	fmt.Fprintln(w)
	fmt.Fprintln(w, "MODEL\tBLOCK\tUNIQUE BLOCKS\tBYTES")
	for _, t := range d.Tables {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\n", t.Model, t.BlockSize, t.Blocks, t.Bytes)
	}
	fmt.Fprintln(w, "\nINSTANCE\tRANK\tENDPOINT\tLAST SEQ\tHISTORY FROM\tLOST")
	for _, s := range d.Streams {
		fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%d\t%d\n", s.Instance, s.Rank, s.Endpoint, s.Seq, s.HistoryFrom, s.Lost)
	}
	return w.Flush()
}

// dumpedBlock is a block as GET /v1/dump shows it.
type dumpedBlock struct {
	Model     string         `json:"model"`
	BlockSize int            `json:"block_size"`
	Bigram    bool           `json:"bigram,omitempty"`
	SeqHash   string         `json:"seq_hash"`
	Parent    *string        `json:"parent"`
	Position  int            `json:"position"`
	Holders   []dumpedHolder `json:"holders"`
}

type dumpedHolder struct {
	Instance string `json:"instance"`
	DPRank   int    `json:"dp_rank"`
	Tier     string `json:"tier"`
	Copies   int    `json:"copies"`
	Suspect  bool   `json:"suspect,omitempty"`
}

func dumpBlocks(x *indexer.Index, out io.Writer) error {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	for _, model := range x.Models() {
		for _, t := range x.Tables(model) {
			var err error
			t.Walk(func(b indexer.BlockInfo) bool {
				d := dumpedBlock{
					Model: model, BlockSize: t.Key().BlockSize, Bigram: t.Key().Bigram,
					SeqHash: strconv.FormatUint(uint64(b.Seq), 10), Position: b.Position, Holders: []dumpedHolder{},
				}
				if b.HasParent {
					parent := strconv.FormatUint(uint64(b.Parent), 10)
					d.Parent = &parent
				}
				for _, h := range b.Holders {
					d.Holders = append(d.Holders, dumpedHolder{h.Stream.Instance, h.Stream.Rank, h.Tier.String(), h.Copies, h.Suspect})
				}
				err = enc.Encode(d)
				return err == nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
