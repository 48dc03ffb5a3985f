// Loadgen sends queries to a kvindex over HTTP, at a rate or as fast as its
// connections are answered, and shows the percentiles of their latency. See
// package load for what is measured and what is sent.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/kvindex/kvindex/indexer"
	"github.com/kvindex/kvindex/scripts/loadgen/load"
)

const usage = `Send queries to a kvindex and measure how long its answers take. With --rate the
loop is open: requests are sent when they are due, and latency counts from then.
Without, it is closed: every connection sends its next request when it has an
answer, which finds the throughput. It ends by itself. The exit status is 1 if
nothing was answered.

Usage:
  go run ./scripts/loadgen [flags]

Examples:
  go run ./scripts/loadgen --model Qwen/Qwen3-0.6B --connections 8
  go run ./scripts/loadgen --model Qwen/Qwen3-0.6B --rate 2000 --as base64 --blocks 6250
  go run ./scripts/loadgen --model Qwen/Qwen3-0.6B --rate 50 --trace sample --as chat
  go run ./scripts/loadgen --url http://10.0.0.7:8400 --remote-ok --format json >load.json

Flags:
`

// options are the flags.
type options struct {
	load      load.Options
	url       string
	tokenFile string
	remoteOK  bool
	format    string
	form      load.Form
	encoder   load.Encoder
	blocks    int
	prompts   int
	seed      uint64
	trace     string
	requests  int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "loadgen:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, errOut io.Writer) error {
	o, err := parseFlags(args, out, errOut)
	if err != nil {
		return err
	}
	bodies, err := o.bodies()
	if err != nil {
		return err
	}
	o.load.Source = bodies
	o.load.Progress = func(p load.Progress) {
		fmt.Fprintf(errOut, "loadgen: %3.0f s: %d answered, %d failed\n", p.Elapsed.Seconds(), p.Answered, p.Failed)
	}
	r, err := load.Run(ctx, o.load)
	if err != nil {
		return err
	}
	if o.format == "json" {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	return r.Table(out)
}

func parseFlags(args []string, out, errOut io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("loadgen", flag.ContinueOnError)
	f.SetOutput(errOut)
	f.StringVar(&o.url, "url", "http://127.0.0.1:8400", "where kvindex answers: http://`HOST:PORT`")
	f.BoolVar(&o.remoteOK, "remote-ok", false, "allow addresses that are not of this machine")
	f.StringVar(&o.tokenFile, "token-file", "", "`file` with the bearer token of kvindex's api.token_file")
	f.Float64Var(&o.load.Rate, "rate", 0, "requests a `second` of an open loop; 0 is a closed loop")
	f.IntVar(&o.load.Connections, "connections", 8, "how `many` connections are kept, each with one request at a time")
	f.DurationVar(&o.load.Duration, "duration", 10*time.Second, "for how `long` requests are measured")
	f.DurationVar(&o.load.Warmup, "warmup", time.Second, "for how `long` they are sent before")
	f.DurationVar(&o.load.Timeout, "timeout", 10*time.Second, "how `long` an answer may take")
	f.StringVar(&o.encoder.Model, "model", "", "`name` of the model to ask for")
	f.StringVar((*string)(&o.form), "as", string(load.Base64), "how prompts are sent: json, base64, local_hashes, seq_hashes or chat")
	f.IntVar(&o.blocks, "blocks", 632, "`blocks` a prompt")
	f.IntVar(&o.encoder.BlockSize, "block-size", 16, "`tokens` a block")
	f.IntVar(&o.prompts, "prompts", 16, "how `many` different prompts are sent in turn")
	f.Uint64Var(&o.seed, "seed", 1, "`number` that the prompts depend on")
	f.Uint64Var(&o.encoder.Seed, "hash-seed", indexer.DefaultSeed, "`seed` of hashes, kvindex's index.seed")
	f.StringVar(&o.trace, "trace", "", "`file` of a trace whose prompts are sent instead (JSON lines with hash_ids), or sample for the built-in one")
	f.IntVar(&o.requests, "trace-requests", 500, "`requests` of the trace at most")
	f.StringVar(&o.format, "format", "table", "`table` or json")
	f.Usage = func() {
		f.SetOutput(out)
		fmt.Fprint(out, usage)
		f.PrintDefaults()
	}
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("cannot use argument %q: there are only flags, see --help", f.Arg(0))
	}
	return o, o.check()
}

// check completes and checks what the flags say.
func (o *options) check() error {
	u, err := url.Parse(o.url)
	switch {
	case err != nil || u.Scheme != "http" || u.Hostname() == "":
		return fmt.Errorf("cannot use --url %q: write http://HOST:PORT", o.url)
	case !o.remoteOK && !loopback(u.Hostname()):
		return fmt.Errorf("cannot use --url %q: it is not of this machine; --remote-ok says that you mean it", o.url)
	case o.encoder.Model == "":
		return errors.New("--model is missing: the name of a model that kvindex follows")
	case o.format != "table" && o.format != "json":
		return fmt.Errorf("cannot use --format %q: it must be table or json", o.format)
	case o.blocks < 1 || o.blocks > 1<<17 || o.encoder.BlockSize < 1 || o.encoder.BlockSize > 4096:
		return fmt.Errorf("cannot use prompts of %d blocks of %d tokens", o.blocks, o.encoder.BlockSize)
	case o.prompts < 1 || o.requests < 1:
		return errors.New("cannot send no prompt: --prompts and --trace-requests are at least 1")
	}
	if o.tokenFile != "" {
		b, err := os.ReadFile(o.tokenFile)
		if err != nil {
			return fmt.Errorf("cannot read the token: %w", err)
		}
		o.load.Token = strings.TrimSpace(string(b))
	}
	u.Path = strings.TrimRight(u.Path, "/") + "/v1/query"
	o.load.URL = u
	return nil
}

// loopback reports whether a host is this machine, whatever a name server says
// of other names.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// bodies makes all that is sent.
func (o *options) bodies() (load.Source, error) {
	if o.trace != "" {
		requests, err := o.readTrace()
		if err != nil {
			return nil, err
		}
		return load.FromTrace(requests[:min(len(requests), o.requests)], o.form, o.encoder)
	}
	n := o.blocks * o.encoder.BlockSize
	if o.form == load.Chat {
		return load.NewTurns(o.encoder.Model, o.seed, n, 250), nil
	}
	var out load.Bodies
	for i := range o.prompts {
		b, err := o.encoder.Query(o.form, load.Tokens(o.seed+uint64(i), n))
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

func (o *options) readTrace() ([]load.TraceRequest, error) {
	if o.trace == "sample" {
		return load.SampleTrace()
	}
	f, err := os.Open(o.trace)
	if err != nil {
		return nil, fmt.Errorf("cannot read the trace: %w", err)
	}
	defer f.Close()
	return load.ReadTrace(f)
}
