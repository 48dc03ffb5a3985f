package chat

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

const (
	dumpTemplate = "{% for m in messages %}{{ m | tojson }}\n{% endfor %}{{ [tools, documents, add_generation_prompt, " +
		"enable_thinking | d('-'), keep | d('-'), reasoning_effort | d('-'), bos_token] | tojson }}"
	// A loop over contents makes vLLM hand them over as parts.
	partsTemplate = "{% for m in messages %}{% for c in m.content %}{% endfor %}{% endfor %}" + dumpTemplate
)

// TestMessages holds what templates get of a request against what the code of
// vLLM 0.32.0 (request models and renderers/chat_utils.py, with pydantic
// 2.14 and openai 3.57) made of it: one body each, for both endpoints, as text
// and as parts.
func TestMessages(t *testing.T) {
	// What 0.32.0 refuses and others take, or takes by accident.
	lenient := map[string]bool{
		"content list of str": true, "part input_text": true, "part output_text": true,
		"tc no id": true, "tc no type": true, "tc no type + reasoning": true,
		"tc args dict": true, "tc args null": true, "tc args missing": true,
	}
	// What is left to engines although 0.32.0 takes or refuses it.
	unknown := map[string]bool{
		"part type unknown": true, "part file": true, "part uuid": true, "own template": true,
		"tc args NaN": true, // for the integer of 20 digits in it
	}
	// 0.32.0 takes {} for no tool calls.
	strict := map[string]bool{"tc dict": true}

	renderers := map[bool]*Renderer{false: compile(t, dumpTemplate), true: compile(t, partsTemplate)}
	f, err := os.Open(filepath.Join("testdata", "messages.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	same, refused := 0, 0
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var c struct {
			Name, Kind, Body string
			Parts            bool
			Text, Error      *string
		}
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		kind := map[string]Kind{"chat": ChatCompletions, "tokenize": Tokenize}[c.Kind]
		got, err := renderBody(renderers[c.Parts], nil, []byte(c.Body), kind)
		var unsupported *UnsupportedError
		var invalid *InvalidError
		switch {
		case errors.As(err, &unsupported):
			if !unknown[c.Name] {
				t.Errorf("%s (%s): %v", c.Name, c.Kind, err)
			}
		case errors.As(err, &invalid):
			refused++
			if c.Error == nil && !strict[c.Name] {
				t.Errorf("%s (%s): %v, but vLLM gives %q", c.Name, c.Kind, err, *c.Text)
			}
		case c.Error != nil:
			if !lenient[c.Name] {
				t.Errorf("%s (%s): vLLM refuses (%s), here %q", c.Name, c.Kind, *c.Error, got)
			}
		case got != *c.Text:
			t.Errorf("%s (%s):\nwant %s\ngot  %s", c.Name, c.Kind, *c.Text, got)
		default:
			same++
		}
	}
	t.Logf("%d as in vLLM, %d refused there and here", same, refused)
}

// compile makes a renderer of a template.
func compile(t testing.TB, template string) *Renderer {
	t.Helper()
	r, err := Compile(Config{
		Templates:     map[string]string{"default": template},
		SpecialTokens: map[string]string{"bos_token": "<s>"},
	}, Options{Now: oracleNow})
	if err != nil {
		t.Fatal(err)
	}
	return r
}
