package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvindex/kvindex/tokenizer"
)

func newTokenizerCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "tokenizer", Short: "Look at tokenizers", Args: cobra.NoArgs}
	var engine, model string
	check := &cobra.Command{
		Use:   "check DIR",
		Short: "Load a model's tokenizer and prove it",
		Long: `Load the tokenizer in a directory as kvindex serve does, say what will tokenize
and why, hold it against the Hugging Face library and, with --engine, against
the /tokenize of a running vLLM: texts and chats that touch what tokenizers and
templates stumble over. The exit status is 0 if nothing differs.`,
		Example: `  kvindex tokenizer check /models/qwen3
  kvindex tokenizer check /models/qwen3 --engine http://10.0.0.7:8000 --model Qwen/Qwen3-0.6B`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return checkTokenizer(cmd.Context(), args[0], engine, model, cmd.OutOrStdout())
		},
	}
	check.Flags().StringVar(&engine, "engine", "", "`URL` of a vLLM that serves the model")
	check.Flags().StringVar(&model, "model", "", "`name` of the model there, if it serves several")
	cmd.AddCommand(check)
	return cmd
}

// checkedModel is the name that the tokenizer has in its own registry.
const checkedModel = "checked"

func checkTokenizer(ctx context.Context, dir, engine, model string, out io.Writer) error {
	r := tokenizer.NewRegistry(loadTokenizer, 8<<20, nil)
	begin := time.Now()
	r.Add(ctx, checkedModel, dir)
	r.Wait()
	st, _ := r.Status(checkedModel)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, value string) { fmt.Fprintf(w, "%s\t%s\n", name, value) }
	row("tokenizer", dir)
	row("state", string(st.State))
	if st.Reason != "" {
		row("reason", st.Reason)
	}
	if st.State == tokenizer.Ready {
		row("tokenized by", st.Engine)
		row("proof", st.Proof)
	}
	row("loaded in", time.Since(begin).Round(time.Millisecond).String())
	differences := 0
	if st.State == tokenizer.Ready && engine != "" {
		var err error
		if differences, err = compareWithEngine(ctx, r, strings.TrimRight(engine, "/"), model, row); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if st.State != tokenizer.Ready || differences > 0 {
		return exitCode(1)
	}
	return nil
}

// engineProbes are requests that an engine is asked to tokenize: what the
// router would forward, with little of everything.
func engineProbes() []map[string]any {
	texts := []string{"Hello, world!", "  two spaces, a tab\tand\n\nlines\r\n", "l'été, 12345.678 and \u00bd", "中文、日本語、한국어", "😀👩‍👩‍👧 e\u0301 ﬁ", "func main() {\n\tx := []int{1, 2}\n}"}
	var probes []map[string]any
	for _, t := range texts {
		probes = append(probes,
			map[string]any{"prompt": t},
			map[string]any{"messages": []any{map[string]any{"role": "user", "content": t}}},
			map[string]any{"messages": []any{
				map[string]any{"role": "user", "content": "Hi"}, map[string]any{"role": "assistant", "content": t}, map[string]any{"role": "user", "content": t + " again"},
			}})
	}
	return probes
}

// compareWithEngine tokenizes probes here and there.
func compareWithEngine(ctx context.Context, r *tokenizer.Registry, engine, model string, row func(name, value string)) (differences int, err error) {
	equal, unknown := 0, 0
	for i, probe := range engineProbes() {
		if model != "" {
			probe["model"] = model
		}
		body, err := json.Marshal(probe)
		if err != nil {
			return 0, err
		}
		want, err := engineTokens(ctx, engine, body)
		if err != nil {
			return 0, err
		}
		got, _, err := tokenizers{r}.AppendTokens(nil, checkedModel, body)
		switch {
		case err != nil:
			unknown++
			row(fmt.Sprintf("probe %d", i), "not tokenized here: "+err.Error())
		case slices.Equal(got, want):
			equal++
		default:
			differences++
			at := 0
			for at < len(got) && at < len(want) && got[at] == want[at] {
				at++
			}
			row(fmt.Sprintf("probe %d", i), fmt.Sprintf("DIFFERS from token %d on: %s", at, body))
		}
	}
	row("engine", fmt.Sprintf("%s: %d probes equal, %d not tokenized here, %d different", engine, equal, unknown, differences))
	return differences, nil
}

// engineTokens asks an engine's /tokenize.
func engineTokens(ctx context.Context, engine string, body []byte) ([]uint32, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, engine+"/tokenize", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("cannot ask the engine: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return nil, fmt.Errorf("cannot read the engine's answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("POST %s/tokenize: %s: %.300s", engine, resp.Status, answer)
	}
	var out struct {
		Tokens []uint32 `json:"tokens"`
	}
	if err := json.Unmarshal(answer, &out); err != nil {
		return nil, fmt.Errorf("POST %s/tokenize: not the JSON that was expected: %w", engine, err)
	}
	return out.Tokens, nil
}
