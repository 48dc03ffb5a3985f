package main

import (
	"fmt"
	"io"
	"runtime"
	"text/tabwriter"
	"time"
)

// table is what was measured, in order.
type table struct {
	blocks, pairs int
	rows          []row
	begin         time.Time
}

// row is a line; target 0 is none, else at most so much is wanted.
type row struct {
	what   string
	got    float64
	unit   string
	target float64
}

func (t *table) add(what string, got float64, unit string, target float64) {
	t.rows = append(t.rows, row{what, got, unit, target})
}

func (t *table) write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "RECOVERY with %d blocks on %d pods, %d pairs of both (%d cores, %.0f s)\n\n", t.blocks, numPods, t.pairs, runtime.NumCPU(), time.Since(t.begin).Seconds())
	fmt.Fprint(w, "what\tmeasured\ttarget\t\n")
	for _, r := range t.rows {
		target := ""
		if r.target > 0 {
			verdict := "met"
			if r.got > r.target {
				verdict = "MISSED"
			}
			target = fmt.Sprintf("<= %g %s\t%s", r.target, r.unit, verdict)
		}
		fmt.Fprintf(w, "%s\t%.*f %s\t%s\n", r.what, decimals(r.got), r.got, r.unit, target)
	}
	fmt.Fprintf(w, `
size: hashes (an 8-byte name a block), who holds what, and a state a stream; bounded by the names, which are random.
streams stand still: events wait while the index is copied, queries do not; bounded by reading every block once, out of
  the processor's caches, and by the copy.
written: the copy, checksums, and the store, without rests, as at the end of kvindex: a file is synced to the disk, Redis
  gets chunks of 1 MiB over loopback; bounded by the copy, then by the disk or by Redis's one core.
read: the store gives checked chunks, then the index is built anew; bounded by one insertion a block and holder.
match: a document of %d blocks is hashed and matched in this process; query over HTTP: the same of the real program. 1,000
  are asked in a second, in turns of a second without snapshots and with one after the other, %v between them (kvindex:
  every minute); of these turns only queries count that met one. Each round has 4 turns of both kinds; shown are the
  medians of what the rounds came to. Redis and the replica that reads snapshots have the lowest priority (nice 19): in a
  fleet they are on other machines, and here they get what processors have left over. Snapshots go out in pieces of
  256 KiB with rests between them, 16 MiB a second, from a thread of the lowest priority. What is left is the copy: for
  that time, see above, one processor is busy and the caches are full of other things.
process start: %d real sockets of fake engines whose replays hold 100 batches, %d blocks in a snapshot on disk. An answer
  is possible at once, and has blocks when the snapshot is in the index; it is exact when the replay of every engine has
  brought the last batch that the snapshot knows, unchanged. Bounded by building the index and by a round trip to each
  engine.
`, docBlocks, breath, numEngines, numEngines*engineBlocks)
	return w.Flush()
}

// decimals are as many as make sense.
func decimals(v float64) int {
	switch {
	case v < 10:
		return 2
	case v < 100:
		return 1
	}
	return 0
}
