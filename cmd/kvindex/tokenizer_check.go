package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvindex/kvindex/tokenizer"
	"github.com/kvindex/kvindex/tokenizer/remote"
)

func newTokenizerCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "tokenizer", Short: "Look at tokenizers", Args: cobra.NoArgs}
	var engine, model string
	var offline bool
	check := &cobra.Command{
		Use:   "check DIR|MODEL",
		Short: "Load a model's tokenizer and prove it",
		Long: `Load a model's tokenizer as kvindex serve does: from a directory, or by the name
that the model has on the hub (its cache under HF_HOME, else a download; HF_TOKEN,
HF_ENDPOINT). Say what will tokenize and why, hold it against the Hugging Face
library and, with --engine, against a running vLLM: texts and chats that touch
what tokenizers and templates stumble over. The exit status is 0 if nothing
differs.`,
		Example: `  kvindex tokenizer check /models/qwen3
  kvindex tokenizer check Qwen/Qwen3-0.6B --engine http://10.0.0.7:8000
  kvindex tokenizer check meta-llama/Llama-3.1-8B-Instruct@main --local-files-only`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			log := newLogger(cmd.ErrOrStderr(), logConfig{Level: "info", Format: "text"})
			c := checkOptions{source: args[0], engine: strings.TrimRight(engine, "/"), model: model, offline: offline}
			return checkTokenizer(cmd.Context(), c, log, cmd.OutOrStdout())
		},
	}
	check.Flags().StringVar(&engine, "engine", "", "`URL` of a vLLM that serves the model")
	check.Flags().StringVar(&model, "model", "", "`name` of the model there, if it serves several")
	check.Flags().BoolVar(&offline, "local-files-only", false, "download nothing")
	cmd.AddCommand(check)
	return cmd
}

// checkOptions say what to check.
type checkOptions struct {
	source, engine, model string
	offline               bool
}

// checkedModel is the name that the tokenizer has in its own registry.
const checkedModel = "checked"

func checkTokenizer(ctx context.Context, c checkOptions, log *slog.Logger, out io.Writer) error {
	h, err := newHub(hubConfig{LocalFilesOnly: c.offline}, log)
	if err != nil {
		return err
	}
	r := tokenizer.NewRegistry(tokenizer.RegistryOptions{Load: hubLoader(h), CacheBytes: 8 << 20})
	defer r.Close()
	begin := time.Now()
	r.Add(ctx, checkedModel, c.source)
	r.Wait()
	st, _ := r.Status(checkedModel)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, value)
		}
	}
	row("tokenizer", st.Source)
	row("state", string(st.State))
	row("reason", st.Reason)
	row("tokenized by", st.Engine)
	row("proof", st.Proof)
	row("loaded in", time.Since(begin).Round(time.Millisecond).String())
	ok := st.State == tokenizer.Ready
	if ok && c.engine != "" {
		var err error
		if ok, err = compareWithEngine(ctx, r, c, row); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if !ok {
		return exitCode(1)
	}
	return nil
}

// compareWithEngine holds the tokenizer against a running engine.
func compareWithEngine(ctx context.Context, r *tokenizer.Registry, c checkOptions, row func(name, value string)) (same bool, err error) {
	client, err := remote.New(remote.Options{Timeout: 10 * time.Second})
	if err != nil {
		return false, err
	}
	defer client.Close()
	target := remote.Target{ID: c.engine, URL: c.engine, Model: c.model}
	refused := map[string]int{}
	proof, done := r.ProveWith(ctx, checkedModel, c.engine, func(ctx context.Context, q tokenizer.Request) ([]uint32, error) {
		ids, err := client.TokensFrom(ctx, target, remoteKind(q.Kind), q.Body)
		err = remoteError(err)
		if invalid := (*tokenizer.InvalidError)(nil); errors.As(err, &invalid) {
			refused[invalid.Reason]++
		}
		return ids, err
	})
	row("engine", fmt.Sprintf("%s: %d probes equal, %d refused", c.engine, proof.Equal, proof.Refused))
	for reason, n := range refused {
		row("refused", fmt.Sprintf("%d: %s", n, reason))
	}
	row("DIFFERS", proof.Differs)
	if proof.Error != "" {
		return false, fmt.Errorf("cannot ask the engine: %s", proof.Error)
	}
	return done && proof.Differs == "", nil
}
