package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// report is all that a run found.
type report struct {
	CPUs      int      `json:"cpus"`
	Rows      []row    `json:"rows"`
	IngestCPU float64  `json:"ingest_cpu"` // processors that ingest alone takes kvindex
	Lost      float64  `json:"lost_batches"`
	Targets   []target `json:"targets"`
	Seconds   float64  `json:"seconds"`
}

// target is a figure that should be reached.
type target struct {
	What string  `json:"what"`
	Want float64 `json:"want"`
	Unit string  `json:"unit"`
	Got  float64 `json:"got"`
	Met  bool    `json:"met"`
}

// judge compares with the targets, as far as their rows were measured.
func (r *report) judge() {
	find := func(name string) *row {
		for i := range r.Rows {
			if row := &r.Rows[i]; row.Name == name && !row.Ingest {
				return row
			}
		}
		return nil
	}
	atMost := func(what, name string, ms float64) {
		if row := find(name); row != nil {
			got := row.Open.ServerP50
			r.Targets = append(r.Targets, target{what, ms, "ms at most", got, got <= ms})
		}
	}
	atMost("8k token ids in JSON, in the server, p50", "512 blocks json", 0.3)
	atMost("100k token ids in base64, in the server, p50", "6250 blocks base64", 1)
	for _, row := range r.Rows {
		if !row.Ingest && row.Name[:4] == "chat" {
			atMost("chat of 100k tokens, begin cached, in the server, p50", row.Name, 1)
		}
	}
	if row := find("632 blocks base64"); row != nil {
		r.Targets = append(r.Targets, target{"queries a second of 632 blocks in base64", 10_000, "at least", row.PerSecond, row.PerSecond >= 10_000})
	}
}

// table writes the report for people.
func (r *report) table(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "QUERIES over HTTP, %d pods that hold prefixes of different length; milliseconds\n\n", podCount)
	fmt.Fprint(w, "\t\tclosed loop:\tserver CPU\tclient\t\tserver\t\topen loop:\tclient\t\tserver\t\t\t\n")
	fmt.Fprint(w, "prompt\tingest blocks/s\tqueries/s\tus/query\tp50\tp99\tp50\tp99\tqueries/s\tp50\tp99\tp50\tp99\tbad\t\n")
	for _, x := range r.Rows {
		ingest := "-"
		if x.Ingest {
			ingest = fmt.Sprintf("%.0f", x.Ingested)
		}
		fmt.Fprintf(w, "%s\t%s\t%.0f\t%.0f", x.Name, ingest, x.PerSecond, x.CPU)
		fmt.Fprintf(w, "\t%.3f\t%.3f\t%.3f\t%.3f", x.Closed.ClientP50, x.Closed.ClientP99, x.Closed.ServerP50, x.Closed.ServerP99)
		fmt.Fprintf(w, "\t%.0f\t%.3f\t%.3f\t%.3f\t%.3f\t%d\t\n", x.Rate, x.Open.ClientP50, x.Open.ClientP99, x.Open.ServerP50, x.Open.ServerP99, x.Bad)
	}
	fmt.Fprintf(w, `
Everything runs on these %d processors: kvindex, the generator, and while there is ingest the %d pods. What the generator
  takes, kvindex has not; server CPU is kvindex's own time a query (user and system, /proc/PID/stat), that of ingest deducted.
closed loop: %d connections that are always busy, so latencies are mostly waiting for a processor. open loop: a quarter of that
  rate on up to %d connections; the client's latency counts from when a request was due, lateness of the generator included.
server: timings_us.total of the answers: from the body's arrival to the answer's last byte in memory. Reading the body and
  writing the answer (which lists %d pods in %s) are in the client's figures and in server CPU.
ingest: %d blocks a second stored and as many removed, in batches of %d and %d; kvindex alone takes %.2f processors for it;
  %.0f batches were lost. bad: requests that failed, were never sent, or whose answer was not exact.
chat: messages, rendered and tokenized by Qwen3; all but the last %d tokens were seen before, the others by nobody.

`, r.CPUs, podCount, closedConnections, openConnections, podCount, "about 14 KB", ingestRate, ingestStep, ingestStep, r.IngestCPU, r.Lost, chatTurn)
	fmt.Fprintf(w, "TARGETS (%d processors, %.0f s)\n\n", r.CPUs, r.Seconds)
	fmt.Fprint(w, "what\ttarget\tmeasured\t\t\n")
	for _, t := range r.Targets {
		met := "met"
		if !t.Met {
			met = "MISSED"
		}
		digits := 3
		if t.Want > 100 {
			digits = 0
		}
		fmt.Fprintf(w, "%s\t%s %g\t%.*f\t%s\t\n", t.What, t.Unit, t.Want, digits, t.Got, met)
	}
	return w.Flush()
}
