package load

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"github.com/kvindex/kvindex/indexer"
)

// Form is how a body says what its prompt is.
type Form string

// The forms of prompts: the members of a query that they are sent in.
const (
	JSON        Form = "json"         // token_ids
	Base64      Form = "base64"       // token_ids_b64
	LocalHashes Form = "local_hashes" // of blocks, as decimal strings
	SeqHashes   Form = "seq_hashes"   // of prefixes, as decimal strings
	Chat        Form = "chat"         // messages
)

// Forms returns all of them.
func Forms() []Form { return []Form{JSON, Base64, LocalHashes, SeqHashes, Chat} }

// Bodies are made once and sent in turn.
type Bodies [][]byte

// Body implements Source.
func (b Bodies) Body(n uint64, _ *[]byte) []byte { return b[n%uint64(len(b))] }

// Encoder writes queries for token ids.
type Encoder struct {
	Model     string
	BlockSize int    // of hashes
	Seed      uint64 // of hashes; indexer.DefaultSeed where the server has no other
}

// Query returns the body that asks for a prompt. A chat is no prompt of token
// ids: see ChatOf.
func (e Encoder) Query(f Form, tokens []uint32) ([]byte, error) {
	b := appendModel(nil, e.Model)
	switch f {
	case JSON:
		b = append(b, `,"token_ids":[`...)
		for i, t := range tokens {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendUint(b, uint64(t), 10)
		}
		return append(b, "]}"...), nil
	case Base64:
		raw := make([]byte, 0, 4*len(tokens))
		for _, t := range tokens {
			raw = binary.LittleEndian.AppendUint32(raw, t)
		}
		b = append(b, `,"token_ids_b64":"`...)
		b = base64.StdEncoding.AppendEncode(b, raw)
		return append(b, `"}`...), nil
	case LocalHashes, SeqHashes:
		if e.BlockSize < 1 {
			return nil, fmt.Errorf("cannot hash blocks of %d tokens", e.BlockSize)
		}
		return appendHashes(b, f, e.hashes(f, tokens)), nil
	}
	return nil, fmt.Errorf("cannot send token ids as %q", f)
}

func appendModel(b []byte, model string) []byte {
	return strconv.AppendQuote(append(b, `{"model":`...), model)
}

func appendHashes(b []byte, f Form, hashes []uint64) []byte {
	b = append(b, `,"`+string(f)+`":[`...)
	for i, h := range hashes {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = strconv.AppendUint(b, h, 10)
		b = append(b, '"')
	}
	return append(b, "]}"...)
}

func (e Encoder) hashes(f Form, tokens []uint32) []uint64 {
	h := indexer.NewHasher(e.Seed)
	var out []uint64
	var seq indexer.SeqHash
	for block := range slices.Chunk(tokens[:len(tokens)/e.BlockSize*e.BlockSize], e.BlockSize) {
		local := h.Local(block, nil)
		if len(out) == 0 {
			seq = h.Root(0, local)
		} else {
			seq = h.Next(seq, local)
		}
		if f == LocalHashes {
			out = append(out, uint64(local))
		} else {
			out = append(out, uint64(seq))
		}
	}
	return out
}

// Vocabulary is above every token id that Tokens gives: that of Qwen3.
const Vocabulary = 151_936

// Tokens returns n token ids that depend on seed: no two seeds have a block in
// common.
func Tokens(seed uint64, n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(mix(seed<<32+uint64(i)) % Vocabulary)
	}
	return out
}

// mix is the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
