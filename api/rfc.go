package api

import (
	"net/http"
	"strconv"

	"github.com/gin-gonic/gin"

	"github.com/kvindex/kvindex/indexer"
)

// The routes of the public convention, kvcache-ai/Mooncake#1403, in the
// dialects of Mooncake's Conductor and of Dynamo's standalone indexer. Both
// name the same things differently in requests, and every name is taken.
// Answers have more members than the convention asks for, never fewer: every
// instance considered is there, and "state" says what the zeros are worth.

// handleRFCQuery answers POST /query.
func (s *Server) handleRFCQuery(c *gin.Context) error {
	return s.answerRFC(c, "token_ids")
}

// handleRFCQueryByHash answers POST /query_by_hash: seq_hashes (or block_hash)
// are hashes of whole prefixes, block_hashes (or local_hashes) of the blocks
// alone.
func (s *Server) handleRFCQueryByHash(c *gin.Context) error {
	return s.answerRFC(c, "seq_hashes")
}

func (s *Server) answerRFC(c *gin.Context, wanted string) error {
	return s.withWork(c, func(w *work) error {
		w.q.reset()
		if err := w.decode(isStrict(c.Request), &s.limits); err != nil {
			return err
		}
		if w.q.source == sourceNone {
			return missing(wanted, "the query has no %s", wanted)
		}
		if err := w.q.complete(); err != nil {
			return err
		}
		s.tokenize(c.Request.Context(), &w.q)
		if err := w.m.run(&w.q); err != nil {
			return err
		}
		sum := w.m.summarize(&w.q)
		s.metrics.query(&w.m, &w.q, sum)
		s.witness.saw(&w.m, &w.q, sum)
		w.out = w.m.appendRFC(w.out, w.q.tier)
		return nil
	})
}

// appendRFC appends the answer as the convention has it. Counts are in
// tokens; gpu, cpu and disk are cumulative, best over ranks; dp is by rank
// over all tiers; scores is by rank in the gpu alone, as Dynamo's is.
func (m *matcher) appendRFC(b []byte, tier indexer.Tier) []byte {
	b = append(b, `{"state":`...)
	b = appendString(b, string(m.state))
	b = appendReason(b, m.reason)
	b = append(b, `,"instances":{`...)
	none := slot{table: -1}
	for i, r := range m.rows {
		sl := &none
		if r.slot >= 0 {
			sl = &m.slots[r.slot]
		}
		bs := m.blockSize(sl.table)
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, r.name)
		b = appendInt(b, `:{"longest_matched":`, sl.blocks[tier]*bs)
		b = appendInt(b, `,"gpu":`, sl.blocks[indexer.GPU]*bs)
		b = appendInt(b, `,"cpu":`, sl.blocks[indexer.CPU]*bs)
		b = appendInt(b, `,"disk":`, sl.blocks[indexer.Disk]*bs)
		b = append(b, `,"dp":{`...)
		b = appendRanks(b, sl, tier, bs)
		b = append(b, "}}"...)
	}
	b = append(b, `},"scores":{`...)
	first := true
	for _, r := range m.rows {
		if r.slot < 0 || len(m.slots[r.slot].ranks) == 0 {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		sl := &m.slots[r.slot]
		b = appendString(b, r.name)
		b = append(b, ":{"...)
		b = appendRanks(b, sl, indexer.GPU, m.blockSize(sl.table))
		b = append(b, '}')
	}
	return append(b, "}}\n"...)
}

// handleLookup answers POST /lookup, the request of LMCache's controller:
// {"tokens":[...]}, and for kvindex "model" where more than one is followed.
// Instances that hold nothing are left out, as there.
func (s *Server) handleLookup(c *gin.Context) error {
	return s.withWork(c, func(w *work) error {
		w.q.reset()
		if err := w.decode(isStrict(c.Request), &s.limits); err != nil {
			return err
		}
		if w.q.source == sourceNone {
			return missing("tokens", "the lookup has no tokens")
		}
		if w.q.model == "" {
			models := s.followedModels()
			if len(models) > 1 {
				return &Error{http.StatusUnprocessableEntity, codeIncomplete,
					strconv.Itoa(len(models)) + " models are followed: name one in \"model\"", "model"}
			}
			if len(models) == 1 {
				w.q.model = models[0]
			}
		}
		if err := w.m.run(&w.q); err != nil {
			return err
		}
		s.metrics.query(&w.m, &w.q, w.m.summarize(&w.q))
		w.out = w.m.appendLookup(w.out, s.lookups.Add(1))
		return nil
	})
}

// followedModels are the models of all instances, sorted.
func (s *Server) followedModels() []string {
	models := map[string]struct{}{}
	for _, inst := range s.fleet.Instances() {
		models[inst.Model] = struct{}{}
	}
	return sortedKeys(models)
}

// appendLookup appends {"event_id","layout_info":{instance:[location,tokens]}}.
// The location is the nearest tier that holds as much as all tiers together.
func (m *matcher) appendLookup(b []byte, id uint64) []byte {
	b = append(b, `{"event_id":"lookup-`...)
	b = strconv.AppendUint(b, id, 10)
	b = append(b, `","layout_info":{`...)
	first := true
	for _, r := range m.rows {
		if r.slot < 0 {
			continue
		}
		sl := &m.slots[r.slot]
		n := sl.blocks[indexer.Disk]
		if n == 0 {
			continue
		}
		tier := indexer.GPU
		for sl.blocks[tier] < n {
			tier++
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = appendString(b, r.name)
		b = append(b, `:["`...)
		b = append(b, tier.String()...)
		b = appendInt(b, `",`, n*m.blockSize(sl.table))
		b = append(b, ']')
	}
	return append(b, "}}\n"...)
}
