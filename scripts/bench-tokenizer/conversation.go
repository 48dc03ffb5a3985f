package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/kvindex/kvindex/tokenizer"
)

// turns is how many requests a conversation has.
const turns = 10

// growth is how a conversation gets long: how many tokens its first message
// has, and how many each later turn adds, the assistant's reply and the next
// question.
type growth struct {
	Name    string
	Opening int
	Turn    int
}

// evenGrowth reaches size tokens with the last turn, each of which adds the
// same: long replies, tool output.
func evenGrowth(size int) growth { return growth{"even", size / turns, size / turns} }

// documentTurn is what questions about a document and their answers have.
const documentTurn = 250

// documentGrowth has size tokens with the second turn: it begins with a long
// document (or system prompt), and questions about it follow.
func documentGrowth(size int) growth {
	return growth{"document", size - documentTurn, documentTurn}
}

// tokensAt is about how many tokens the request of a turn has, from 1.
func (g growth) tokensAt(turn int) int { return g.Opening + (turn-1)*g.Turn }

// message of a chat request.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// writer writes conversations of text that no other conversation has.
type writer struct {
	corpus        *corpus
	bytesPerToken float64
}

// newWriter measures how long the tokens of a tokenizer are.
func newWriter(c *corpus, t *tokenizer.Tokenizer) (*writer, error) {
	const trial = 200_000
	w := &writer{corpus: c, bytesPerToken: 1}
	text, err := w.text(trial)
	if err != nil {
		return nil, err
	}
	tokens, err := t.Encode(text, false)
	if err != nil {
		return nil, fmt.Errorf("cannot tokenize %d bytes: %w", len(text), err)
	}
	w.bytesPerToken = float64(len(text)) / float64(tokens.Count)
	return w, nil
}

// text is about n tokens: three parts of prose, two of code.
func (w *writer) text(n int) (string, error) {
	size := int(float64(n) * w.bytesPerToken)
	prose, err := w.corpus.takeProse(size * 3 / 5)
	if err != nil {
		return "", err
	}
	code, err := w.corpus.takeCode(size * 2 / 5)
	if err != nil {
		return "", err
	}
	// White space at the front would join the line break that the template puts there.
	return strings.TrimSpace(prose) + "\n\n```go\n" + code + "\n```", nil
}

// conversation returns the bodies of the requests of a new one, turn by turn.
func (w *writer) conversation(g growth) ([][]byte, error) {
	messages := []message{{"system", "You are an assistant that answers questions about a large code base."}}
	bodies := make([][]byte, 0, turns)
	for turn := range turns {
		question := g.Opening
		if turn > 0 {
			question = g.Turn / 5
			reply, err := w.text(g.Turn - question)
			if err != nil {
				return nil, err
			}
			messages = append(messages, message{"assistant", reply})
		}
		text, err := w.text(question)
		if err != nil {
			return nil, err
		}
		messages = append(messages, message{"user", text})
		var body bytes.Buffer
		e := json.NewEncoder(&body)
		e.SetEscapeHTML(false) // clients do not
		if err := e.Encode(map[string]any{"model": chatModel, "messages": messages}); err != nil {
			return nil, fmt.Errorf("cannot write a request: %w", err)
		}
		bodies = append(bodies, body.Bytes())
	}
	return bodies, nil
}
