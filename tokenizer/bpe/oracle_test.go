package bpe_test

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// oracleCase is a request to a real engine with its answer.
type oracleCase struct {
	ID      string
	Kind    string // "completion" or "chat"
	Request struct {
		Prompt           *string
		AddSpecialTokens *bool `json:"add_special_tokens"`
	}
	Tokens       []uint32
	Status       int     `json:"tokenize_status"`
	RenderedText *string `json:"rendered_text"` // by the engine's chat template
}

func readOracle(tb testing.TB, name string) []oracleCase {
	tb.Helper()
	f, err := os.Open(filepath.Join("..", "testdata", "oracle", "oracle_"+name+".jsonl.gz"))
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		tb.Fatal(err)
	}
	var cases []oracleCase
	d := json.NewDecoder(bufio.NewReader(z))
	for d.More() {
		var c oracleCase
		if err := d.Decode(&c); err != nil {
			tb.Fatal(err)
		}
		cases = append(cases, c)
	}
	return cases
}

// The ids of every text that a real engine was asked for, prompts of
// completions and rendered chats, are the engine's.
func TestOracle(t *testing.T) {
	for _, tc := range supported {
		if tc.name == "demo-model" {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			e := encoder(t, tc.name)
			added := readAddedTokens(t, tokenizerJSON(t, tc.name))
			texts, tokens, different := 0, 0, 0
			for _, c := range readOracle(t, tc.name) {
				text, special := c.RenderedText, c.Kind == "completion" // by default
				if special {
					text = c.Request.Prompt
				}
				if p := c.Request.AddSpecialTokens; p != nil {
					special = *p
				}
				if c.Status != 200 || text == nil {
					continue
				}
				got := added.encode(t, e, *text)
				if special {
					got = append(slices.Clone(added.before), got...)
				}
				texts++
				tokens += len(c.Tokens)
				if !slices.Equal(got, c.Tokens) {
					different++
					t.Errorf("%s: %s", c.ID, firstDifference(got, c.Tokens))
				}
			}
			t.Logf("%d texts, %d tokens, %d texts different", texts, tokens, different)
			if texts == 0 {
				t.Error("no case")
			}
		})
	}
}
