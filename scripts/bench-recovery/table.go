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
written: the copy, checksums, and the store: a file is synced to the disk, Redis gets chunks of 1 MiB over loopback; bounded
  by the copy, then by the disk or by Redis's one core. In kvindex it is in the background, once a minute.
read: the store gives checked chunks, then the index is built anew; bounded by one insertion a block and holder.
match: a document of %d blocks is hashed and matched in this process; query over HTTP: the same of the real program. 1,000
  are asked in a second, in turns of 0.5 s without snapshots and with one every %v beside the time that it takes (kvindex:
  every minute); of these turns only queries count that met one. A match is bounded by the processor's caches, which the
  snapshot fills with what it copies, and by losing the core. A query over HTTP has several threads to wait for: where the
  snapshot has one of two cores, and its reader, the disk or other programs the other, p99 is a time slice of the kernel's
  (3 ms) and what Go needs to find a free thread; the medians show what is left of it where there is a core.
process start: %d real sockets of fake engines whose replays hold 100 batches, %d blocks in a snapshot on disk. An answer
  is possible when the snapshot is in the index; it is exact when the replay of every engine has brought the last batch
  that the snapshot knows, unchanged. Bounded by building the index and by a round trip to each engine.
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
