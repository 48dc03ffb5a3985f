package bpe

// splitter says which hand-written scanner cuts a text into words.
type splitter uint8

const (
	splitCl100k splitter = iota
	splitO200k
	splitDeepSeek
)

// pattern is one pre-tokenizer that this package knows: a sequence of splits
// by regular expression, each isolating what it matches, then ByteLevel.
type pattern struct {
	name         string
	splits       []string // the regular expressions, character by character
	splitter     splitter
	word         class // the letters of cl100k's words; symbols are none of these, nor numbers or space
	digits       int   // how many \p{N} make a word at most
	contractions bool  // o200k: whether 's and its like belong to the word before
	slash        bool  // whether a slash may follow symbols like a newline does
}

// The parts that most of the regular expressions share.
const (
	reContraction = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	reLetters     = `[^\r\n\p{L}\p{N}]?\p{L}+`
	reUpper       = `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`
	reLower       = `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`
	reCamel1      = `[^\r\n\p{L}\p{N}]?` + reUpper + `*` + reLower + `+`
	reCamel2      = `[^\r\n\p{L}\p{N}]?` + reUpper + `+` + reLower + `*`
	reSymbols     = ` ?[^\s\p{L}\p{N}]+[\r\n]*`
	reSymbolsPath = ` ?[^\s\p{L}\p{N}]+[\r\n/]*`
	reSpace       = `\s*[\r\n]+|\s+(?!\S)|\s+`
)

// patterns returns the pre-tokenizers that this package knows.
func patterns() []pattern {
	return []pattern{
		{
			name:     "qwen2",
			splits:   []string{reContraction + `|` + reLetters + `|\p{N}|` + reSymbols + `|` + reSpace},
			splitter: splitCl100k,
			word:     letter,
			digits:   1,
		},
		{
			name: "qwen3_5",
			splits: []string{reContraction + `|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|` +
				reSpace},
			splitter: splitCl100k,
			word:     letter | mark,
			digits:   1,
		},
		{
			name:     "llama3",
			splits:   []string{reContraction + `|` + reLetters + `|\p{N}{1,3}|` + reSymbols + `|` + reSpace},
			splitter: splitCl100k,
			word:     letter,
			digits:   3,
		},
		{
			name: "o200k",
			splits: []string{reCamel1 + reContraction + `?|` + reCamel2 + reContraction + `?|\p{N}{1,3}|` +
				reSymbolsPath + `|` + reSpace},
			splitter:     splitO200k,
			word:         letter,
			digits:       3,
			contractions: true,
			slash:        true,
		},
		{
			name:     "tekken",
			splits:   []string{reCamel1 + `|` + reCamel2 + `|\p{N}|` + reSymbolsPath + `|` + reSpace},
			splitter: splitO200k,
			word:     letter,
			digits:   1,
			slash:    true,
		},
		{
			name: "deepseek_v3",
			splits: []string{
				`\p{N}{1,3}`,
				"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
				// Here the newlines are characters, not escapes.
				"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+" +
					"|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+" +
					"| ?[\\p{P}\\p{S}]+[\r\n]*" +
					"|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
			},
			splitter: splitDeepSeek,
			digits:   3,
		},
	}
}
