// Bench-recovery shows what a restart of kvindex costs: how large a snapshot is,
// how long it takes to write and to read it, to a directory and to Redis, how
// long streams stand still for it, what queries feel of it, and how soon the
// real program answers exactly again. Everything is measured in one run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const usage = `Measure snapshots and restarts, and compare them with the targets. It takes 3 to 4
minutes and needs redis-server. The exit status is 1 if anything that was restored
answers differently, or something fails; a missed target is only shown.

Usage:
  go run ./scripts/bench-recovery [flags]

Examples:
  make bench-recovery
  make bench-recovery SCALE=10

Flags:
`

// options are the flags.
type options struct {
	scale  int
	rounds int // of everything that is repeated
}

func main() {
	log.SetFlags(log.Ltime)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench-recovery:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) error {
	if len(args) == 2 && args[0] == replicaArg {
		return serveReplica(args[1], in, out)
	}
	o, err := parseFlags(args, out, errOut)
	if err != nil {
		return err
	}
	t := table{begin: time.Now()}
	if err := measureSnapshots(ctx, o, &t); err != nil {
		return err
	}
	if err := measureRestart(ctx, o, &t); err != nil {
		return err
	}
	return t.write(out)
}

func parseFlags(args []string, out, errOut io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("bench-recovery", flag.ContinueOnError)
	f.SetOutput(errOut)
	f.IntVar(&o.scale, "scale", 1, "`millions` of blocks of the snapshots; the real program always has one million")
	f.IntVar(&o.rounds, "rounds", 5, "how `often` each thing is done; the medians are shown")
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
	case o.scale < 1 || o.scale > 40:
		return o, fmt.Errorf("cannot use --scale %d: it must be 1 to 40", o.scale)
	case o.rounds < 1:
		return o, fmt.Errorf("cannot use --rounds %d: it must be at least 1", o.rounds)
	}
	return o, nil
}
