// Bench-replicas shows what a fleet sees of several replicas over NATS: how soon
// what an engine publishes is found, at rest and under load, what relays cost,
// and what happens when a replica is killed and comes back from Redis. In the end
// all replicas must hold the same, and exactly what the engines do. It starts the
// real program, a real Redis and a real NATS, and fake engines with real sockets.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

const usage = `Measure two replicas of kvindex over NATS, with a relay beside each of many fake engines:
the time from an engine's publishing to an answer of each replica, the processor time of
the relays, and a replica that is killed and comes back from Redis under load. It takes 1
to 3 minutes and needs redis-server. The exit status is 1 if the replicas or the engines
differ in the end, or something fails; a missed target is only shown.

If the machine cannot carry --rate, the program looks for the largest part of it at which
what waits stays bounded, measures with that, and says so.

Usage:
  go run -tags nomsgpack ./scripts/bench-replicas [flags]

Examples:
  make bench-replicas
  go run -tags nomsgpack ./scripts/bench-replicas --rate 20000
  go run -tags nomsgpack ./scripts/bench-replicas --turn 32 --blocks 4000
  go run -tags nomsgpack ./scripts/bench-replicas --engines 8 --rate 10000 --seconds 5 --probes 50
  go run -tags nomsgpack ./scripts/bench-replicas --format json >bench.json

Flags:
`

// options are the flags.
type options struct {
	binary  string
	engines int
	blocks  int
	turn    int
	rate    float64
	seconds float64
	probes  int
	format  string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench-replicas:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) error {
	if len(args) == 2 && args[0] == natsArg {
		return serveNATS(args[1], in, out)
	}
	o, err := parseFlags(args, out, errOut)
	if err != nil {
		return err
	}
	p := newProgress(errOut)
	defer p.stop()
	r, err := measure(ctx, o, p)
	if err != nil {
		return err
	}
	if o.format == "json" {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		err = e.Encode(r)
	} else {
		err = r.table(out)
	}
	return errors.Join(err, r.wrong())
}

func parseFlags(args []string, out, errOut io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("bench-replicas", flag.ContinueOnError)
	f.SetOutput(errOut)
	f.StringVar(&o.binary, "kvindex", "", "`program` to measure; it is built if none is given")
	f.IntVar(&o.engines, "engines", 64, "`number` of engines, each with a relay")
	f.IntVar(&o.blocks, "blocks", 17000, "`blocks` that each engine has room for")
	f.IntVar(&o.turn, "turn", 256, "`blocks` that a turn adds at most, half of them at least: each turn is a batch, and removes as many")
	f.Float64Var(&o.rate, "rate", 100_000, "block `events` a second of all engines, stores and removals")
	f.Float64Var(&o.seconds, "seconds", 15, "for how `long` the load is measured, beside the restart")
	f.IntVar(&o.probes, "probes", 300, "`number` of batches whose way is timed, at rest and under load")
	f.StringVar(&o.format, "format", "table", "`table` or json")
	f.Usage = func() {
		f.SetOutput(out)
		fmt.Fprint(out, usage)
		f.PrintDefaults()
	}
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("cannot use argument %q: there are only flags, see --help", f.Arg(0))
	case o.format != "table" && o.format != "json":
		return o, fmt.Errorf("cannot use --format %q: it must be table or json", o.format)
	case o.engines < loaders || o.engines > 256:
		return o, fmt.Errorf("cannot use --engines %d: it must be %d to 256", o.engines, loaders)
	case o.turn < 2 || o.turn > 4096:
		return o, fmt.Errorf("cannot use --turn %d: it must be 2 to 4096", o.turn)
	case o.blocks < minBlocks(o.turn) || o.blocks > 1_000_000:
		return o, fmt.Errorf("cannot use --blocks %d: it must be %d to 1000000, for turns of up to %d", o.blocks, minBlocks(o.turn), o.turn)
	case o.rate < 100 || o.rate > 10_000_000:
		return o, fmt.Errorf("cannot use --rate %g: it must be 100 to 10000000", o.rate)
	case o.seconds < 1 || o.seconds > 3600:
		return o, fmt.Errorf("cannot use --seconds %g: it must be 1 to 3600", o.seconds)
	case o.probes < 10 || o.probes > 100_000:
		return o, fmt.Errorf("cannot use --probes %d: it must be 10 to 100000", o.probes)
	}
	return o, nil
}

// progress says on standard error what a long run is at, every two seconds also
// where it is at the same still.
type progress struct {
	w     io.Writer
	begin time.Time
	end   chan struct{}
	wg    sync.WaitGroup

	mu   sync.Mutex
	what string
	said time.Time
}

func newProgress(w io.Writer) *progress {
	p := &progress{w: w, begin: time.Now(), end: make(chan struct{})}
	p.wg.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-p.end:
				return
			case <-tick.C:
			}
			p.mu.Lock()
			if p.what != "" && time.Since(p.said) > 1800*time.Millisecond {
				p.print("still " + p.what)
			}
			p.mu.Unlock()
		}
	})
	return p
}

func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.what = fmt.Sprintf(format, args...)
	p.print(p.what)
}

// print writes a line. The caller has p.mu.
func (p *progress) print(text string) {
	p.said = time.Now()
	fmt.Fprintf(p.w, "bench-replicas: %3.0f s: %s\n", time.Since(p.begin).Seconds(), text)
}

func (p *progress) stop() {
	close(p.end)
	p.wg.Wait()
}
