package main

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/kvindex/kvindex/events/enginesim"
	"github.com/kvindex/kvindex/tokenizer"
)

// recordings holds what two pods of a real vLLM 0.32.0 published and answered.
//
//go:embed recording
var recordings embed.FS

// demoOptions are the flags of `kvindex demo`.
type demoOptions struct {
	recording string
	listen    string
	format    string
	once      bool
	noReplay  bool
	verbose   bool
}

func newDemoCommand() *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See kvindex at work, with recorded streams of a real vLLM",
		Long: `Start kvindex and fake pods that play, over real ZMQ sockets, what the pods of a
real vLLM published. Ask kvindex over HTTP, at the moments when the requests
were sent to vLLM, how much each pod already holds, and compare with the cached
tokens that vLLM reported. Then keep serving, for you to try.

The exit status is 0 if every answer agrees or the recording itself shows why
it cannot. Without a terminal, with --once or with ONCE=1 it ends after that.`,
		Example: `  kvindex demo
  kvindex demo --recording ./my-recording --format json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Getenv("ONCE") != "" || !isatty.IsTerminal(os.Stdout.Fd()) {
				o.once = true
			}
			return demo(cmd.Context(), o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.recording, "recording", "", "`directory` with stream.jsonl[.gz] and requests.jsonl[.gz] (default: the built-in one)")
	f.StringVar(&o.listen, "listen", "", "`address` of the HTTP API (default 127.0.0.1:8400, or a free port if that is taken)")
	f.StringVar(&o.format, "format", "table", "table or json")
	f.BoolVar(&o.noReplay, "no-replay", false, "the fake pods have no replay socket: kvindex knows only what was published")
	f.BoolVar(&o.once, "once", false, "end after the comparison")
	f.BoolVar(&o.verbose, "verbose", false, "show the log of kvindex")
	return cmd
}

func demo(ctx context.Context, o demoOptions, stdout, stderr io.Writer) error {
	if o.format != "table" && o.format != "json" {
		return fmt.Errorf("--format: %q is neither table nor json", o.format)
	}
	rec, err := loadDemo(o.recording)
	if err != nil {
		return err
	}
	s, err := demoService(ctx, o, stderr)
	if err != nil {
		return err
	}
	defer s.close()
	done, err := s.start(ctx)
	if err != nil {
		return err
	}
	player, err := enginesim.NewPlayer(rec, enginesim.StreamOptions{NoReplay: o.noReplay})
	if err != nil {
		return fmt.Errorf("cannot start the fake pods: %w", err)
	}
	defer func() { err = errors.Join(err, player.Close()) }()

	out := newDemoOutput(stdout, o.format, rec)
	model := recordedModel(rec)
	if o.recording == "" {
		s.tokenizers.AddLoader(ctx, model, "built in", func(context.Context, string) (*tokenizer.Parts, error) {
			files, err := fs.Sub(recordings, "recording/model")
			if err != nil {
				return nil, err
			}
			return loadTokenizerFrom(files, "the built-in model", time.Now)
		})
	}
	out.begin(s.url(), player)
	c := &comparison{base: s.url(), rec: rec, player: player, row: out.row}
	if o.recording == "" { // whose model's tokenizer is here
		s.tokenizers.Wait()
		c.chats = true
	}
	if err := c.run(ctx); err != nil {
		return err
	}
	out.end(c)
	if !o.once && ctx.Err() == nil {
		if err := out.invite(s.url(), c); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case err := <-done:
			return fmt.Errorf("the HTTP server ended: %w", err)
		}
	}
	if c.unexplained > 0 || c.chatsEqual < c.chatsAsked {
		return exitCode(1)
	}
	return err
}

func loadDemo(dir string) (*enginesim.Recording, error) {
	if dir == "" {
		return enginesim.LoadRecording(recordings, "recording/demo")
	}
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("cannot read the recording: %w", err)
	}
	return enginesim.LoadRecording(os.DirFS(dir), ".")
}

// demoService is a kvindex as `kvindex serve` runs it, without instances: the
// fake pods register over HTTP.
func demoService(ctx context.Context, o demoOptions, stderr io.Writer) (*service, error) {
	c := defaultConfig()
	c.API.DrainTime = 0
	log := slog.New(slog.DiscardHandler)
	if o.verbose {
		log = newLogger(stderr, c.Log)
	}
	if o.listen != "" {
		c.Listen = o.listen
		return newService(ctx, c, log)
	}
	lis, err := net.Listen("tcp", c.Listen)
	if err != nil { // the usual port is taken: any other will do
		c.Listen = "127.0.0.1:0"
	} else {
		_ = lis.Close()
	}
	return newService(ctx, c, log)
}

// demoOutput prints the demo for people or for programs.
type demoOutput struct {
	w    io.Writer
	json bool
	rec  *enginesim.Recording
	pods []string

	scenarios   []*scenarioSum // in order of appearance
	differences []comparedRow
}

// scenarioSum adds up the requests of one scenario.
type scenarioSum struct {
	name                      string
	requests, equal           int
	prompt, predicted, cached int // tokens
}

func newDemoOutput(w io.Writer, format string, rec *enginesim.Recording) *demoOutput {
	out := &demoOutput{w: w, json: format == "json", rec: rec}
	for _, s := range rec.Streams {
		if s.Rank == 0 || len(out.pods) == 0 {
			out.pods = append(out.pods, s.Instance)
		}
	}
	return out
}

func (o *demoOutput) printf(format string, args ...any) {
	if !o.json {
		fmt.Fprintf(o.w, format, args...)
	}
}

func (o *demoOutput) begin(url string, p *enginesim.Player) {
	o.printf("kvindex answers at %s\n", url)
	for _, s := range p.Streams() {
		o.printf("%s publishes what a real engine published: %d batches at %s\n", s.Pod, s.Batches, s.Endpoint())
	}
	o.printf("\nFor each request: its prompt tokens, how many of them each pod can reuse as kvindex answers,\nand how many the engine that got it reported as cached.\n\n")
	o.printf("%-24s %7s", "request", "prompt")
	for _, p := range o.pods {
		o.printf(" %9s", p)
	}
	o.printf("  %-8s %7s\n", "sent to", "cached")
}

func (o *demoOutput) row(r comparedRow) {
	if o.json {
		b, err := json.Marshal(r)
		if err == nil {
			fmt.Fprintf(o.w, "%s\n", b)
		}
		return
	}
	o.add(r)
	o.printf("%-24s %7d", r.ID, r.PromptTokens)
	for _, p := range o.pods {
		o.printf(" %9d", r.Predicted[p])
	}
	verdict := "equal"
	if !r.Equal {
		verdict = r.Class + ": " + r.Why
	}
	o.printf("  %-8s %7d  %s\n", r.Pod, r.Cached, verdict)
}

func (o *demoOutput) end(c *comparison) {
	if o.json {
		b, err := json.Marshal(c.summary())
		if err == nil {
			fmt.Fprintf(o.w, "%s\n", b)
		}
		return
	}
	o.printf("\n%-24s %8s %14s %18s %16s %7s\n", "scenario", "requests", "prompt tokens", "kvindex predicted", "engine reported", "equal")
	for _, sc := range o.scenarios {
		o.printf("%-24s %8d %14d %18d %16d %7d\n", sc.name, sc.requests, sc.prompt, sc.predicted, sc.cached, sc.equal)
	}
	for _, r := range o.differences {
		o.printf("\n%s differs: %s.", r.ID, r.Why)
	}
	o.printf("\n%d of %d predictions are equal to the cached tokens that the engine reported", c.equal, c.compared)
	switch {
	case c.unexplained > 0:
		o.printf("; %d differences are UNEXPLAINED.\n", c.unexplained)
	case c.equal < c.compared:
		o.printf("; the recording itself shows why the others cannot be.\n")
	default:
		o.printf(".\n")
	}
	o.printf("A query with token ids took %v over HTTP (median).\n", median(c.latencies).Round(10*time.Microsecond))
	if c.chats {
		o.printf("Asked with the chats themselves, kvindex found the same in %d of %d, in %v (median): it renders and tokenizes them as vLLM does.\n",
			c.chatsEqual, c.chatsAsked, median(c.chatLatencies).Round(10*time.Microsecond))
	}
}

// add counts r for the summary.
func (o *demoOutput) add(r comparedRow) {
	if !r.Equal {
		o.differences = append(o.differences, r)
	}
	if n := len(o.scenarios); n == 0 || o.scenarios[n-1].name != r.Scenario {
		o.scenarios = append(o.scenarios, &scenarioSum{name: r.Scenario})
	}
	sc := o.scenarios[len(o.scenarios)-1]
	sc.requests++
	sc.prompt += r.PromptTokens
	sc.predicted += r.Predicted[r.Pod]
	sc.cached += r.Cached
	if r.Equal {
		sc.equal++
	}
}

// invite prints what to try next.
func (o *demoOutput) invite(url string, c *comparison) error {
	dir, err := os.MkdirTemp("", "kvindex-demo-")
	if err != nil {
		return fmt.Errorf("cannot write an example query: %w", err)
	}
	file := filepath.Join(dir, "query.json")
	if err := os.WriteFile(file, c.lastQuery, 0o600); err != nil {
		return fmt.Errorf("cannot write an example query: %w", err)
	}
	o.printf("\nIt keeps serving; Ctrl-C ends it. Worth trying:\n%s", strings.ReplaceAll(strings.ReplaceAll(`
  curl -s 'URL/v1/instances?format=table'          who is followed, and how well
  curl -s URL/v1/query -d @FILE                    ask again what the last request asked
  curl -s URL/v1/explain -d @FILE                  ... block by block
  curl -s 'URL/v1/dump?limit=3'                    what is in the index
  curl -s URL/metrics | grep kvindex_
  open URL/                                        the same for eyes
`, "URL", url), "FILE", file))
	return nil
}
