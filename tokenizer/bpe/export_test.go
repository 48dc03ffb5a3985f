package bpe

// Steps returns the ids of piece and the number of steps that they took:
// bytes that scanners looked at, and operations of the long merge.
func (e *Encoder) Steps(piece string) (ids []uint32, steps int) {
	sc := scanner{classes: e.classes, pattern: e.pattern}
	ids = e.append(nil, piece, &sc)
	return ids, sc.steps
}

// Normalized returns piece as the model sees it.
func (e *Encoder) Normalized(piece string) string {
	s := validUTF8(piece)
	if e.nfc != nil {
		s = e.nfc.normalize(s)
	}
	return s
}

// TokenBytes returns what each token id of a tokenizer.json stands for.
func TokenBytes(tokenizerJSON []byte) (map[uint32]string, error) {
	m, _, _, err := parse(tokenizerJSON)
	if err != nil {
		return nil, err
	}
	a := newAlphabet()
	texts := make(map[uint32]string, len(m.Vocab))
	for token, id := range m.Vocab {
		if text, ok := a.decode(token); ok {
			texts[id] = text
		}
	}
	return texts, nil
}

// PatternSplits returns the regular expressions of every known pattern by its
// name.
func PatternSplits() map[string][]string {
	m := make(map[string][]string)
	for _, p := range patterns() {
		m[p.name] = p.splits
	}
	return m
}

// HasClass reports whether r is in the class that the regular expression
// stands for.
func HasClass(r rune, regex string) bool {
	c, _ := classTable().at(string(r), 0)
	return c&map[string]class{
		`\p{L}`: letter, `\p{N}`: number, `\p{M}`: mark, `\s`: space, `[\p{P}\p{S}]`: punct,
		`[\p{Lu}\p{Lt}]`: upper, `\p{Ll}`: lower, `[\p{Lm}\p{Lo}]`: caseless,
	}[regex] != 0
}

// ForgetWords empties the cache of words.
func (e *Encoder) ForgetWords() { e.cache = new(cache) }
