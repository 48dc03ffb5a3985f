// Bench-http shows what a router sees of kvindex over HTTP: queries a second and
// latencies, for prompts of several lengths, as JSON and as base64, as a chat,
// and while engines publish. It starts the real program and fake engines that
// publish over real sockets, and asks with package load.
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
	"syscall"
	"time"
)

const usage = `Measure kvindex over HTTP: 64 pods that hold prefixes of different length of every
prompt, one kvindex, and load on /v1/query. It takes 2 to 3 minutes. The exit
status is 1 if something fails; a missed target is only shown.

Usage:
  go run -tags nomsgpack ./scripts/bench-http [flags]

Examples:
  make bench-http
  go run -tags nomsgpack ./scripts/bench-http --seconds 1
  go run -tags nomsgpack ./scripts/bench-http --only base64 --quiet --profile cpu.pprof
  go run -tags nomsgpack ./scripts/bench-http --format json >bench.json

Flags:
`

// options are the flags.
type options struct {
	binary  string
	seconds float64
	format  string
	only    string
	profile string
	quiet   bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench-http:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, errOut io.Writer) error {
	o, err := parseFlags(args, out, errOut)
	if err != nil {
		return err
	}
	r, err := measure(ctx, o, newProgress(errOut))
	if err != nil {
		return err
	}
	if o.format == "json" {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	return r.table(out)
}

func parseFlags(args []string, out, errOut io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("bench-http", flag.ContinueOnError)
	f.SetOutput(errOut)
	f.StringVar(&o.binary, "kvindex", "", "`program` to measure; it is built if none is given")
	f.Float64Var(&o.seconds, "seconds", 4, "for how `long` each of the two loops of a row runs")
	f.StringVar(&o.only, "only", "", "measure only rows whose names contain this `text`")
	f.BoolVar(&o.quiet, "quiet", false, "leave out the rows with ingest")
	f.StringVar(&o.profile, "profile", "", "write a profile of kvindex's processor time in the closed loop of the last row to a `file`")
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
	case o.seconds < 0.1 || o.seconds > 600:
		return o, fmt.Errorf("cannot use --seconds %g: it must be 0.1 to 600", o.seconds)
	}
	return o, nil
}

// progress says on standard error what a long run is at.
type progress struct {
	w     io.Writer
	begin time.Time
}

func newProgress(w io.Writer) *progress { return &progress{w, time.Now()} }

func (p *progress) say(format string, args ...any) {
	fmt.Fprintf(p.w, "bench-http: %3.0f s: %s\n", time.Since(p.begin).Seconds(), fmt.Sprintf(format, args...))
}
