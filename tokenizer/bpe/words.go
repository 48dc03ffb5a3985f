package bpe

import "math/bits"

// shortWord is the length in bytes of the longest word that a key holds.
const shortWord = 16

// key is a word of up to shortWord bytes as numbers: its first and last bytes,
// overlapping.
type key struct {
	first, last uint64
	n           uint32
}

// makeKey returns the key of w, which has 1 to shortWord bytes.
func makeKey(w string) key {
	n := len(w)
	switch {
	case n >= 8:
		return key{le64(w), le64(w[n-8:]), uint32(n)}
	case n >= 4:
		return key{uint64(le32(w)), uint64(le32(w[n-4:])), uint32(n)}
	}
	return key{uint64(w[0]) | uint64(w[n/2])<<8 | uint64(w[n-1])<<16, 0, uint32(n)}
}

func le32(s string) uint32 {
	_ = s[3]
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}

func le64(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// hash mixes a key.
func (k key) hash() uint64 {
	hi, lo := bits.Mul64(k.first^0x9e3779b97f4a7c15, k.last^0xd6e8feb86659fd93^uint64(k.n)<<56)
	return (hi ^ lo) * 0x9e3779b97f4a7c15
}

// words is the set of words that are one token, with their ids: those that the
// model answers with that token, by ignore_merges or because the merges lead
// there.
type words struct {
	slots []wordSlot        // the short ones, by open addressing; n is 0 in an empty slot
	long  map[string]uint32 // those of more than shortWord bytes
}

// wordSlot is a key and an id, without the key's padding.
type wordSlot struct {
	first, last uint64
	n, id       uint32
}

// newWords returns a set with room for n short words.
func newWords(n int) *words {
	return &words{slots: make([]wordSlot, n+n/4+1), long: make(map[string]uint32)}
}

// slot returns where the word is, or the empty slot where it would be put.
func (ws *words) slot(k key, hash uint64) *wordSlot {
	i, _ := bits.Mul64(hash, uint64(len(ws.slots)))
	for {
		s := &ws.slots[i]
		if s.first == k.first && s.last == k.last && s.n == k.n || s.n == 0 {
			return s
		}
		if i++; i == uint64(len(ws.slots)) {
			i = 0
		}
	}
}

// set adds a word.
func (ws *words) set(w string, id uint32) {
	if len(w) > shortWord {
		ws.long[w] = id
		return
	}
	k := makeKey(w)
	*ws.slot(k, k.hash()) = wordSlot{k.first, k.last, k.n, id}
}
