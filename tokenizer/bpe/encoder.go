package bpe

import (
	"hash/maphash"
	"sync"
	"unsafe"
)

// Encoder turns text into the token ids of one tokenizer. Any number of
// goroutines may use it at once.
type Encoder struct {
	pattern
	model
	classes *classes
	nfc     *nfcTable // nil: the tokenizer does not normalize
	words   *words
	cache   *cache
	seed    maphash.Seed
	scratch sync.Pool // of *longMerge
}

// keptScratch is how many bytes a longMerge may have to be kept for the next
// long word.
const keptScratch = 8 << 20

// New builds an encoder from a tokenizer.json. If that is in order but has a
// component that this package does not know exactly, the error is an
// [UnsupportedError]. Building takes some tenths of a second, most of it for
// the JSON.
func New(tokenizerJSON []byte) (*Encoder, error) {
	m, p, nfc, err := parse(tokenizerJSON)
	if err != nil {
		return nil, err
	}
	return load(m, p, nfc)
}

// Name returns the name of the tokenizer's pattern: "qwen2", "qwen3_5",
// "llama3", "o200k", "deepseek_v3" or "tekken".
func (e *Encoder) Name() string { return e.name }

// Bytes returns about how much memory the encoder holds.
func (e *Encoder) Bytes() int {
	n := int(unsafe.Sizeof(*e)) + int(unsafe.Sizeof(*e.cache)) + int(e.cache.bytes.Load())
	n += 8*(len(e.pairs.slots)+len(e.pairs.filter)) + 4*(len(e.bytePairs)+len(e.merged)) + 2*len(e.lengths)
	n += len(e.words.slots) * int(unsafe.Sizeof(wordSlot{}))
	for w := range e.words.long {
		n += len(w) + 40 // its place in the map
	}
	return n
}

// Append appends the ids of piece to dst and returns the extended slice. piece
// is text without an added token in it; it may be empty and may be invalid
// UTF-8, see the package documentation. The error is always nil: every text
// has ids.
func (e *Encoder) Append(dst []uint32, piece string) ([]uint32, error) {
	sc := scanner{classes: e.classes, pattern: e.pattern}
	return e.append(dst, piece, &sc), nil
}

func (e *Encoder) append(dst []uint32, piece string, sc *scanner) []uint32 {
	s := validUTF8(piece)
	if e.nfc != nil {
		s = e.nfc.normalize(s)
	}
	for len(s) > 0 {
		switch e.splitter {
		case splitCl100k:
			n := sc.cl100k(s)
			dst = e.appendWord(dst, s[:n], sc)
			s = s[n:]
		case splitO200k:
			n := sc.o200k(s)
			dst = e.appendWord(dst, s[:n], sc)
			s = s[n:]
		case splitDeepSeek:
			end, numbers := sc.deepseekPart(s)
			if numbers {
				dst = e.appendWord(dst, s[:end], sc)
			} else {
				for part := s[:end]; len(part) > 0; {
					n := sc.deepseek(part)
					dst = e.appendWord(dst, part[:n], sc)
					part = part[n:]
				}
			}
			s = s[end:]
		}
	}
	return dst
}

// appendWord appends the ids of one word of the pre-tokenizer.
func (e *Encoder) appendWord(dst []uint32, w string, sc *scanner) []uint32 {
	var hash uint64
	switch {
	case len(w) <= shortWord:
		k := makeKey(w)
		hash = k.hash()
		if s := e.words.slot(k, hash); s.n != 0 {
			return append(dst, s.id)
		}
	case len(w) <= cachedWord:
		hash = maphash.String(e.seed, w)
	default:
		return e.appendLong(dst, w, sc)
	}
	if c := e.cache.get(w, hash); c != nil {
		return append(dst, c.ids...)
	}
	n := len(dst)
	if id, ok := e.words.long[w]; ok {
		dst = append(dst, id)
	} else {
		dst = e.appendMedium(dst, w)
	}
	e.cache.put(w, hash, dst[n:])
	return dst
}

// appendLong appends the ids of a word that is too long for the cache.
func (e *Encoder) appendLong(dst []uint32, w string, sc *scanner) []uint32 {
	if id, ok := e.words.long[w]; ok {
		return append(dst, id)
	}
	l, _ := e.scratch.Get().(*longMerge)
	if l == nil {
		l = new(longMerge)
	}
	dst = l.appendWord(dst, w, &e.model)
	sc.steps += l.steps
	l.steps = 0
	if l.size() <= keptScratch {
		e.scratch.Put(l)
	}
	return dst
}
