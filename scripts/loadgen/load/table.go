package load

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
)

// Table writes the result for people.
func (r *Result) Table(out io.Writer) error {
	loop := fmt.Sprintf("closed loop, %d connections", r.Connections)
	from := "sent"
	if r.Loop == "open" {
		loop = fmt.Sprintf("open loop, %g a second, %d connections", r.Rate, r.Connections)
		from = "due"
	}
	fmt.Fprintf(out, "%s: %d answered in %.1f s, %.0f a second\n\n", loop, r.Answered, r.Seconds, r.PerSec)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "milliseconds\tmean\tp50\tp90\tp99\tp99.9\tmax\t\n")
	row := func(name string, l Latencies) {
		fmt.Fprintf(w, "%s\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t\n", name, l.Mean, l.P50, l.P90, l.P99, l.P999, l.Max)
	}
	row("from when it was "+from, r.Client)
	if r.Loop == "open" {
		row("of which until it was sent", r.Late)
	}
	row("in the server (timings_us.total)", r.Server)
	if err := w.Flush(); err != nil {
		return err
	}
	if r.NotExact > 0 {
		fmt.Fprintf(out, "\n%d answers were not exact: see their \"state\" and \"reason\"\n", r.NotExact)
	}
	if r.Unsent > 0 {
		fmt.Fprintf(out, "\n%d requests were due and never sent: the server is slower than the rate, and the percentiles are too good\n", r.Unsent)
	}
	for _, reason := range slices.Sorted(maps.Keys(r.Failed)) {
		fmt.Fprintf(out, "\n%d requests failed: %s\n", r.Failed[reason], reason)
	}
	return nil
}
