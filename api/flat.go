package api

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvindex/kvindex/indexer"
)

// Flat is a second source of matches, of which the index knows nothing: what
// others wrote down about blocks, one by one. A flat match is approximate: it
// finds a pod that holds equal blocks of other prompts too, and nothing tells
// whether its engine still has them. So an answer is of one source or the
// other, never of both, and one of this says so in match_mode, state and reason.
type Flat interface {
	// BlockSize is the number of tokens of a block of the model, and whether
	// there is anything to ask about it.
	BlockSize(model string) (tokens int, ok bool)

	// Match returns how many leading blocks of a prompt each pod holds, of
	// maxBlocks at most (0: of as many as are ever looked at). It takes no longer
	// than a query may. An error's text is what the caller is told.
	Match(ctx context.Context, model string, tokens []uint32, maxBlocks int) (FlatMatch, error)
}

// FlatMatch is what a Flat found.
type FlatMatch struct {
	Scanned int                              // blocks that the answer is about
	Pods    map[string][indexer.NumTiers]int // by POD.NAMESPACE; only those with a block
}

// matchMode is what a query asks to be matched by.
type matchMode uint8

const (
	matchDefault matchMode = iota // exactly; flat where that is the fallback
	matchExact                    // exactly, in any case
	matchFlat
)

// flatReason is why an answer of a Flat is not exact.
const flatReason = "approximate: of blocks that were written down one by one, not of prefixes: a pod may hold less"

// flatAnswer is what the matcher keeps of a flat match.
type flatAnswer struct {
	on                        bool
	blockSize, total, scanned int
}

// matchMode decodes a field's value.
func (s *scanner) matchMode(name string) (matchMode, error) {
	v, err := s.str(name)
	if err != nil {
		return 0, err
	}
	switch v {
	case "exact":
		return matchExact, nil
	case "flat":
		return matchFlat, nil
	}
	return 0, invalid(name, "%s is %s: known are \"exact\", \"flat\"", name, shown(v))
}

// checkMode says what contradicts match_mode flat.
func (q *queryRequest) checkMode() error {
	switch {
	case q.mode != matchFlat:
		return nil
	case q.source == sourceSeqHashes || q.source == sourceLocalHashes:
		return contradictory("match_mode", "match_mode is flat, and %s are other hashes: give the tokens", q.sourceName)
	case q.explain:
		return contradictory("match_mode", "match_mode is flat, which nothing explains: leave one of both out")
	}
	return nil
}

// flatten replaces the exact match in w by a flat one if the query asks for
// that, or if no stream of the model is live and flat matches are the fallback.
func (s *Server) flatten(ctx context.Context, w *work) {
	q, m := &w.q, &w.m
	asked := q.mode == matchFlat
	if q.mode == matchExact || q.source != sourceTokens && q.source != sourcePrompt ||
		!asked && (s.flat == nil || !s.flatFallback || q.explain || m.live(q.tenant)) {
		return
	}
	if asked {
		m.forget()
	}
	size, why := s.flatSize(q, m)
	if why != "" && !asked {
		return
	}
	var f FlatMatch
	if why == "" {
		begin := time.Now()
		var err error
		if f, err = s.flat.Match(ctx, m.model, q.tokenIDs(), q.maxBlocks); err != nil {
			why = err.Error()
		}
		m.matched = time.Since(begin)
	}
	switch {
	case why == "":
		m.forget()
		m.flat = flatAnswer{on: true, blockSize: size, total: q.promptTokens() / size, scanned: f.Scanned}
		m.state, m.reason = Partial, flatReason
		m.fillFlat(q, f.Pods)
		s.metrics.flat.WithLabelValues("answered").Inc()
		return
	case asked:
		m.state, m.reason = NoTokens, "no flat match: "+why
		m.unknownRows(q)
	default:
		m.reason += "; no flat match either: " + why
	}
	s.metrics.flat.WithLabelValues("failed").Inc()
}

// flatSize is the block size of a flat match, or why there can be none.
func (s *Server) flatSize(q *queryRequest, m *matcher) (size int, why string) {
	if s.flat == nil {
		return 0, "kthena.redis is not configured"
	}
	if q.salt != "" || m.lora != "" || !sameTenant(q.tenant, "") {
		return 0, "flat hashes tell no cache salt, adapter or tenant from another"
	}
	size, ok := s.flat.BlockSize(m.model)
	switch {
	case !ok:
		return 0, "the model " + shown(m.model) + " is not in kthena.models"
	case q.blockSize != 0 && q.blockSize != size:
		return 0, "blocks of the model are of another size"
	}
	return size, ""
}

// live reports whether any stream of the model is live.
func (m *matcher) live(tenant string) bool {
	return slices.ContainsFunc(m.fleet.Instances(), func(in *Instance) bool {
		return in.Model == m.model && sameTenant(in.Tenant, tenant) && in.Health().State == Live
	})
}

// forget drops what the index said: an answer is never of two sources.
func (m *matcher) forget() {
	m.tables, m.slots, m.rows, m.ranks = m.tables[:0], m.slots[:0], m.rows[:0], m.ranks[:0]
	m.byID = m.named // the other is kept from query to query
	clear(m.named)
	clear(m.spelt)
}

// fillFlat makes the rows: the candidates, or every pod that holds a block.
func (m *matcher) fillFlat(q *queryRequest, pods map[string]blocksOf) {
	health := Health{State: Degraded, Reason: flatReason, BlockSize: m.flat.blockSize}
	add := func(name string, number bool, blocks blocksOf) {
		m.rows = append(m.rows, row{name: name, number: number, slot: len(m.slots)})
		m.slots = append(m.slots, slot{health: health, table: -1, blocks: blocks})
	}
	if !q.named {
		for _, pod := range sortedKeys(pods) {
			add(pod, false, pods[pod])
		}
		return
	}
	for _, c := range q.candidates {
		if _, twice := m.spelt[c.name]; !twice {
			m.spelt[c.name] = struct{}{}
			add(c.name, c.number, m.podOf(c.name, pods))
		}
	}
}

// podOf finds the pod that a candidate is: by POD.NAMESPACE or NAMESPACE/POD, or
// by any name of a followed instance.
func (m *matcher) podOf(name string, pods map[string]blocksOf) blocksOf {
	if blocks, ok := pods[name]; ok {
		return blocks
	}
	if namespace, pod, ok := strings.Cut(name, "/"); ok {
		if blocks, ok := pods[pod+"."+namespace]; ok {
			return blocks
		}
	}
	if in, ok := m.fleet.Find(name); ok {
		for _, alias := range in.Aliases {
			if blocks, ok := pods[alias]; ok {
				return blocks
			}
		}
		return pods[in.ID]
	}
	return blocksOf{}
}

// unknownRows echoes the candidates of a query that cannot be answered.
func (m *matcher) unknownRows(q *queryRequest) {
	for _, c := range q.candidates {
		if _, twice := m.spelt[c.name]; !twice {
			m.spelt[c.name] = struct{}{}
			m.rows = append(m.rows, row{name: c.name, number: c.number, slot: -1, reason: "nothing is known of it without a flat match"})
		}
	}
}

// share is how many blocks the prompt has and how many of them the answer is
// about, as far as a slot is concerned; ok is false if it holds nothing.
func (m *matcher) share(q *queryRequest, sl *slot) (total, considered int, ok bool) {
	switch {
	case m.flat.on:
		return m.flat.total, m.flat.scanned, m.flat.total > 0
	case sl.table >= 0:
		total = m.results[sl.table].TotalBlocks
		return total, q.considered(total), total > 0
	}
	return 0, 0, false
}

// newFlatCounter counts flat matches.
func newFlatCounter() *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kvindex_flat_matches_total",
		Help: "Queries that were to be answered by flat hashes, by result: answered, failed.",
	}, []string{"result"})
	for _, result := range []string{"answered", "failed"} {
		c.WithLabelValues(result)
	}
	return c
}
