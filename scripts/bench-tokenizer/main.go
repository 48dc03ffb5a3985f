// Bench-tokenizer shows what tokenizing in kvindex costs: beside the Hugging
// Face library, and beside the way that kvindex replaces, where a router has
// an engine tokenize over HTTP and asks Redis for the blocks. Everything is
// measured in one run, so that what counts are ratios, on any machine.
//
// It measures three things, and compares token ids wherever it does:
//
//  1. The speed of package bpe and of the library on text that was not seen
//     before, with the tokenizers of real models. Encoders remember words, so
//     the text must be new to them: every run has an encoder of its own.
//  2. What a turn of a chat takes: tokenized as a whole, and by kvindex, which
//     knows the turns before. A turn's own text is new to everybody.
//  3. The replaced way against kvindex's for the same requests.
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
	"runtime"
	"syscall"
	"time"

	"github.com/kvindex/kvindex/tokenizer/hf"
)

const usage = `Measure tokenizing in kvindex beside the Hugging Face library, and beside the way
that it replaces (the engine's /tokenize and Redis). It takes 2 to 3 minutes and
needs redis-server and what make setup installs. The exit status is 1 if token
ids differ anywhere or something fails; a missed target is only shown.

Usage:
  go run -tags nomsgpack ./scripts/bench-tokenizer [flags]

Examples:
  make bench-tokenizer
  go run -tags nomsgpack ./scripts/bench-tokenizer --conversations 3
  go run -tags nomsgpack ./scripts/bench-tokenizer --format json >bench.json

Flags:
`

// options are the flags.
type options struct {
	format        string
	conversations int
	all           bool // tokenizers
}

// sizes of the conversations, in tokens, and how many of them there are for one
// of the longest.
var sizes = [...]struct {
	tokens int
	share  float64
}{{10_000, 3}, {32_000, 1.5}, {largest, 1}}

// maxConversations is for how many Go's source tree has text.
const maxConversations = 12

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench-tokenizer:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) error {
	if len(args) == 2 && args[0] == engineArg {
		return serveEngine(args[1], in, out)
	}
	o, err := parseFlags(args, out, errOut)
	if err != nil {
		return err
	}
	if !hf.Available() {
		return fmt.Errorf("cannot compare with the library: %w", hf.ErrUnavailable)
	}
	r, err := measure(ctx, o, newProgress(errOut))
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
	for _, s := range r.Speed {
		if !s.Equal {
			return errors.Join(err, fmt.Errorf("%s on %s: %w", s.Tokenizer, s.Text, errDiffers))
		}
	}
	return err
}

func parseFlags(args []string, out, errOut io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("bench-tokenizer", flag.ContinueOnError)
	f.SetOutput(errOut)
	f.StringVar(&o.format, "format", "table", "`table` or json")
	f.IntVar(&o.conversations, "conversations", 8, "how `many` of the longest kind are measured, of the others more; each is 9 requests")
	f.BoolVar(&o.all, "all", false, "measure the speed of all test tokenizers that package bpe knows, variants too")
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
	case o.conversations < 1 || o.conversations > maxConversations:
		return o, fmt.Errorf("cannot use --conversations %d: it must be 1 to %d", o.conversations, maxConversations)
	}
	return o, nil
}

// measure does all that a run does.
func measure(ctx context.Context, o options, p *progress) (*report, error) {
	begin := time.Now()
	dir, err := tokenizersDir()
	if err != nil {
		return nil, err
	}
	names, err := modelNames(dir, o.all)
	if err != nil {
		return nil, err
	}
	f, err := readModel(dir, chatModel)
	if err != nil {
		return nil, err
	}
	c, err := newCorpus(f.tokenizer)
	if err != nil {
		return nil, err
	}
	texts, err := c.samples()
	if err != nil {
		return nil, err
	}
	r := &report{CPUs: runtime.NumCPU()}
	if r.Speed, err = measureSpeed(ctx, dir, names, texts, p); err != nil {
		return nil, err
	}
	if err := r.measureChats(ctx, dir, f, c, o, p); err != nil {
		return nil, err
	}
	r.Seconds = time.Since(begin).Seconds()
	r.judge()
	return r, nil
}

func (r *report) measureChats(ctx context.Context, dir string, f *modelFiles, c *corpus, o options, p *progress) error {
	ch, err := newChats(ctx, dir, f, c, p)
	if err != nil {
		return err
	}
	defer ch.close()
	for _, size := range sizes {
		for _, g := range []growth{documentGrowth(size.tokens), evenGrowth(size.tokens)} {
			res, err := ch.measure(ctx, size.tokens, g, int(size.share*float64(o.conversations)))
			if err != nil {
				return fmt.Errorf("cannot measure chats of %d tokens: %w", size.tokens, err)
			}
			r.Turns = append(r.Turns, res.turnsRows()...)
			r.Ways = append(r.Ways, res.wayRows()...)
		}
	}
	return nil
}
