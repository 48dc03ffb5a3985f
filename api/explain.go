package api

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"slices"
	"strconv"

	"github.com/kvindex/kvindex/indexer"
)

// explanation says, block by block, why an answer is what it is.
type explanation struct {
	Tables []explainedTable `json:"tables"`
}

// explainedTable is the explanation for blocks of one size.
type explainedTable struct {
	BlockSize   int              `json:"block_size"`
	Bigram      bool             `json:"bigram,omitzero"`
	TotalBlocks int              `json:"total_blocks"`
	Truncated   bool             `json:"truncated,omitzero"` // there are more blocks than are listed
	Blocks      []explainedBlock `json:"blocks"`
	Runs        []explainedRun   `json:"runs"`
}

// explainedBlock is one block of the prompt and who holds it.
type explainedBlock struct {
	Position int          `json:"position"`
	SeqHash  string       `json:"seq_hash"`
	Holders  []holderJSON `json:"holders"`
}

// holderJSON is one holder of a block.
type holderJSON struct {
	Instance string `json:"instance"`
	DPRank   int    `json:"dp_rank"`
	Tier     string `json:"tier"`
	Copies   int    `json:"copies"`
	Suspect  bool   `json:"suspect,omitzero"` // may be no longer held
}

// explainedRun is how far one rank's match goes, and why not further.
type explainedRun struct {
	Instance string `json:"instance"`
	DPRank   *int   `json:"dp_rank"` // null: no rank of the instance holds any block of the prompt
	Matched  int    `json:"matched_blocks"`
	Ends     string `json:"ends"`
}

// explain looks every block of q up again, at most `most` a table.
func (m *matcher) explain(q *queryRequest, most int) (jsontext.Value, error) {
	e := explanation{Tables: []explainedTable{}}
	scope := m.index.Hasher().Scope(indexer.Scope{Tenant: q.tenant, LoRA: m.lora, Salt: q.salt})
	for i, t := range m.tables {
		e.Tables = append(e.Tables, m.explainTable(q, i, m.sequence(q, t, scope), most))
	}
	v, err := json.Marshal(e, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return nil, fmt.Errorf("cannot encode the explanation: %w", err)
	}
	return v, nil
}

// sequence returns the sequence hashes of q's blocks in table t.
func (m *matcher) sequence(q *queryRequest, t *indexer.Table, scope indexer.ScopeKey) []indexer.SeqHash {
	switch q.source {
	case sourceSeqHashes:
		return q.seq
	case sourceLocalHashes:
		h := m.index.Hasher()
		seq := make([]indexer.SeqHash, 0, len(q.local))
		for i, l := range q.local {
			if i == 0 {
				seq = append(seq, h.Root(scope, l))
			} else {
				seq = append(seq, h.Next(seq[i-1], l))
			}
		}
		return seq
	}
	return t.Sequence(q.tokenIDs(), scope, nil)
}

// explainTable explains the match in table i.
func (m *matcher) explainTable(q *queryRequest, i int, seq []indexer.SeqHash, most int) explainedTable {
	t := m.tables[i]
	key := t.Key()
	e := explainedTable{BlockSize: key.BlockSize, Bigram: key.Bigram, TotalBlocks: len(seq),
		Blocks: []explainedBlock{}, Runs: []explainedRun{}}
	seq = seq[:q.considered(len(seq))]
	if len(seq) > most {
		seq, e.Truncated = seq[:most], true
	}
	for position, h := range seq {
		b := explainedBlock{Position: position, SeqHash: strconv.FormatUint(uint64(h), 10), Holders: []holderJSON{}}
		if info, ok := t.Block(h); ok {
			for _, holder := range info.Holders {
				if m.mayShow(holder.Stream.Instance, q.tenant) {
					b.Holders = append(b.Holders, newHolderJSON(holder))
				}
			}
		}
		e.Blocks = append(e.Blocks, b)
	}
	for j := range m.slots {
		e.Runs = append(e.Runs, m.explainRuns(q, i, &m.slots[j], &e)...)
	}
	return e
}

// mayShow reports whether the instance is of the tenant that asks: hashes may
// be guessed.
func (m *matcher) mayShow(instance, tenant string) bool {
	inst, ok := m.fleet.Find(instance)
	return ok && sameTenant(inst.Tenant, tenant)
}

func newHolderJSON(h indexer.BlockHolder) holderJSON {
	return holderJSON{h.Stream.Instance, h.Stream.Rank, h.Tier.String(), h.Copies, h.Suspect}
}

// explainRuns explains the ranks of one instance in table i.
func (m *matcher) explainRuns(q *queryRequest, i int, s *slot, e *explainedTable) []explainedRun {
	var runs []explainedRun
	for _, r := range m.ranks {
		if r.table == i && m.slots[r.slot].inst == s.inst {
			rank, n := r.rank, r.blocks[q.tier]
			runs = append(runs, explainedRun{s.inst.ID, &rank, n, whyEnds(q, e, s.inst.ID, rank, n)})
		}
	}
	if runs == nil {
		runs = append(runs, explainedRun{s.inst.ID, nil, 0, whyEnds(q, e, s.inst.ID, -1, 0)})
	}
	return runs
}

// whyEnds says in a sentence why the match of a rank (-1: of any rank) ends
// after n blocks.
func whyEnds(q *queryRequest, e *explainedTable, instance string, rank, n int) string {
	switch {
	case e.TotalBlocks == 0:
		return "the prompt has no full block"
	case n >= e.TotalBlocks:
		return "the whole prompt is held"
	case n >= q.considered(e.TotalBlocks):
		return "max_blocks is reached"
	case n >= len(e.Blocks):
		return "the rest is not listed"
	}
	mine := func(h holderJSON) bool { return h.Instance == instance && (rank < 0 || h.DPRank == rank) }
	holders := e.Blocks[n].Holders
	at := "block " + strconv.Itoa(n)
	switch {
	case slices.ContainsFunc(holders, mine):
		if q.tier < indexer.NumTiers-1 {
			return at + " is held in a tier that was not asked for"
		}
		return at + " was stored after the match"
	case len(holders) == 0:
		at += " is held by nobody"
	default:
		at += " is held by others, not here"
	}
	later := 0
	for _, b := range e.Blocks[n+1:] {
		if slices.ContainsFunc(b.Holders, mine) {
			later++
		}
	}
	if later > 0 {
		at += fmt.Sprintf("; %d later blocks are held and count nothing behind this hole", later)
	}
	return at
}
