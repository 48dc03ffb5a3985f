package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// addedToken is an entry of added_tokens in a tokenizer.json.
type addedToken struct {
	ID         uint32 `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
}

// spec is what of a tokenizer.json decides whether text may be tokenized in
// parts.
type spec struct {
	Added      []addedToken    `json:"added_tokens"`
	Normalizer json.RawMessage `json:"normalizer"`
	PreTok     json.RawMessage `json:"pre_tokenizer"`
	Model      struct {
		Type    string   `json:"type"`
		Dropout *float64 `json:"dropout"`
	} `json:"model"`
}

// parseSpec reads a tokenizer.json and reports why its texts may not be
// tokenized in parts; "" if they may. The rules are those under which the
// stages of a Hugging Face tokenizer never look across an added token: those
// are found first, on the raw text, and each stretch between them then goes
// through the other stages by itself.
func parseSpec(tokenizerJSON []byte) (s spec, ineligible string, err error) {
	if err := json.Unmarshal(tokenizerJSON, &s); err != nil {
		return s, "", fmt.Errorf("cannot parse tokenizer.json: %w", err)
	}
	if s.Model.Type == "" && s.Added == nil {
		return s, "", fmt.Errorf("cannot use tokenizer.json: it has no model")
	}
	if s.Model.Dropout != nil && *s.Model.Dropout > 0 {
		return s, "its BPE has dropout: it is not deterministic", nil
	}
	for _, a := range s.Added {
		switch {
		case a.Content == "":
			return s, "it has an added token without content", nil
		case a.LStrip || a.RStrip:
			return s, "its added tokens take the white space around them (lstrip, rstrip)", nil
		case a.SingleWord:
			return s, "its added tokens must stand alone as words (single_word)", nil
		case a.Normalized && !noNormalizer(s.Normalizer):
			return s, "its added tokens are found in normalized text", nil
		}
	}
	if strings.Contains(string(s.PreTok), `"Metaspace"`) && strings.Contains(string(s.PreTok), `"first"`) {
		return s, "its pre-tokenizer treats the beginning of the text differently (Metaspace first)", nil
	}
	return s, "", nil
}

// noNormalizer reports whether a normalizer changes nothing.
func noNormalizer(raw json.RawMessage) bool {
	if len(raw) == 0 || string(raw) == "null" {
		return true
	}
	var n struct {
		Type        string            `json:"type"`
		Normalizers []json.RawMessage `json:"normalizers"`
	}
	return json.Unmarshal(raw, &n) == nil && n.Type == "Sequence" && len(n.Normalizers) == 0
}

// matcher finds added tokens in text: of those that begin at the leftmost
// position the longest, then on from its end, as the tokenizers library does.
// It is immutable.
type matcher struct {
	heads  [256]*head // by the first byte of added tokens
	single int        // the only such byte, or -1
	empty  bool       // there is none
}

// head holds the added tokens that begin with one byte. There can be
// thousands (Gemma has 6,000 unused ones), so they are looked up by length.
type head struct {
	lengths []length // of the tokens, longest first, each once
	ids     map[string]uint32
}

// length is one length of added tokens, and what bytes those of it end with:
// most stretches of text are told from them by that.
type length struct {
	bytes int
	last  [256 / 64]uint64
}

func (l *length) endsWith(c byte) bool { return l.last[c/64]&(1<<(c%64)) != 0 }

func newMatcher(tokens []addedToken) *matcher {
	m := &matcher{single: -1}
	heads := 0
	for _, t := range tokens {
		b := t.Content[0]
		h := m.heads[b]
		if h == nil {
			h = &head{ids: map[string]uint32{}}
			m.heads[b] = h
			m.single = int(b)
			heads++
		}
		n := len(t.Content)
		i := slices.IndexFunc(h.lengths, func(l length) bool { return l.bytes == n })
		if i < 0 {
			i = len(h.lengths)
			h.lengths = append(h.lengths, length{bytes: n})
		}
		last := t.Content[n-1]
		h.lengths[i].last[last/64] |= 1 << (last % 64)
		h.ids[t.Content] = t.ID // of equal contents the last one wins, as there
	}
	for _, h := range m.heads {
		if h != nil {
			slices.SortFunc(h.lengths, func(a, b length) int { return b.bytes - a.bytes })
		}
	}
	if heads != 1 {
		m.single = -1
	}
	m.empty = heads == 0
	return m
}

// next returns the first added token in text at or after from: where it
// begins and ends, and its id. ok is false if there is none.
func (m *matcher) next(text string, from int) (start, end int, id uint32, ok bool) {
	if m.empty {
		return 0, 0, 0, false
	}
	for i := from; i < len(text); i++ {
		if m.single >= 0 { // most vocabularies: every added token begins with '<'
			j := strings.IndexByte(text[i:], byte(m.single))
			if j < 0 {
				return 0, 0, 0, false
			}
			i += j
		}
		h := m.heads[text[i]]
		if h == nil {
			continue
		}
		for k := range h.lengths {
			l := &h.lengths[k]
			end := i + l.bytes
			if end > len(text) || !l.endsWith(text[end-1]) {
				continue
			}
			if id, ok := h.ids[text[i:end]]; ok {
				return i, end, id, true
			}
		}
	}
	return 0, 0, 0, false
}

// scanner walks through a text from one added token to the next. Tokens that
// are found in raw text (normalized false) come first; those found in
// normalized text lie in what is left between them, where an empty normalizer
// makes the two the same.
type scanner struct {
	raw, inner *matcher
	text       string

	// the next raw match at or after the position, once looked for
	start, end int
	id         uint32
	found      bool
	looked     bool
}

// added are the added tokens of a tokenizer.
type added struct{ raw, inner *matcher }

func newAdded(tokens []addedToken) *added {
	var raw, inner []addedToken
	for _, t := range tokens {
		if t.Normalized {
			inner = append(inner, t)
		} else {
			raw = append(raw, t)
		}
	}
	return &added{raw: newMatcher(raw), inner: newMatcher(inner)}
}

func (a *added) scan(text string) scanner { return scanner{raw: a.raw, inner: a.inner, text: text} }

// next returns the first added token at or after from, which must not go back.
func (s *scanner) next(from int) (start, end int, id uint32, ok bool) {
	if !s.looked || s.found && s.start < from {
		s.start, s.end, s.id, s.found = s.raw.next(s.text, from)
		s.looked = true
	}
	limit := len(s.text)
	if s.found {
		limit = s.start
	}
	if start, end, id, ok := s.inner.next(s.text[:limit], from); ok {
		return start, end, id, true
	}
	return s.start, s.end, s.id, s.found
}
