package tokenizer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// errDiffers is the root of proofs that failed.
var errDiffers = errors.New("it gives other token ids than its engine's library")

// proofTexts is how many generated texts a tokenizer must get right before it
// is used.
const proofTexts = 200

// prove holds a tokenizer against the oracle of its parts: text in one piece
// there, in cached segments here. The error says where the first difference
// is, never what the text was made of beyond our own words.
func prove(tok *Tokenizer, p *Parts) (proof string, err error) {
	if p.Oracle == nil {
		return "none: this build has no second tokenizer to compare with", nil
	}
	s, _, err := parseSpec(p.JSON)
	if err != nil {
		return "", err
	}
	trial := *tok
	trial.cache = NewCache(1 << 20)
	rng := rand.New(rand.NewPCG(1, 2)) // the same texts every time: a failure can be looked into
	text := ""
	tokens := 0
	for i := range proofTexts {
		if i%4 == 0 {
			text = ""
		}
		text += proofText(rng, s.Added) // grows like a conversation
		want, err := p.Oracle(text)
		if err != nil {
			return "", fmt.Errorf("the proof cannot be made: %w", err)
		}
		got, err := trial.Encode(text, false)
		if err != nil {
			return "", fmt.Errorf("the proof cannot be made: %w", err)
		}
		ids := got.AppendIDs(nil)
		if !slices.Equal(ids, want) {
			at := 0
			for at < len(ids) && at < len(want) && ids[at] == want[at] {
				at++
			}
			return "", fmt.Errorf("%w: first in generated text %d, token %d of %d", errDiffers, i, at, len(want))
		}
		tokens += len(want)
	}
	return fmt.Sprintf("%d generated texts, %d tokens, equal to the engine's library", proofTexts, tokens), nil
}

// proofText makes a text that touches what tokenizers stumble over.
func proofText(rng *rand.Rand, added []addedToken) string {
	words := []string{
		"The quiet", " gardens", "'s", "'LL", " 12345", "3.14", "\n", "\n\n", "  ", "\t", "\r\n", "   x", "é", "e\u0301", "中文字符", "日本語", "한국어",
		"ﬁ", "ǅ", "😀", "👩‍👩‍👧", "\u00a0", "\u3000", "func main() {\n\tfmt.Println(\"hi\")\n}", "/path/to:\n/A", "!!!", "…", "<|", "|>", "</s", "ſ", "İ",
		strings.Repeat("a", 70), strings.Repeat(" ", 33), strings.Repeat("=", 40), "http://example.com/?q=1&r=%20", "٣٤٥", "½", "x²",
	}
	var b strings.Builder
	for range 5 + rng.IntN(40) {
		if len(added) > 0 && rng.IntN(6) == 0 {
			b.WriteString(added[rng.IntN(len(added))].Content)
			continue
		}
		b.WriteString(words[rng.IntN(len(words))])
	}
	return b.String()
}
