package api

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/kvindex/kvindex/indexer"
)

// modelJSON is one model in GET /v1/models.
type modelJSON struct {
	Model     string        `json:"model"`
	Instances int           `json:"instances"`
	Live      int           `json:"live_instances"`
	Tables    []tableStatus `json:"tables"`
	// Tokenizer is nil where the model has none.
	Tokenizer *tokenizerJSON `json:"tokenizer,omitzero"`
}

// tableStatus is one block table of a model.
type tableStatus struct {
	BlockSize int   `json:"block_size"`
	Bigram    bool  `json:"bigram,omitzero"`
	Blocks    int   `json:"unique_blocks"`
	Orphans   int   `json:"orphan_blocks"` // waiting for the announcement of their parent
	Bytes     int64 `json:"bytes"`         // memory, estimated
}

// models gathers what is known of every model: of the index's and of the
// fleet's, for either may know it first.
func (s *Server) models() []modelJSON {
	byName := map[string]*modelJSON{}
	get := func(name string) *modelJSON {
		m := byName[name]
		if m == nil {
			m = &modelJSON{Model: name, Tables: []tableStatus{}}
			byName[name] = m
		}
		return m
	}
	for _, name := range s.index.Models() {
		get(name)
	}
	for _, t := range s.index.Stats().Tables {
		m := get(t.Key.Model)
		m.Tables = append(m.Tables, tableStatus{t.Key.BlockSize, t.Key.Bigram, t.UniqueBlocks, t.OrphanBlocks, t.Bytes})
	}
	for _, inst := range s.fleet.Instances() {
		m := get(inst.Model)
		m.Instances++
		if inst.Health().State == Live {
			m.Live++
		}
	}
	if s.tokenizers != nil {
		for _, name := range s.tokenizers.Names() {
			get(name)
		}
	}
	list := []modelJSON{}
	for _, name := range sortedKeys(byName) {
		if s.tokenizers != nil {
			byName[name].Tokenizer = s.tokenizerOf(name)
		}
		list = append(list, *byName[name])
	}
	return list
}

// handleModels answers GET /v1/models.
func (s *Server) handleModels(c *gin.Context) error {
	list := s.models()
	v := struct {
		Models []modelJSON `json:"models"`
	}{list}
	return s.show(c, http.StatusOK, v, func(t *table) {
		t.head("MODEL", "INSTANCES", "LIVE", "BLOCK", "UNIQUE BLOCKS", "TOKENIZER", "CACHE HITS", "PROVED WITH", "REASON")
		for _, m := range list {
			tokenizer, hits, proved, reason := m.Tokenizer.columns()
			if len(m.Tables) == 0 {
				t.row(m.Model, m.Instances, m.Live, "", 0, tokenizer, hits, proved, reason)
			}
			for _, tab := range m.Tables {
				size := strconv.Itoa(tab.BlockSize)
				if tab.Bigram {
					size += " bigrams"
				}
				t.row(m.Model, m.Instances, m.Live, size, tab.Blocks, tokenizer, hits, proved, reason)
			}
		}
	})
}

// statsJSON is GET /v1/stats.
type statsJSON struct {
	Version      string         `json:"version"`
	UptimeS      int64          `json:"uptime_seconds"`
	Models       int            `json:"models"`
	Instances    int            `json:"instances"`
	Streams      map[string]int `json:"streams"` // by state
	UniqueBlocks int            `json:"unique_blocks"`
	OrphanBlocks int            `json:"orphan_blocks"`
	IndexBytes   int64          `json:"index_bytes"`
	Batches      uint64         `json:"batches"`
	LostBatches  uint64         `json:"lost_batches"`
	Queries      int64          `json:"queries_now"`
}

// handleStats answers GET /v1/stats.
func (s *Server) handleStats(c *gin.Context) error {
	v := statsJSON{Version: s.version, UptimeS: int64(time.Since(s.started).Seconds()),
		Streams: map[string]int{}, Queries: s.queries.Load()}
	for _, m := range s.models() {
		v.Models++
		for _, t := range m.Tables {
			v.UniqueBlocks += t.Blocks
			v.OrphanBlocks += t.Orphans
			v.IndexBytes += t.Bytes
		}
	}
	for _, state := range states() {
		v.Streams[string(state)] = 0
	}
	for _, inst := range s.fleet.Instances() {
		d, ok := s.fleet.Detail(inst.ID)
		if !ok {
			continue
		}
		v.Instances++
		for _, st := range d.Streams {
			v.Streams[string(st.State)]++
			v.Batches += st.Batches
			v.LostBatches += st.LostBatches
		}
	}
	return s.show(c, http.StatusOK, v, func(t *table) {
		t.row("version", v.Version)
		t.row("uptime", (time.Duration(v.UptimeS) * time.Second).String())
		t.row("models", v.Models)
		t.row("instances", v.Instances)
		for _, state := range states() {
			t.row("streams "+string(state), v.Streams[string(state)])
		}
		t.row("unique blocks", v.UniqueBlocks)
		t.row("orphan blocks", v.OrphanBlocks)
		t.row("index bytes", v.IndexBytes)
		t.row("batches", v.Batches)
		t.row("lost batches", v.LostBatches)
		t.row("queries now", v.Queries)
	})
}

// blockJSON is a block as /v1/blocks and /v1/dump show it.
type blockJSON struct {
	Model     string       `json:"model"`
	BlockSize int          `json:"block_size"`
	Bigram    bool         `json:"bigram,omitzero"`
	SeqHash   string       `json:"seq_hash"`
	Parent    *string      `json:"parent"` // null for the first block of a prompt
	Position  int          `json:"position"`
	Holders   []holderJSON `json:"holders"`
}

func newBlockJSON(key indexer.TableKey, b indexer.BlockInfo) blockJSON {
	j := blockJSON{Model: key.Model, BlockSize: key.BlockSize, Bigram: key.Bigram,
		SeqHash: strconv.FormatUint(uint64(b.Seq), 10), Position: b.Position, Holders: []holderJSON{}}
	if b.HasParent {
		parent := strconv.FormatUint(uint64(b.Parent), 10)
		j.Parent = &parent
	}
	for _, h := range b.Holders {
		j.Holders = append(j.Holders, newHolderJSON(h))
	}
	// The same in every replica, in whatever order each met the instances.
	slices.SortFunc(j.Holders, func(a, b holderJSON) int {
		return cmp.Or(cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.DPRank, b.DPRank), cmp.Compare(a.Tier, b.Tier))
	})
	return j
}

// handleBlock answers GET /v1/blocks/{hash}: the block in every table that has
// it, for models that share a tokenizer share hashes.
func (s *Server) handleBlock(c *gin.Context) error {
	hash, ok := parseHash([]byte(c.Param("hash")))
	if !ok {
		return invalid("hash", "%s is not a 64-bit hash: a decimal number, or 0x and hexadecimal digits", shown(c.Param("hash")))
	}
	list := []blockJSON{}
	for _, model := range s.index.Models() {
		for _, t := range s.index.Tables(model) {
			if b, ok := t.Block(indexer.SeqHash(hash)); ok {
				list = append(list, newBlockJSON(t.Key(), b))
			}
		}
	}
	if len(list) == 0 {
		return notFound("no instance holds a block with the sequence hash %d", hash)
	}
	v := struct {
		Blocks []blockJSON `json:"blocks"`
	}{list}
	return s.show(c, http.StatusOK, v, func(t *table) {
		t.head("MODEL", "BLOCK", "POSITION", "PARENT", "INSTANCE", "RANK", "TIER", "COPIES")
		for _, b := range list {
			parent := ""
			if b.Parent != nil {
				parent = *b.Parent
			}
			slices.SortFunc(b.Holders, func(x, y holderJSON) int { return slices.Compare(x.key(), y.key()) })
			for _, h := range b.Holders {
				t.row(b.Model, b.BlockSize, b.Position, parent, h.Instance, h.DPRank, h.Tier, h.Copies)
			}
		}
	})
}

// key orders holders in tables.
func (h holderJSON) key() []string { return []string{h.Instance, strconv.Itoa(h.DPRank), h.Tier} }
