package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// report is all that a run found.
type report struct {
	CPUs    int     `json:"cpus"`
	Engines int     `json:"engines"`
	Blocks  int     `json:"blocks_an_engine"`
	Turn    int     `json:"blocks_a_turn_at_most"`
	Seconds float64 `json:"seconds"`

	Wanted  float64 `json:"wanted_events_per_s"`
	Trials  []trial `json:"trials"`
	Rate    float64 `json:"events_per_s"` // measured with
	Reached float64 `json:"reached_events_per_s"`

	Rest spread `json:"visible_at_rest_ms"`
	Load spread `json:"visible_under_load_ms"`

	Batches          float64    `json:"batches"`
	BatchesPerSecond float64    `json:"batches_per_s"`
	CPU              [7]float64 `json:"cpu"` // processors: engines and probes, relays, NATS, the replicas, Redis, everything
	RelaysIdle       float64    `json:"relays_idle_cpu"`
	RelayPerBatch    float64    `json:"relay_us_per_batch"`

	Restart restarted `json:"restart"`
	Dumps   dumps     `json:"dumps"`
	Targets []target  `json:"targets"`
}

// trial is a rate that was tried.
type trial struct {
	Rate    float64 `json:"events_per_s"`
	Reached float64 `json:"reached"`
	Visible spread  `json:"visible_ms"`
	Bounded bool    `json:"bounded"`
}

// spread is how soon what was published was found, in milliseconds, by replica.
type spread struct {
	P50 []float64 `json:"p50"`
	P99 []float64 `json:"p99"`
}

func newSpread(t timings) (s spread) {
	for _, list := range t {
		s.P50 = append(s.P50, ms(percentile(list, 0.5)))
		s.P99 = append(s.P99, ms(percentile(list, 0.99)))
	}
	return s
}

func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

func (s spread) String() string {
	var parts []string
	for i := range s.P50 {
		parts = append(parts, fmt.Sprintf("%.1f / %.1f", s.P50[i], s.P99[i]))
	}
	return strings.Join(parts, ", ")
}

// worst is the largest of some figures.
func worst(list []float64) (most float64) {
	for _, v := range list {
		most = max(most, v)
	}
	return most
}

// target is a figure that should be reached.
type target struct {
	What    string  `json:"what"`
	Got     float64 `json:"got"`
	Want    float64 `json:"want"`
	Unit    string  `json:"unit"`
	AtLeast bool    `json:"at_least,omitzero"` // else at most
}

func (t target) met() bool {
	if t.AtLeast {
		return t.Got >= t.Want
	}
	return t.Got <= t.Want
}

// visibleWithin is what kvindex promises of an event, p99, in milliseconds.
const visibleWithin = 50

func (r *report) judge() {
	r.Targets = []target{
		{"block events a second that stay bounded", r.Reached, trialReach * r.Wanted, "/s", true},
		{"publish to visible at rest, p99", worst(r.Rest.P99), visibleWithin, "ms", false},
		{"publish to visible under load, p99", worst(r.Load.P99), visibleWithin, "ms", false},
		{"start of a killed replica to ready", r.Restart.Ready, 5, "s", false},
		{"... to live on all streams: exact", r.Restart.Live, 5, "s", false},
		{"queries that nobody answered meanwhile", float64(r.Restart.Failed), 0, "", false},
		{"queries that found less than there is", float64(r.Restart.Less), 0, "", false},
	}
}

// ours is what all of this run takes, others what has nothing to do with it.
func (r *report) ours() (sum float64) {
	for _, v := range r.CPU[:6] {
		sum += v
	}
	return sum
}

func (r *report) others() float64 { return max(r.CPU[6]-r.ours(), 0) }

// wrong is what must not be.
func (r *report) wrong() error {
	if r.Dumps.right() {
		return nil
	}
	return fmt.Errorf("the dumps are wrong: equal: %v; %d of %d pairs are missing, %d are too many", r.Dumps.Equal, r.Dumps.Missing, r.Dumps.Held, r.Dumps.Extra)
}

// table writes the report for people.
func (r *report) table(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "REPLICAS over NATS: 2 of them, %d engines of %d blocks with a relay each (%d processors, %.0f s)\n\n", r.Engines, r.Blocks, r.CPUs, r.Seconds)
	fmt.Fprint(w, "block events/s\treached\tbounded\tvisible p50 / p99 in ms, each replica\n")
	for _, t := range r.Trials {
		bounded := "yes"
		if !t.Bounded {
			bounded = "no"
		}
		fmt.Fprintf(w, "%.0f\t%.0f\t%s\t%v\n", t.Rate, t.Reached, bounded, t.Visible)
	}
	fmt.Fprintf(w, "\nat rest\t-\t\t%v\n%.0f\t%.0f\t\t%v\n", r.Rest, r.Rate, r.Reached, r.Load)
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, `
processors at that rate, %.0f batches/s: engines and probes %.2f, relays %.2f (idle %.2f), NATS %.2f, replicas %.2f and %.2f, Redis %.2f,
  what else runs on this machine %.2f of %d
relays: %.0f us of processor time a batch, all that they do included; everything together %.1f ms: %.0f block events/s would take
  about %.1f processors

`, r.BatchesPerSecond, r.CPU[0], r.CPU[1], r.RelaysIdle, r.CPU[2], r.CPU[3], r.CPU[4], r.CPU[5], r.others(), r.CPUs,
		r.RelayPerBatch, 1e3*r.ours()/r.BatchesPerSecond, r.Wanted, r.ours()*r.Wanted/r.Reached)
	x := r.Restart
	fmt.Fprintf(w, "killed and started again:\tready after %.2f s, live on all streams after %.2f s\n", x.Ready, x.Live)
	fmt.Fprintf(w, "restored from:\t%s, %.1f MB, %.0f s old; then %.0f messages of the log until it was live, of %.0f\n", x.Source, x.Bytes/1e6, x.Age, x.Messages, x.Log)
	fmt.Fprintf(w, "a client of any ready replica:\t%d queries; %d failed, %d found less (%d of them unmarked), %d were marked, %d went to the other replica; nobody ready for %.2f s\n",
		x.Asked, x.Failed, x.Less, x.Unmarked, x.Marked, x.Again, x.Blind)
	same := "equal"
	if !r.Dumps.Equal {
		same = "DIFFERENT"
	}
	fmt.Fprintf(w, "dumps in the end:\t%s, %d bytes; %d pairs of a block and an engine, %d missing, %d too many\n\n", same, r.Dumps.Bytes[0], r.Dumps.Held, r.Dumps.Missing, r.Dumps.Extra)
	fmt.Fprint(w, "what\tmeasured\ttarget\t\n")
	for _, t := range r.Targets {
		verdict, bound := "met", "<="
		if !t.met() {
			verdict = "MISSED"
		}
		if t.AtLeast {
			bound = ">="
		}
		fmt.Fprintf(w, "%s\t%.4g %s\t%s %g %s\t%s\n", t.What, t.Got, t.Unit, bound, t.Want, t.Unit, verdict)
	}
	fmt.Fprintf(w, `
block events: stores and removals of full caches, in batches of %d to %d blocks stored and as many removed, turns of conversations
  that share prefixes. bounded: the engines publish %.0f%% of what they want, and after %v of it 9 of 10 probes are visible within
  %v. Engines, relays, NATS with its files, Redis, both replicas, the probes and whatever else runs share the processors.
visible: from an engine's computing of a batch of one block until the query of a replica finds it, asked again every %v.
killed: SIGKILL under that load; %v later it is started again, with snapshots in Redis every %v. The client asks for prompts
  that every engine holds all the time; it follows /readyz, which it reads every %v.
`, turnLeast(r.Turn), r.Turn, 100*trialReach, trialTime, trialLimit, pollPause, deadFor, snapshotEvery, readyEvery)
	return w.Flush()
}
