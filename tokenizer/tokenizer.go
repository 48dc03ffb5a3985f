package tokenizer

import (
	"github.com/zeebo/xxh3"
)

// Encoder turns text into token ids exactly as the model's engine does. Where
// the tokenizer allows it (see Tokenizer.Ineligible), the text has no added
// tokens in it; else it has, and they are recognised. It is safe for concurrent
// use.
type Encoder interface {
	Append(dst []uint32, text string) ([]uint32, error)
}

// cutter is an Encoder that knows where text may be cut without changing its
// tokens: at or before a position, 0 for nowhere.
type cutter interface {
	SafeCut(text string, at int) int
}

// sizer is an Encoder that knows what memory it takes, in bytes.
type sizer interface{ Bytes() int }

// Tokenizer tokenizes for one model, remembering what it has seen. It is safe
// for concurrent use.
type Tokenizer struct {
	enc        Encoder
	added      *added // nil: text may not be tokenized in parts
	cut        func(text string, at int) int
	cache      *Cache
	root       key    // where this tokenizer's texts begin in the cache
	ineligible string // why added is nil
	before     []uint32
	after      []uint32 // what add_special_tokens puts around a text
}

// Options configure New.
type Options struct {
	Encoder Encoder
	Cache   *Cache // nil: nothing is remembered
	// Before and After are what add_special_tokens puts around a text.
	Before, After []uint32
}

// New returns a tokenizer for the model that a tokenizer.json describes;
// o.Encoder must be made from the same.
func New(tokenizerJSON []byte, o Options) (*Tokenizer, error) {
	s, why, err := parseSpec(tokenizerJSON)
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{enc: o.Encoder, cache: o.Cache, ineligible: why, before: o.Before, after: o.After}
	t.root.hash = xxh3.Hash128(tokenizerJSON) // two models with one tokenizer share what is cached
	if why == "" {
		t.added = newAdded(s.Added)
		if c, ok := o.Encoder.(cutter); ok {
			t.cut = c.SafeCut
		}
	}
	return t, nil
}

// Ineligible says why texts are always tokenized as a whole, uncached; "" if
// they are not.
func (t *Tokenizer) Ineligible() string { return t.ineligible }

// Granularity of what is cached, in bytes of text.
const (
	minSegment = 64   // a boundary sooner than this after another is none
	maxSegment = 4096 // longer stretches are cut where that is safe
)

// Encode tokenizes text. addSpecial puts the model's special tokens around it
// (completions; the templates of chats contain theirs).
func (t *Tokenizer) Encode(text string, addSpecial bool) (Tokens, error) {
	if t.added == nil || t.cache == nil {
		return t.whole(text, addSpecial)
	}
	var segs [64]segment
	list := t.split(segs[:0], text)
	at, check := t.root, uint64(0)
	if addSpecial {
		at.hash.Hi ^= 1
	}
	for i := range list {
		at, check = at.next(text[list[i].start:list[i].end], check)
		list[i].key, list[i].check = at, check
	}
	// From the end: the last beginning that is known saves the most.
	var last *node
	known := 0
	for i := len(list) - 1; i >= 0 && last == nil; i-- {
		if n := t.cache.get(list[i].key, list[i].check); n != nil {
			last, known = n, i+1
		}
	}
	out := Tokens{last: last}
	now := t.cache.now()
	if last != nil {
		t.cache.touch(last, now)
		out.Cached = last.count
	}
	for i := known; i < len(list); i++ {
		n, err := t.extend(last, text[list[i].start:list[i].end], addSpecial)
		if err != nil {
			return Tokens{}, err
		}
		n.check = list[i].check
		n.used.Store(now)
		last = t.cache.put(list[i].key, n)
	}
	out.last = last
	rest := text
	if len(list) > 0 {
		rest = text[list[len(list)-1].end:]
	}
	if err := t.finish(&out, rest, addSpecial); err != nil {
		return Tokens{}, err
	}
	t.cache.hits.Add(uint64(out.Cached))
	t.cache.misses.Add(uint64(out.Count - out.Cached))
	return out, nil
}

// whole tokenizes a text in one piece.
func (t *Tokenizer) whole(text string, addSpecial bool) (Tokens, error) {
	var out Tokens
	err := t.finish(&out, text, addSpecial)
	return out, err
}

// finish tokenizes what follows out.last.
func (t *Tokenizer) finish(out *Tokens, rest string, addSpecial bool) error {
	var tail []uint32
	if out.last == nil && addSpecial {
		tail = append(tail, t.before...)
	}
	tail, err := t.append(tail, rest)
	if err != nil {
		return err
	}
	if addSpecial {
		tail = append(tail, t.after...)
	}
	out.tail = tail
	out.Count = len(tail)
	if out.last != nil {
		out.Count += out.last.count
	}
	return nil
}

// append appends the ids of text, whose added tokens it splits off.
func (t *Tokenizer) append(dst []uint32, text string) ([]uint32, error) {
	if t.added == nil {
		return t.enc.Append(dst, text)
	}
	scan := t.added.scan(text)
	for from := 0; from < len(text); {
		start, end, id, ok := scan.next(from)
		if !ok {
			start, end = len(text), len(text)
		}
		if start > from {
			var err error
			if dst, err = t.enc.Append(dst, text[from:start]); err != nil {
				return nil, err
			}
		}
		if ok {
			dst = append(dst, id)
		}
		from = end
	}
	return dst, nil
}

// extend tokenizes the segment that follows parent's text.
func (t *Tokenizer) extend(parent *node, segment string, addSpecial bool) (*node, error) {
	n := &node{parent: parent}
	if parent == nil && addSpecial {
		n.ids = append(n.ids, t.before...)
	}
	ids, err := t.append(n.ids, segment)
	if err != nil {
		return nil, err
	}
	n.ids = ids
	n.count = len(ids)
	if parent != nil {
		n.count += parent.count
	}
	return n, nil
}

// segment is a stretch of text whose end is a boundary: what follows cannot
// change the tokens before.
type segment struct {
	start, end int
	key        key
	check      uint64
}

// split finds the boundaries of text: the ends of added tokens, and safe cuts
// in long stretches without any. A longer text has the same boundaries at its
// beginning, but for a cut that white space reaching to the end has moved:
// that costs a miss.
func (t *Tokenizer) split(dst []segment, text string) []segment {
	start := 0
	emit := func(end int) {
		dst = append(dst, segment{start: start, end: end})
		start = end
	}
	scan := t.added.scan(text)
	for from := 0; from < len(text); {
		s, e, _, ok := scan.next(from)
		if !ok {
			s, e = len(text), len(text)
		}
		// Cuts before the added token (or the end: cuts there are safe for any
		// continuation).
		for t.cut != nil && s-start > maxSegment {
			c := t.cut(text[from:s], start+maxSegment-from) + from
			if c <= start || c <= from {
				break
			}
			emit(c)
		}
		if !ok {
			break
		}
		if e-start >= minSegment {
			emit(e)
		}
		from = e
	}
	return dst
}
