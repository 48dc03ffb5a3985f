// Command kvindex follows the KV-cache events of model servers and tells
// routers, over HTTP, how much of a request each of them already holds.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set by the linker; see the Makefile.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		var code exitCode
		if errors.As(err, &code) {
			os.Exit(int(code)) //nolint:gocritic // the deferred stop has nothing left to do
		}
		fmt.Fprintln(os.Stderr, "kvindex:", err)
		os.Exit(1)
	}
}

// exitCode ends the process with a status whose reason has been printed.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit status %d", int(c)) }

// run is main without the process.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	root := &cobra.Command{
		Use:   "kvindex",
		Short: "Which model server already holds how much of a request?",
		Long: `kvindex follows the KV-cache events that vLLM and SGLang publish, keeps in
memory which instance holds which block, and answers routers over HTTP/JSON:
how many leading tokens of this request does each instance already hold?`,
		Example: `  kvindex demo                               see it at work, with recorded streams of a real vLLM
  kvindex serve --config kvindex.yaml        run it
  kvindex relay --help                       publish an engine's events to NATS, beside it
  kvindex decode payload.msgpack             look into a batch of events
  kvindex tokenizer check /models/qwen3      will chats be tokenized as the engine does?
  kvindex snapshot verify /var/lib/kvindex   can a fresh replica start from what is there?`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newServeCommand(), newDemoCommand(), newRelayCommand(), newRecordCommand(), newDecodeCommand(),
		newTokenizerCommand(), newSnapshotCommand(), newVersionCommand())
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return root.ExecuteContext(ctx)
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), versionLine())
			return err
		},
	}
}
