package bpe

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"slices"
	"strings"
)

// UnsupportedError says that a tokenizer.json is in order but has a component
// that this package does not know exactly. Another engine may know it.
type UnsupportedError struct {
	Component string // where in tokenizer.json: "normalizer", "pre_tokenizer" or "model"
	Detail    string // what about it
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("unsupported %s: %s", e.Component, e.Detail)
}

func unsupported(component, format string, args ...any) error {
	return &UnsupportedError{Component: component, Detail: fmt.Sprintf(format, args...)}
}

// tokenizerFile is what matters here of a tokenizer.json. Truncation, padding,
// added tokens, post-processor and decoder do not: none of them changes the
// ids of a text without added tokens.
type tokenizerFile struct {
	Normalizer   jsontext.Value `json:"normalizer"`
	PreTokenizer jsontext.Value `json:"pre_tokenizer"`
	Model        jsontext.Value `json:"model"`
}

// modelConfig is the model of a tokenizer.json. The library's defaults for
// absent members are the zero values.
type modelConfig struct {
	Type         string            `json:"type"`
	Dropout      *float64          `json:"dropout"`
	UnkToken     *string           `json:"unk_token"`
	Prefix       *string           `json:"continuing_subword_prefix"`
	Suffix       *string           `json:"end_of_word_suffix"`
	FuseUnk      *bool             `json:"fuse_unk"` // without unk_token there is nothing to fuse
	ByteFallback *bool             `json:"byte_fallback"`
	IgnoreMerges *bool             `json:"ignore_merges"`
	Vocab        map[string]uint32 `json:"vocab"`
	Merges       []mergeConfig     `json:"merges"`
}

// mergeConfig is one merge: "a b" in older files, ["a", "b"] in newer ones.
type mergeConfig struct{ left, right string }

// UnmarshalJSONFrom reads either form.
func (m *mergeConfig) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() == '[' {
		var pair []string
		if err := json.UnmarshalDecode(d, &pair); err != nil {
			return err
		}
		if len(pair) != 2 {
			return fmt.Errorf("a merge of %d tokens", len(pair))
		}
		m.left, m.right = pair[0], pair[1]
		return nil
	}
	var s string
	if err := json.UnmarshalDecode(d, &s); err != nil {
		return err
	}
	var ok bool
	m.left, m.right, ok = strings.Cut(s, " ")
	if !ok || strings.Contains(m.right, " ") {
		return fmt.Errorf("the merge %q is not two tokens", s)
	}
	return nil
}

// parse reads a tokenizer.json and says which pattern it has and whether it
// normalizes to NFC.
func parse(tokenizerJSON []byte) (*modelConfig, pattern, bool, error) {
	fail := func(err error) (*modelConfig, pattern, bool, error) { return nil, pattern{}, false, err }
	var f tokenizerFile
	if err := json.Unmarshal(tokenizerJSON, &f); err != nil {
		return fail(fmt.Errorf("cannot parse tokenizer.json: %w", err))
	}
	nfc, err := parseNormalizer(f.Normalizer)
	if err != nil {
		return fail(err)
	}
	p, err := parsePreTokenizer(f.PreTokenizer)
	if err != nil {
		return fail(err)
	}
	m, err := parseModel(f.Model)
	if err != nil {
		return fail(err)
	}
	return m, p, nfc, nil
}

// parseNormalizer accepts nothing, an empty sequence, NFC, and sequences of
// these.
func parseNormalizer(v jsontext.Value) (nfc bool, err error) {
	if v == nil || v.Kind() == 'n' {
		return false, nil
	}
	var n struct {
		Type        string           `json:"type"`
		Normalizers []jsontext.Value `json:"normalizers"`
	}
	if err := json.Unmarshal(v, &n, json.RejectUnknownMembers(true)); err != nil {
		return false, unsupported("normalizer", "%v", err)
	}
	switch n.Type {
	case "NFC":
		return true, nil
	case "Sequence":
		for _, sub := range n.Normalizers {
			is, err := parseNormalizer(sub)
			if err != nil {
				return false, err
			}
			nfc = nfc || is
		}
		return nfc, nil
	}
	return false, unsupported("normalizer", "type %q", n.Type)
}

// preTokenizer is one step of a pre-tokenizer: Split or ByteLevel.
type preTokenizer struct {
	Type    string `json:"type"`
	Pattern struct {
		Regex *string `json:"Regex"`
	} `json:"pattern"`
	Behavior       string `json:"behavior"`
	Invert         bool   `json:"invert"`
	AddPrefixSpace *bool  `json:"add_prefix_space"`
	UseRegex       *bool  `json:"use_regex"`
	TrimOffsets    bool   `json:"trim_offsets"` // changes offsets, not ids
}

// parsePreTokenizer finds the known pattern that v is.
func parsePreTokenizer(v jsontext.Value) (pattern, error) {
	const component = "pre_tokenizer"
	var seq struct {
		Type          string         `json:"type"`
		PreTokenizers []preTokenizer `json:"pretokenizers"`
	}
	if err := json.Unmarshal(v, &seq, json.RejectUnknownMembers(true)); err != nil {
		return pattern{}, unsupported(component, "%v", err)
	}
	if seq.Type != "Sequence" || len(seq.PreTokenizers) == 0 {
		return pattern{}, unsupported(component, "type %q", seq.Type)
	}
	last := len(seq.PreTokenizers) - 1
	var splits []string
	for i, s := range seq.PreTokenizers[:last] {
		if s.Type != "Split" || s.Pattern.Regex == nil || s.Behavior != "Isolated" || s.Invert {
			return pattern{}, unsupported(component, "step %d, type %q, behavior %q", i, s.Type, s.Behavior)
		}
		splits = append(splits, *s.Pattern.Regex)
	}
	b := seq.PreTokenizers[last]
	isFalse := func(p *bool) bool { return p != nil && !*p } // absent: true
	if b.Type != "ByteLevel" || !isFalse(b.AddPrefixSpace) || !isFalse(b.UseRegex) {
		return pattern{}, unsupported(component, "last step, type %q", b.Type)
	}
	for _, p := range patterns() {
		if slices.Equal(p.splits, splits) {
			return p, nil
		}
	}
	return pattern{}, unsupported(component, "splits %q", splits)
}

// parseModel accepts byte-level BPE without any of its variations.
func parseModel(v jsontext.Value) (*modelConfig, error) {
	const component = "model"
	var typ struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(v, &typ); err != nil {
		return nil, fmt.Errorf("cannot parse the model of tokenizer.json: %w", err)
	}
	if typ.Type != "BPE" {
		return nil, unsupported(component, "type %q", typ.Type)
	}
	var m modelConfig
	if err := json.Unmarshal(v, &m, json.RejectUnknownMembers(true)); err != nil {
		return nil, unsupported(component, "%v", err)
	}
	switch {
	case m.Dropout != nil && *m.Dropout != 0:
		return nil, unsupported(component, "dropout %v", *m.Dropout)
	case m.UnkToken != nil:
		return nil, unsupported(component, "unk_token %q", *m.UnkToken)
	case m.Prefix != nil && *m.Prefix != "":
		return nil, unsupported(component, "continuing_subword_prefix %q", *m.Prefix)
	case m.Suffix != nil && *m.Suffix != "":
		return nil, unsupported(component, "end_of_word_suffix %q", *m.Suffix)
	case m.ByteFallback != nil && *m.ByteFallback:
		return nil, unsupported(component, "byte_fallback")
	}
	return &m, nil
}
