package bpe_test

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
)

// crafted makes tokenizer.json files for tests.
type crafted struct {
	splits   []string
	behavior string // of the splits; "" is Isolated
	nfc      bool
	deep     bool // tokens of up to 12 of the letters a to d, merged in random order
	pairs    bool // a token for every pair of bytes, merged in random order, so that ids show where words end
}

// letters are the characters of byte-level vocabularies, by byte.
func letters() [256]string {
	var l [256]string
	next := rune(0x100)
	for b := range l {
		if b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae {
			l[b] = string(rune(b))
			continue
		}
		l[b] = string(next)
		next++
	}
	return l
}

func (c crafted) json(tb testing.TB) []byte {
	tb.Helper()
	type object = map[string]any
	l := letters()
	vocab := make(map[string]int)
	for b, s := range l {
		vocab[s] = b
	}
	merges := []any{}
	if c.pairs {
		for _, p := range rand.New(rand.NewPCG(1, 1)).Perm(1 << 16) {
			left, right := l[p>>8], l[p&0xff]
			vocab[left+right] = 256 + p
			merges = append(merges, []string{left, right})
		}
	}
	if c.deep {
		merges = deepMerges(vocab)
	}
	if c.behavior == "" {
		c.behavior = "Isolated"
	}
	var steps []any
	for _, s := range c.splits {
		steps = append(steps, object{"type": "Split", "pattern": object{"Regex": s}, "behavior": c.behavior, "invert": false})
	}
	steps = append(steps, object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false})
	var normalizer any
	if c.nfc {
		normalizer = object{"type": "NFC"}
	}
	raw, err := json.Marshal(object{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": []any{},
		"normalizer":    normalizer,
		"pre_tokenizer": object{"type": "Sequence", "pretokenizers": steps},
		"decoder":       object{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
		"model": object{
			"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil,
			"end_of_word_suffix": nil, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
			"vocab": vocab, "merges": merges,
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}

// deepMerges adds tokens to vocab and returns merges that lead to them, in an
// order that no training would give: a token may merge before its parts do.
func deepMerges(vocab map[string]int) []any {
	r := rand.New(rand.NewPCG(2, 2))
	tokens := []string{"a", "b", "c", "d"}
	seen := map[[2]string]bool{}
	var merges []any
	for len(merges) < 3000 {
		left, right := tokens[r.IntN(len(tokens))], tokens[r.IntN(len(tokens))]
		if whole := left + right; len(whole) <= 12 && !seen[[2]string{left, right}] {
			seen[[2]string{left, right}] = true
			merges = append(merges, []string{left, right})
			if _, ok := vocab[whole]; !ok {
				vocab[whole] = len(vocab)
				tokens = append(tokens, whole)
			}
		}
	}
	r.Shuffle(len(merges), func(i, j int) { merges[i], merges[j] = merges[j], merges[i] })
	return merges
}
