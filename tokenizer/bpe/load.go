package bpe

import (
	"fmt"
	"hash/maphash"
	"math"
)

// load builds the encoder of a model that parse has accepted.
func load(m *modelConfig, p pattern, nfc bool) (*Encoder, error) {
	const component = "model"
	a := newAlphabet()
	e := &Encoder{
		pattern: p,
		classes: classTable(),
		cache:   new(cache),
		seed:    maphash.MakeSeed(),
		model:   model{pairs: newPairs(len(m.Merges)), merged: make([]uint32, len(m.Merges))},
	}
	if nfc {
		e.nfc = nfcTables()
	}

	texts := make(map[string]uint32, len(m.Vocab)) // by the bytes that they stand for
	for token, id := range m.Vocab {
		if id >= 1<<idBits {
			return nil, unsupported(component, "token id %d", id)
		}
		if text, ok := a.decode(token); ok && text != "" {
			texts[text] = id
		}
	}
	for b := range e.byteIDs {
		id, ok := texts[string([]byte{byte(b)})]
		if !ok {
			return nil, unsupported(component, "no token for the byte %#x", b)
		}
		e.byteIDs[b] = id
	}
	if len(m.Merges) >= noMerge {
		return nil, unsupported(component, "%d merges", len(m.Merges))
	}
	for rank, c := range m.Merges {
		left, ok1 := m.Vocab[c.left]
		right, ok2 := m.Vocab[c.right]
		whole, ok3 := m.Vocab[c.left+c.right]
		if !ok1 || !ok2 || !ok3 {
			return nil, fmt.Errorf("cannot use tokenizer.json: merge %d, %q %q, is of tokens out of the vocabulary",
				rank, c.left, c.right)
		}
		e.pairs.set(left, right, uint32(rank))
		e.merged[rank] = whole
	}
	e.tabulate()
	e.lengths = lengthsOf(m.Vocab, texts)
	e.words = e.wholeWords(texts, m.IgnoreMerges != nil && *m.IgnoreMerges)
	return e, nil
}

// wholeWords returns the texts that Append may answer at once: with
// ignoreMerges all, else those that the merges turn into just their token.
func (e *Encoder) wholeWords(texts map[string]uint32, ignoreMerges bool) *words {
	ws := newWords(len(texts))
	var long longMerge
	var ids []uint32
	for text, id := range texts {
		if !ignoreMerges {
			if len(text) <= shortMerge {
				ids = e.appendShort(ids[:0], text)
			} else {
				ids = long.append(ids[:0], text, &e.model)
			}
			if len(ids) != 1 || ids[0] != id {
				continue
			}
		}
		ws.set(text, id)
	}
	return ws
}

// lengthsOf returns the lengths of tokens by id, or nil if two have the same.
func lengthsOf(vocab, texts map[string]uint32) []uint16 {
	var highest uint32
	for _, id := range vocab {
		highest = max(highest, id)
	}
	seen := make([]bool, highest+1)
	for _, id := range vocab {
		if seen[id] {
			return nil
		}
		seen[id] = true
	}
	lengths := make([]uint16, highest+1)
	for text, id := range texts {
		if len(text) > math.MaxUint16 {
			return nil
		}
		lengths[id] = uint16(len(text))
	}
	return lengths
}
