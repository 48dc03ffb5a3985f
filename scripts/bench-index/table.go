package main

import (
	"fmt"
	"os"
	"slices"
	"text/tabwriter"
)

// row is a line of the table, with the targets where there are any: an absolute
// one, and how many times faster (or smaller) than the xsync and the lru design.
type row struct {
	name       string
	unit       string
	target     float64
	xsync, lru float64
}

func rows() []row {
	match := func(s string) []row {
		return []row{{s, "us", 0, 0, 0}, {s + " p99", "us", 0, 0, 0}}
	}
	var all []row
	all = append(all, match("match 632 blocks, 1 pods")...)
	all = append(all, row{"match 632 blocks, 8 pods", "us", 1.2, 50, 800}, row{"match 632 blocks, 8 pods p99", "us", 0, 0, 0},
		row{"match 632 blocks, 8 pods cold", "us", 10, 0, 0}, row{"match 632 blocks, 8 pods, branches", "us", 2.4, 0, 0})
	all = append(all, match("match 632 blocks, 64 pods")...)
	all = append(all, match("match 6250 blocks, 1 pods")...)
	all = append(all, row{"match 6250 blocks, 8 pods", "us", 4, 150, 2000}, row{"match 6250 blocks, 8 pods p99", "us", 0, 0, 0},
		row{"match 6250 blocks, 8 pods cold", "us", 20, 0, 0}, row{"match 6250 blocks, 8 pods, branches", "us", 8, 0, 0})
	all = append(all, match("match 6250 blocks, 64 pods")...)
	all = append(all, row{"match 62500 blocks, 8 pods", "us", 0, 0, 0},
		row{"documents, us", "us", 0, 0, 0},
		row{"documents, ns a block", "ns", 0, 0, 0},
		row{"linear path, ns a block", "ns", 2, 0, 0},
		row{"after 8 turnovers: documents, us", "us", 0, 0, 0},
		row{"after 8 turnovers: ns a block", "ns", 15, 0, 0},
		row{"under ingest: match 632, 8 pods", "us", 0, 0, 0},
		row{"under ingest: match 632, 8 pods p99", "us", 10, 50, 1000},
		row{"under ingest: M pairs/s", "", 0, 0, 0},
		row{"ingest, events of 8", "ns CPU a pair", 150, 5, 25},
		row{"ingest, events of 1", "ns CPU a pair", 300, 5, 25},
		row{"remove, events of 8", "ns CPU a pair", 0, 0, 0},
		row{"remove, events of 1", "ns CPU a pair", 0, 0, 0},
		row{"churn: store and remove, CPU ns a block", "ns", 0, 0, 0},
		row{"heap bytes a unique block", "B", 80, 2.5, 15},
		row{"counted bytes a unique block", "B", 80, 0, 0},
		row{"RSS bytes a unique block", "B", 0, 0, 0},
		row{"retire a pod, ms", "ms", 5, 100, 100},
		row{"full GC, ms", "ms CPU", 100, 20, 0},
		row{"allocations a match", "", 0, 0, 0},
		row{"after the long churn: memory / fresh", "x", 1.2, 0, 0},
		row{"after the long churn: match / fresh", "x", 1.5, 0, 0},
		row{"after the long churn: sets / fresh", "x", 0, 0, 0},
		row{"after the long churn: bytes a unique block", "B", 0, 0, 0},
		row{"trace: match", "us", 0, 0, 0}, row{"trace: match p99", "us", 0, 0, 0},
		row{"trace: events, wall ns a pair", "ns", 0, 0, 0})
	return all
}

func printTable(all map[string]figures, names []string) error {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	var columns []string
	for _, r := range rivals {
		if slices.Contains(names, r.name) {
			columns = append(columns, r.name)
		}
	}
	head := "\t"
	for _, c := range columns {
		head += c + "\t"
	}
	fmt.Fprintln(out, head+"target\tx xsync\ttarget\tx lru\ttarget\tmet\t")
	for _, r := range rows() {
		line := r.name + "\t"
		for _, c := range columns {
			line += number(all[c], r.name) + "\t"
		}
		own, have := all["kvindex"][r.name]
		met, judged := true, false
		judge := func(target, got float64, ok bool) string {
			if target > 0 {
				judged = true
				met = met && ok
			}
			if got == 0 {
				return "\t"
			}
			return fmt.Sprintf("%.3g\t", got)
		}
		line += judge(r.target, r.target, own <= r.target)
		for _, v := range []struct {
			name   string
			target float64
		}{{"xsync", r.xsync}, {"lru", r.lru}} {
			if other, ok := all[v.name][r.name]; ok && have && own > 0 {
				line += judge(v.target, other/own, other/own >= v.target)
			} else {
				line += "\t"
			}
			line += judge(0, v.target, true)
		}
		switch {
		case judged && have && met:
			line += "yes"
		case judged && have:
			line += "NO"
		}
		fmt.Fprintln(out, line+"\t")
	}
	return out.Flush()
}

func number(f figures, name string) string {
	v, ok := f[name]
	switch {
	case !ok:
		return "-"
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
