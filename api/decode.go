package api

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/kvindex/kvindex/indexer"
	"github.com/kvindex/kvindex/tokenizer"
)

// source is where the blocks of a query come from.
type source uint8

const (
	sourceNone source = iota
	sourceTokens
	sourceSeqHashes
	sourceLocalHashes
	sourceText   // prompt or messages: needs a tokenizer
	sourcePrompt // ... and has been tokenized
)

// candidate is an instance that a query names.
type candidate struct {
	name   string // as an alias to look up
	number bool   // spelt as a JSON number
}

// queryRequest is a decoded query. It is reused from request to request: the
// slices keep their storage, the strings do not outlive it.
type queryRequest struct {
	model, tenant, lora, salt string

	source     source
	sourceName string // the field that the caller used
	tokens     []uint32
	seq        []indexer.SeqHash
	local      []indexer.LocalHash

	blockSize  int // 0: any
	candidates []candidate
	named      bool // candidates were given, even if none
	maxBlocks  int  // 0: all
	tier       indexer.Tier
	explain    bool
	mode       matchMode

	wantStrings bool // return_token_strs, of a request to tokenize

	// raw is the whole object: texts and chats are tokenized from it.
	raw       []byte
	prompt    tokenizer.Tokens
	tokenized tokenizer.Source // how text became prompt
	noTokens  string           // why it did not
	sums      []uint64         // block hashes of prompt

	seen uint32 // bit per field
}

// reset forgets the last query.
func (q *queryRequest) reset() {
	*q = queryRequest{
		tier:       indexer.NumTiers - 1,
		tokens:     q.tokens[:0],
		seq:        q.seq[:0],
		local:      q.local[:0],
		sums:       q.sums[:0],
		candidates: q.candidates[:0],
	}
}

// decodeQuery decodes the object that s is at. strict rejects fields that
// mean nothing here. Values that are contradictory only together are not
// looked at.
func (s *scanner) decodeQuery(q *queryRequest, strict bool, l *Limits) error {
	s.peek()
	begin := s.i
	defer func() { q.raw = s.b[begin:s.i] }()
	return s.object(func(name []byte) error {
		f := queryField(name)
		if f == fieldUnknown || f == fieldRequest {
			if f == fieldUnknown && strict {
				return unknownField(string(name), queryFieldNames())
			}
			_, err := s.skip()
			return err
		}
		if s.null() {
			return nil
		}
		again := q.seen&(1<<f) != 0
		if again && f != fieldTenant && f != fieldSalt {
			return contradictory(string(name), "%s is given twice, maybe under two of its names", name)
		}
		q.seen |= 1 << f
		return s.queryMember(q, f, string(name), l)
	})
}

// queryMember decodes the value of one field.
func (s *scanner) queryMember(q *queryRequest, f field, name string, l *Limits) (err error) {
	switch f {
	case fieldModel:
		q.model, err = s.str(name)
	case fieldTenant:
		err = s.sameStr(name, &q.tenant, indexer.DefaultTenant)
	case fieldLoRA:
		q.lora, err = s.str(name)
	case fieldSalt:
		err = s.sameStr(name, &q.salt, "")
	case fieldTokens:
		if err = q.from(sourceTokens, name); err == nil {
			q.tokens, err = s.tokens(name, q.tokens, l.Tokens)
		}
	case fieldTokensB64:
		if err = q.from(sourceTokens, name); err == nil {
			q.tokens, err = s.base64Tokens(name, q.tokens, l.Tokens)
		}
	case fieldSeqHashes:
		if err = q.from(sourceSeqHashes, name); err == nil {
			q.seq, err = hashes(s, name, q.seq, l.Blocks)
		}
	case fieldLocalHashes:
		if err = q.from(sourceLocalHashes, name); err == nil {
			q.local, err = hashes(s, name, q.local, l.Blocks)
		}
	case fieldPrompt:
		err = s.prompt(q, name, l)
	case fieldMessages:
		if err = q.from(sourceText, name); err == nil {
			_, err = s.skip()
		}
	case fieldBlockSize:
		q.blockSize, err = s.integer(name, 1, maxBlockSize)
	case fieldMaxBlocks:
		q.maxBlocks, err = s.integer(name, 0, 1<<31-1)
	case fieldCandidates:
		err = s.candidates(q, name, l.Candidates)
	case fieldInstance:
		var id candidate
		if id.name, id.number, err = s.instanceID(name); err == nil {
			q.named = true
			q.candidates = append(q.candidates, id)
		}
	case fieldTiers:
		q.tier, err = s.tiers(name)
	case fieldExplain:
		q.explain, err = s.boolean(name)
	case fieldMatchMode:
		q.mode, err = s.matchMode(name)
	case fieldTokenStrings:
		q.wantStrings, err = s.boolean(name)
	}
	return err
}

// maxBlockSize bounds block_size in requests; engines use 1 to 4096.
const maxBlockSize = 1 << 20

// from notes that field name gives the blocks; only one field may.
func (q *queryRequest) from(src source, name string) error {
	if q.source != sourceNone {
		return contradictory(name, "both %s and %s say what the prompt is: give one", q.sourceName, name)
	}
	q.source, q.sourceName = src, name
	return nil
}

// prompt decodes the prompt of a completions request: a text, or an array of
// token ids, or an array with one of either in it.
func (s *scanner) prompt(q *queryRequest, name string, l *Limits) error {
	if err := q.from(sourceText, name); err != nil {
		return err
	}
	if s.peek() != '[' {
		return s.skipText(name)
	}
	begin := s.i
	s.i++
	first := s.peek()
	if first != '"' && first != '[' { // one prompt of token ids
		s.i = begin
		q.source = sourceTokens
		var err error
		q.tokens, err = s.tokens(name, q.tokens, l.Tokens)
		return err
	}
	s.i = begin
	return s.array(func(n int) (err error) {
		if n > 0 {
			return contradictory(name, "%s holds several prompts: send them to /v1/query:batch, one query each", name)
		}
		if first == '[' {
			q.source = sourceTokens
			q.tokens, err = s.tokens(name+"[0]", q.tokens, l.Tokens)
			return err
		}
		return s.skipText(name + "[0]")
	})
}

// skipText consumes a string without keeping it.
func (s *scanner) skipText(name string) error {
	kind, err := s.skip()
	if err != nil {
		return err
	}
	if kind != '"' {
		return invalid(name, "%s is neither a text nor an array of token ids", name)
	}
	return nil
}

// candidates decodes an array of instance ids or aliases.
func (s *scanner) candidates(q *queryRequest, name string, most int) error {
	q.named = true
	if s.peek() != '[' {
		return invalid(name, "%s is not an array of instance ids", name)
	}
	return s.array(func(n int) error {
		if n == most {
			return tooLarge(name, "%s names more than %d instances", name, most)
		}
		id, number, err := s.instanceID(name + "[" + strconv.Itoa(n) + "]")
		if err != nil {
			return err
		}
		q.candidates = append(q.candidates, candidate{id, number})
		return nil
	})
}

// instanceID decodes an instance id: a string or a whole number.
func (s *scanner) instanceID(name string) (id string, number bool, err error) {
	if s.peek() == '"' {
		id, err = s.str(name)
		if err == nil && id == "" {
			err = invalid(name, "%s is empty", name)
		}
		return id, false, err
	}
	v, err := s.value()
	if err != nil {
		return "", false, err
	}
	if v.Kind() != '0' || slices.ContainsFunc(v, func(c byte) bool { return c-'0' > 9 && c != '-' }) {
		return "", false, invalid(name, "%s is neither a string nor a whole number", name)
	}
	return string(v), true, nil
}

// tiers decodes an array of tier names and returns the farthest: what is held
// nearer counts with it.
func (s *scanner) tiers(name string) (indexer.Tier, error) {
	farthest := indexer.Tier(0)
	if s.peek() != '[' {
		return 0, invalid(name, "%s is not an array of \"gpu\", \"cpu\", \"disk\"", name)
	}
	none := true
	err := s.array(func(n int) error {
		at := name + "[" + strconv.Itoa(n) + "]"
		v, err := s.str(at)
		if err != nil {
			return err
		}
		none = false
		switch v {
		case "gpu", "GPU", "L1":
		case "cpu", "CPU", "L2":
			farthest = max(farthest, indexer.CPU)
		case "disk", "DISK", "L3":
			farthest = max(farthest, indexer.Disk)
		default:
			return invalid(at, "%s is %s: known are \"gpu\", \"cpu\", \"disk\"", at, shown(v))
		}
		return nil
	})
	if err == nil && none {
		err = invalid(name, "%s is empty: leave it out to count every tier", name)
	}
	return farthest, err
}

// str decodes a string field.
func (s *scanner) str(name string) (string, error) {
	if s.peek() != '"' {
		if _, err := s.value(); err != nil {
			return "", err
		}
		return "", invalid(name, "%s is not a string", name)
	}
	b, err := s.text()
	return string(b), err
}

// sameStr decodes a string field that clients send under several names at
// once: every value must be the same, or neutral.
func (s *scanner) sameStr(name string, p *string, neutral string) error {
	v, err := s.str(name)
	if err != nil || v == *p || v == "" || (v == neutral && *p != "") {
		return err
	}
	if *p != "" && *p != neutral {
		return contradictory(name, "%s is %s, and %s under another of its names", name, shown(v), shown(*p))
	}
	*p = v
	return nil
}

// boolean decodes true or false.
func (s *scanner) boolean(name string) (bool, error) {
	v, err := s.value()
	if err != nil {
		return false, err
	}
	switch v.Kind() {
	case 't':
		return true, nil
	case 'f':
		return false, nil
	}
	return false, invalid(name, "%s is neither true nor false", name)
}

// integer decodes a whole number in least..most.
func (s *scanner) integer(name string, least, most int) (int, error) {
	v, err := s.value()
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(string(v))
	if v.Kind() != '0' || err != nil || n < least || n > most {
		return 0, invalid(name, "%s is not an integer in %d..%d", name, least, most)
	}
	return n, nil
}

// unknownField is the error of a field that strict decoding does not know.
func unknownField(name string, names []string) error {
	reason := "there is no field " + shown(name)
	if near := nearest(name, names); near != "" {
		reason += ": is " + near + " meant?"
	}
	if len(name) > 80 {
		name = name[:80]
	}
	return &Error{http.StatusBadRequest, codeUnknownField, reason, name}
}
