//go:build cgo && !nohf && (amd64 || arm64)

package hf

import (
	"cmp"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"slices"
	"strconv"
)

// tokenizerConfig is what tokenizer_config.json says about tokens. Special tokens are strings or objects.
type tokenizerConfig struct {
	Decoder    map[string]addedToken `json:"added_tokens_decoder"`
	BOS        jsontext.Value        `json:"bos_token"`
	EOS        jsontext.Value        `json:"eos_token"`
	Unk        jsontext.Value        `json:"unk_token"`
	Sep        jsontext.Value        `json:"sep_token"`
	Pad        jsontext.Value        `json:"pad_token"`
	Cls        jsontext.Value        `json:"cls_token"`
	Mask       jsontext.Value        `json:"mask_token"`
	Additional jsontext.Value        `json:"additional_special_tokens"` // array
	Extra      jsontext.Value        `json:"extra_special_tokens"`      // array or object
}

// mergeConfig appends to the added tokens of tokenizer.json those of tokenizer_config.json, in the order in which
// transformers' PreTrainedTokenizerFast adds them: the entries of added_tokens_decoder by id, unless tokenizer.json has
// the same, then the named special tokens that are not among them. all is the list to load; checked are those new ones
// of which the configuration gives the id.
func mergeConfig(tokens []addedToken, config []byte) (checked, all []addedToken, err error) {
	if len(config) == 0 {
		return nil, tokens, nil
	}
	var c tokenizerConfig
	if err := json.Unmarshal(config, &c, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, nil, fmt.Errorf("cannot read tokenizer_config.json: %w", err)
	}
	known := make(map[string]addedToken, len(tokens)+len(c.Decoder))
	for _, t := range tokens {
		known[t.Content] = t
	}
	decoder := make([]addedToken, 0, len(c.Decoder))
	for key, t := range c.Decoder {
		id, err := strconv.ParseUint(key, 10, 32)
		if err != nil {
			return nil, nil, fmt.Errorf("cannot read added_tokens_decoder of tokenizer_config.json: key %q is not an id", key)
		}
		t.ID = uint32(id)
		decoder = append(decoder, t)
	}
	slices.SortFunc(decoder, func(a, b addedToken) int { return cmp.Compare(a.ID, b.ID) })
	for _, t := range decoder {
		old, found := known[t.Content]
		if t.Content == "" || (found && old == t) {
			continue
		}
		known[t.Content] = t
		tokens = append(tokens, t)
		if !found {
			checked = append(checked, t)
		}
	}
	named, err := c.named()
	if err != nil {
		return nil, nil, err
	}
	for _, t := range named {
		if _, found := known[t.Content]; found || t.Content == "" {
			continue
		}
		known[t.Content] = t
		tokens = append(tokens, t)
	}
	return checked, tokens, nil
}

// named returns the special tokens that have a role, in the order of transformers.
func (c *tokenizerConfig) named() ([]addedToken, error) {
	var tokens []addedToken
	for _, raw := range []jsontext.Value{c.BOS, c.EOS, c.Unk, c.Sep, c.Pad, c.Cls, c.Mask, c.Additional, c.Extra} {
		var err error
		if tokens, err = appendSpecials(tokens, raw); err != nil {
			return nil, fmt.Errorf("cannot read the special tokens of tokenizer_config.json: %w", err)
		}
	}
	return tokens, nil
}

// appendSpecials appends the token or tokens that raw stands for: a string; an object with content; an array of those;
// an object of names and those. Anything else stands for none.
func appendSpecials(tokens []addedToken, raw jsontext.Value) ([]addedToken, error) {
	switch raw.Kind() {
	case jsontext.KindString:
		t := addedToken{Special: true}
		if err := json.Unmarshal(raw, &t.Content); err != nil {
			return nil, err
		}
		return append(tokens, t), nil
	case jsontext.KindBeginArray:
		var list []jsontext.Value
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, err
		}
		for _, element := range list {
			var err error
			if tokens, err = appendSpecials(tokens, element); err != nil {
				return nil, err
			}
		}
		return tokens, nil
	case jsontext.KindBeginObject:
		return appendSpecialObject(tokens, raw)
	}
	return tokens, nil
}

func appendSpecialObject(tokens []addedToken, raw jsontext.Value) ([]addedToken, error) {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(raw, &members, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, err
	}
	if members["content"].Kind() == jsontext.KindString {
		var t addedToken
		if err := json.Unmarshal(raw, &t, jsontext.AllowDuplicateNames(true)); err != nil {
			return nil, err
		}
		t.Special = true
		return append(tokens, t), nil
	}
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	slices.Sort(names) // their order in the file decides no id: tokens that are not in the vocabulary are not in use
	for _, name := range names {
		if members[name].Kind() != jsontext.KindString {
			continue
		}
		var err error
		if tokens, err = appendSpecials(tokens, members[name]); err != nil {
			return nil, err
		}
	}
	return tokens, nil
}
