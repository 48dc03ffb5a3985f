package api

import (
	"encoding/json/jsontext"
	"strconv"
	"time"

	"github.com/kvindex/kvindex/indexer"
)

// An answer is written by appending to one buffer: of everything between a
// request and its response this was the dearest part when it went through
// reflection.

// timings are the parts of the time that a query took.
type timings struct {
	decode, tokenize, hash, match, total time.Duration
}

// summary is what an answer says beside its rows.
type summary struct {
	blockSize, total, scanned int
	best                      int // row, -1: nothing matched
}

// summarize picks the best row and the table that the totals are of: the best
// row's, else the first.
func (m *matcher) summarize(q *queryRequest) summary {
	s := summary{best: -1}
	most, table := 0, -1
	for i, r := range m.rows {
		if r.slot < 0 {
			continue
		}
		sl := &m.slots[r.slot]
		n := sl.blocks[q.tier] * m.blockSize(sl.table)
		if n == 0 {
			continue
		}
		if n > most || (n == most && r.name < m.rows[s.best].name) {
			most, table, s.best = n, sl.table, i
		}
	}
	if m.flat.on {
		s.blockSize, s.total, s.scanned = m.flat.blockSize, m.flat.total, m.flat.scanned
		return s
	}
	if table < 0 && len(m.tables) > 0 {
		table = 0
	}
	if q.source == sourceText || q.source == sourceNone {
		s.blockSize = m.blockSize(table)
		return s
	}
	if table >= 0 {
		s.blockSize, s.total = m.blockSize(table), m.results[table].TotalBlocks
		s.scanned = q.considered(s.total)
		return s
	}
	// Nothing is stored yet: the block size may be known all the same.
	s.blockSize = q.blockSize
	for i := range m.slots {
		if s.blockSize == 0 {
			s.blockSize = m.slots[i].health.BlockSize
		}
	}
	switch {
	case q.source == sourceSeqHashes:
		s.total = len(q.seq)
	case q.source == sourceLocalHashes:
		s.total = len(q.local)
	case s.blockSize > 0:
		s.total = q.promptTokens() / s.blockSize
	}
	s.scanned = q.considered(s.total)
	return s
}

// considered is how many of total blocks the query is about.
func (q *queryRequest) considered(total int) int {
	if q.maxBlocks > 0 {
		return min(total, q.maxBlocks)
	}
	return total
}

// reusable is how many of matched tokens an engine can take from its cache
// for a prompt of n tokens: it computes at least the last token anew, and so
// the last block that is full to the last token. n < 0 is not known.
func reusable(matched, blockSize, n int) int {
	if n < 0 || blockSize == 0 {
		return matched
	}
	return max(0, min(matched, (n-1)/blockSize*blockSize))
}

// promptTokens is the length of the prompt, -1 where only hashes are known.
func (q *queryRequest) promptTokens() int {
	switch q.source {
	case sourceTokens:
		return len(q.tokens)
	case sourcePrompt:
		return q.prompt.Count
	}
	return -1
}

// tokenSource says where the tokens of an answer came from.
func (q *queryRequest) tokenSource() string {
	switch q.source {
	case sourceTokens:
		return "request"
	case sourcePrompt:
		return string(q.tokenized)
	case sourceSeqHashes, sourceLocalHashes:
		return "hashes"
	}
	return "none"
}

// appendAnswer appends the answer of /v1/query. explain is nil or the value
// of its member "explain".
func (m *matcher) appendAnswer(b []byte, q *queryRequest, s summary, t timings, explain jsontext.Value) []byte {
	b = append(b, `{"model":`...)
	b = appendString(b, m.model)
	if m.lora != "" {
		b = append(b, `,"lora_name":`...)
		b = appendString(b, m.lora)
	}
	b = appendInt(b, `,"block_size":`, s.blockSize)
	if m.flat.on {
		b = append(b, `,"match_mode":"flat"`...)
	}
	b = append(b, `,"state":`...)
	b = appendString(b, string(m.state))
	b = appendReason(b, m.reason)
	b = append(b, `,"token_source":`...)
	b = appendString(b, q.tokenSource())
	if n := q.promptTokens(); n >= 0 {
		b = appendInt(b, `,"prompt_tokens":`, n)
	} else {
		b = append(b, `,"prompt_tokens":null`...)
	}
	b = appendInt(b, `,"total_blocks":`, s.total)
	b = appendInt(b, `,"scanned_blocks":`, s.scanned)
	b = append(b, `,"best":`...)
	b = m.appendBest(b, s.best)
	b = append(b, `,"instances":{`...)
	for i := range m.rows {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, m.rows[i].name)
		b = append(b, ':')
		b = m.appendRow(b, q, s, &m.rows[i])
	}
	b = append(b, '}')
	if explain != nil {
		b = append(b, `,"explain":`...)
		b = append(b, explain...)
	}
	b = appendInt(b, `,"timings_us":{"decode":`, int(t.decode.Microseconds()))
	b = appendInt(b, `,"tokenize":`, int(t.tokenize.Microseconds()))
	b = appendInt(b, `,"hash":`, int(t.hash.Microseconds()))
	b = appendInt(b, `,"match":`, int(t.match.Microseconds()))
	b = appendInt(b, `,"total":`, int(t.total.Microseconds()))
	return append(b, "}}"...)
}

// appendBest appends the best instance as the caller spelt it.
func (m *matcher) appendBest(b []byte, best int) []byte {
	switch {
	case best < 0:
		return append(b, "null"...)
	case m.rows[best].number:
		return append(b, m.rows[best].name...)
	}
	return appendString(b, m.rows[best].name)
}

// appendRow appends the value of one instance.
func (m *matcher) appendRow(b []byte, q *queryRequest, s summary, r *row) []byte {
	none := slot{health: Health{State: Unknown}, table: -1}
	sl := &none
	if r.slot >= 0 {
		sl = &m.slots[r.slot]
	}
	bs := m.blockSize(sl.table)
	blocks := sl.blocks[q.tier]
	total, considered, ok := m.share(q, sl)
	score := 0
	if ok {
		score = 100 * blocks / total
	}
	b = appendInt(b, `{"matched_tokens":`, blocks*bs)
	b = appendInt(b, `,"reusable_tokens":`, reusable(blocks*bs, bs, q.promptTokens()))
	b = appendInt(b, `,"matched_blocks":`, blocks)
	b = append(b, `,"ratio":`...)
	b = appendRatio(b, blocks, considered)
	b = appendInt(b, `,"score":`, score)
	b = appendTiers(b, sl, q.tier, bs)
	b = append(b, `,"dp":{`...)
	b = appendRanks(b, sl, q.tier, bs)
	b = append(b, '}')
	if n := blocks - sl.sure[q.tier]; n > 0 && !m.flat.on {
		b = appendInt(b, `,"suspect_tokens":`, n*bs)
	}
	if own := bs; own != 0 && own != s.blockSize {
		b = appendInt(b, `,"block_size":`, own)
	}
	b = append(b, `,"state":"`...)
	b = append(b, sl.health.State...) // of ours: no escapes
	b = append(b, '"')
	if r.slot < 0 {
		b = appendReason(b, r.reason)
	} else {
		b = appendReason(b, sl.health.Reason)
	}
	b = append(b, `,"last_event_age_ms":`...)
	if sl.health.LastEvent.Known {
		b = strconv.AppendInt(b, sl.health.LastEvent.Since.Milliseconds(), 10)
	} else {
		b = append(b, "null"...)
	}
	return append(b, '}')
}

// appendTiers appends what the public convention says of an instance, in
// tokens: the tiers are cumulative.
func appendTiers(b []byte, sl *slot, tier indexer.Tier, blockSize int) []byte {
	b = appendInt(b, `,"gpu":`, sl.blocks[indexer.GPU]*blockSize)
	b = appendInt(b, `,"cpu":`, sl.blocks[indexer.CPU]*blockSize)
	b = appendInt(b, `,"disk":`, sl.blocks[indexer.Disk]*blockSize)
	return appendInt(b, `,"longest_matched":`, sl.blocks[tier]*blockSize)
}

// appendRanks appends the members of an object from rank to tokens.
func appendRanks(b []byte, sl *slot, tier indexer.Tier, blockSize int) []byte {
	first := true
	for _, r := range sl.ranks {
		if r.table != sl.table {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, '"')
		b = strconv.AppendInt(b, int64(r.rank), 10)
		b = append(b, `":`...)
		b = strconv.AppendInt(b, int64(r.blocks[tier]*blockSize), 10)
	}
	return b
}

// appendRatio appends n/of, rounded to four digits; 0 where of is 0.
func appendRatio(b []byte, n, of int) []byte {
	const one = 10_000
	if of == 0 {
		return append(b, '0')
	}
	r := (2*n*one + of) / (2 * of)
	b = strconv.AppendInt(b, int64(r/one), 10)
	if r %= one; r == 0 {
		return b
	}
	digits := [5]byte{'.', byte('0' + r/1000), byte('0' + r/100%10), byte('0' + r/10%10), byte('0' + r%10)}
	end := 5
	for digits[end-1] == '0' {
		end--
	}
	return append(b, digits[:end]...)
}

func appendInt(b []byte, prefix string, n int) []byte {
	b = append(b, prefix...)
	return strconv.AppendInt(b, int64(n), 10)
}

func appendReason(b []byte, reason string) []byte {
	if reason == "" {
		return b
	}
	b = append(b, `,"reason":`...)
	return appendString(b, reason)
}

// appendString appends s as a JSON string. Bytes that are not UTF-8 become
// U+FFFD.
func appendString(b []byte, s string) []byte {
	if isPlain(s) {
		b = append(b, '"')
		b = append(b, s...)
		return append(b, '"')
	}
	b, _ = jsontext.AppendQuote(b, s)
	return b
}

// isPlain reports whether s needs no escapes in JSON: printable ASCII without
// quotes and backslashes.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
