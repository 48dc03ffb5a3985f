package chat

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// oracleNow is the day on which the oracle's engine ran.
func oracleNow() time.Time { return time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC) }

// tokenizerDir is where scripts/test-tokenizers.sh puts real tokenizers.
func tokenizerDir(t testing.TB, name string) string {
	t.Helper()
	cache := os.Getenv("KVINDEX_CACHE")
	if cache == "" {
		base := os.Getenv("XDG_CACHE_HOME")
		if base == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				t.Skipf("no home: %v", err)
			}
			base = filepath.Join(home, ".cache")
		}
		cache = filepath.Join(base, "kvindex")
	}
	return filepath.Join(cache, "test-tokenizers", name)
}

// realRenderer compiles the template of a real model.
func realRenderer(t testing.TB, name string) (*Renderer, error) {
	t.Helper()
	config, err := os.ReadFile(filepath.Join(tokenizerDir(t, name), "tokenizer_config.json"))
	if errors.Is(err, os.ErrNotExist) {
		if os.Getenv("CI") != "" {
			t.Fatalf("the tokenizer %s is missing: run scripts/test-tokenizers.sh", name)
		}
		t.Skipf("the tokenizer %s is missing: run scripts/test-tokenizers.sh", name)
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := ParseConfig(Files{TokenizerConfig: config})
	if err != nil {
		t.Fatal(err)
	}
	return Compile(c, Options{Now: oracleNow})
}

// oracleCase is what a real vLLM 0.32.0 answered to a request; see
// testdata/oracle.
type oracleCase struct {
	ID             string          `json:"id"`
	Kind           string          `json:"kind"`
	Request        json.RawMessage `json:"request"`
	RenderExtra    json.RawMessage `json:"render_extra"`
	Rendered       *string         `json:"rendered_text"`
	TokenizeStatus int             `json:"tokenize_status"`
	RenderStatus   int             `json:"render_status"`
	RenderEqual    *bool           `json:"render_equal"`
}

var oracleNames = []string{"qwen3", "qwen2_5", "llama3_1", "llama3_2", "deepseek_v3", "gemma3", "mistral_nemo", "gptoss"}

func readOracle(t *testing.T, name string) []oracleCase {
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
		if c.Kind == "chat" {
			cases = append(cases, c)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return cases
}

// TestOracle holds every chat of the oracle against what the engine answered,
// on both endpoints.
func TestOracle(t *testing.T) {
	for _, name := range oracleNames {
		t.Run(name, func(t *testing.T) {
			r, compileErr := realRenderer(t, name)
			var identical, unknown, refused, different int
			for _, c := range readOracle(t, name) {
				for _, kind := range []Kind{Tokenize, ChatCompletions} {
					body, status := []byte(c.Request), c.TokenizeStatus
					if kind == ChatCompletions {
						body, status = merge(t, c.Request, c.RenderExtra), c.RenderStatus
						if c.RenderEqual == nil && status == 200 {
							continue // no text of this endpoint to compare with
						}
					}
					text, err := renderBody(r, compileErr, body, kind)
					var unsupported *UnsupportedError
					var invalid *InvalidError
					switch {
					case errors.As(err, &unsupported):
						unknown++
						if name != "gptoss" || !strings.Contains(unsupported.Why, "no chat template") {
							t.Errorf("%s kind %d: unknown: %v", c.ID, kind, err)
						}
					case errors.As(err, &invalid) && status == 400:
						refused++
					case err == nil && status == 200 && c.Rendered != nil && text == *c.Rendered:
						identical++
					default:
						different++
						t.Errorf("%s kind %d: engine %d, here %v; %s", c.ID, kind, status, err, diff(c.Rendered, text))
					}
				}
			}
			t.Logf("%-12s identical %3d  refused as the engine does %2d  unknown %3d  different %d",
				name, identical, refused, unknown, different)
		})
	}
}

func renderBody(r *Renderer, compileErr error, body []byte, kind Kind) (string, error) {
	if compileErr != nil {
		return "", compileErr
	}
	req, err := ParseRequest(body, kind)
	if err != nil {
		return "", err
	}
	out, err := r.Render(req)
	return out.Text, err
}

// merge adds the members of extra to those of an object.
func merge(t *testing.T, object, extra json.RawMessage) []byte {
	t.Helper()
	if len(extra) == 0 {
		return object
	}
	more := bytes.TrimSpace(extra)
	return fmt.Appendf(nil, "%s, %s", bytes.TrimSuffix(bytes.TrimSpace(object), []byte("}")), more[1:])
}

func diff(want *string, got string) string {
	if want == nil {
		return "no text to compare with"
	}
	i := 0
	for i < len(*want) && i < len(got) && (*want)[i] == got[i] {
		i++
	}
	return fmt.Sprintf("at %d: want %.60q, got %.60q", i, (*want)[i:], got[i:])
}
