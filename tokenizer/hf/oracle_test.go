//go:build cgo && !nohf && (amd64 || arm64)

package hf

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// oracleCase is one line of tokenizer/testdata/oracle: what a real vLLM answered to /tokenize.
type oracleCase struct {
	ID      string `json:"id"`
	Kind    string `json:"kind"` // completion or chat
	Request struct {
		Prompt           string `json:"prompt"`
		AddSpecialTokens *bool  `json:"add_special_tokens"`
	} `json:"request"`
	Status   int      `json:"tokenize_status"`
	Tokens   []uint32 `json:"tokens"`
	Rendered *string  `json:"rendered_text"` // of a chat: what the template gave
}

// readOracle returns the cases that have both a text and an answer.
func readOracle(t testing.TB, name string) []oracleCase {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "testdata", "oracle", "oracle_"+name+".jsonl.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var cases []oracleCase
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var c oracleCase
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		if c.Status == 200 && (c.Kind == "completion" || c.Rendered != nil) {
			cases = append(cases, c)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return cases
}

// TestRealTokenizers runs the checks that every tokenizer must pass, on one that is loaded for all of them.
func TestRealTokenizers(t *testing.T) {
	for _, name := range realNames {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "qwen3" {
				t.Skip("-short: only qwen3")
			}
			e := realEncoder(t, name)
			t.Run("oracle", func(t *testing.T) { checkOracle(t, name, e) })
			t.Run("NUL", func(t *testing.T) { checkNULIsEncoded(t, name, e) })
			if name != "qwen2_5" && name != "llama3_2" { // which are like qwen3 and llama3_1 in all that matters here
				t.Run("escaping", func(t *testing.T) { checkEscaping(t, e) })
			}
			t.Run("config", func(t *testing.T) { checkConfigChangesNothing(t, name, e) })
		})
	}
}

// checkOracle compares with the ids that a real vLLM gave, for completions and for the rendered text of chats.
func checkOracle(t *testing.T, name string, e *Encoder) {
	identical := map[string]int{}
	different, ids := 0, 0
	for _, c := range readOracle(t, name) {
		text, special := c.Request.Prompt, true // vLLM's default for completions
		if c.Kind == "chat" {
			text, special = *c.Rendered, false
		}
		if c.Request.AddSpecialTokens != nil {
			special = *c.Request.AddSpecialTokens
		}
		encode := e.Append
		if special {
			encode = e.AppendSpecial
		}
		got, err := encode(nil, text)
		if err != nil {
			t.Errorf("%s: %v", c.ID, err)
		}
		if !slices.Equal(got, c.Tokens) {
			t.Errorf("%s differs %s", c.ID, firstDifference(got, c.Tokens))
			different++
			continue
		}
		identical[c.Kind]++
		ids += len(got)
	}
	t.Logf("%s: %d completions and %d chats identical, %d different; %d ids", name,
		identical["completion"], identical["chat"], different, ids)
	if identical["completion"] == 0 {
		t.Error("no completion was compared")
	}
}
