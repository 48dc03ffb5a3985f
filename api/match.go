package api

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kvindex/kvindex/indexer"
)

// AnswerState says what an answer is worth as a whole.
type AnswerState string

// The states of an answer.
const (
	// Exact: every instance considered is live, so the numbers are true.
	Exact AnswerState = "exact"
	// Partial ("degraded"): some are not. What is said was reported stored;
	// there may be more.
	Partial AnswerState = "degraded"
	// Cold: no stream of the model has been followed yet.
	Cold AnswerState = "cold"
	// NoTokens ("unknown"): the blocks of the prompt are not known, so the
	// zeros mean nothing.
	NoTokens AnswerState = "unknown"
)

// blocksOf are the blocks of one rank or instance, cumulative by tier.
type blocksOf = [indexer.NumTiers]int

// rankMatch is what one rank of an instance holds.
type rankMatch struct {
	slot   int32
	rank   int
	table  int
	blocks blocksOf
	sure   blocksOf // of these, before the first that is suspect
}

// slot is one instance in an answer, however often the caller names it.
type slot struct {
	inst   *Instance
	health Health
	table  int      // the table that its blocks are of, -1 when it holds none
	blocks blocksOf // best over ranks, tier by tier
	sure   blocksOf // likewise, without what is suspect
	ranks  []rankMatch
}

// row is one line of an answer: an instance under the name the caller used.
type row struct {
	name   string
	number bool
	slot   int    // -1: no such instance
	reason string // why slot is -1, or why it cannot hold anything
}

// roster is who answers a query that names no candidates. It is the same from
// query to query until the fleet changes, which its slice shows.
type roster struct {
	of            []*Instance // what it was made of; held, so that no other slice has its address
	model, tenant string
	slots         []slot // without what a query finds
	rows          []row
	byID          map[string]int32
}

// matcher answers one query at a time. It keeps its storage between queries.
type matcher struct {
	index  *indexer.Index
	fleet  Fleet
	hashes *blockHashes
	// starting says why nothing is known yet.
	starting func() string

	model, lora string // as resolved
	tables      []*indexer.Table
	results     []indexer.Result // one a table
	slots       []slot
	rows        []row
	ranks       []rankMatch
	byID        map[string]int32 // slot of an instance: named, or that of all
	named       map[string]int32
	spelt       map[string]struct{}
	all         roster

	flat   flatAnswer
	state  AnswerState
	reason string

	hashed, matched time.Duration
}

// run answers q. The result is in m until the next run.
func (m *matcher) run(q *queryRequest) error {
	m.tables, m.slots, m.rows, m.ranks = m.tables[:0], m.slots[:0], m.rows[:0], m.ranks[:0]
	m.state, m.reason, m.hashed, m.matched, m.flat = Exact, "", 0, 0, flatAnswer{}
	known, err := m.resolve(q)
	if err != nil {
		return err
	}
	m.choose(q)
	if q.source != sourceText && q.source != sourceNone {
		m.match(q)
	}
	m.judge(q, known)
	return nil
}

// resolve finds the model and the adapter that q means, and reports whether
// the index knows the model.
func (m *matcher) resolve(q *queryRequest) (known bool, err error) {
	model, lora, ok := m.index.Resolve(q.model)
	if !ok {
		m.model, m.lora = q.model, q.lora
		return false, nil
	}
	if lora != "" && q.lora != "" && lora != q.lora {
		return false, contradictory("lora_name", "model %s is the LoRA adapter %s of %s, and lora_name is %s",
			shown(q.model), shown(lora), shown(model), shown(q.lora))
	}
	m.model, m.lora = model, cmp.Or(lora, q.lora)
	for _, t := range m.index.Tables(model) {
		if q.blockSize == 0 || t.Key().BlockSize == q.blockSize {
			m.tables = append(m.tables, t)
		}
	}
	return true, nil
}

// choose fills rows and slots: the candidates, or every instance of the model
// and tenant.
func (m *matcher) choose(q *queryRequest) {
	if !q.named {
		m.chooseAll(tenantName(q.tenant))
		return
	}
	m.byID = m.named
	clear(m.named)
	clear(m.spelt)
	for _, c := range q.candidates {
		if _, twice := m.spelt[c.name]; twice {
			continue // one member of a JSON object is all it can be
		}
		m.spelt[c.name] = struct{}{}
		r := row{name: c.name, number: c.number, slot: -1}
		switch inst, ok := m.fleet.Find(c.name); {
		case !ok || !sameTenant(inst.Tenant, q.tenant):
			r.reason = "no followed instance has this id, address or alias"
		case inst.Model != m.model:
			r.reason = "the instance serves " + inst.Model
		default:
			r.slot = m.slotOf(inst)
		}
		m.rows = append(m.rows, r)
	}
}

// chooseAll fills rows and slots with every instance of the model and tenant.
func (m *matcher) chooseAll(tenant string) {
	a := &m.all
	if list := m.fleet.Instances(); !sameSlice(list, a.of) || a.model != m.model || a.tenant != tenant {
		*a = roster{of: list, model: m.model, tenant: tenant, byID: map[string]int32{}}
		for _, inst := range list {
			if inst.Model == m.model && tenantName(inst.Tenant) == tenant {
				a.byID[inst.ID] = int32(len(a.slots))
				a.rows = append(a.rows, row{name: inst.ID, number: inst.NumericID, slot: len(a.slots)})
				a.slots = append(a.slots, slot{inst: inst, table: -1})
			}
		}
	}
	m.byID = a.byID
	m.rows, m.slots = append(m.rows, a.rows...), append(m.slots, a.slots...)
	for i := range m.slots {
		m.slots[i].health = m.slots[i].inst.Health()
	}
}

// sameSlice reports whether a and b are one slice: the fleet makes a new one
// for every change.
func sameSlice(a, b []*Instance) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// slotOf returns the slot of inst, a new one at its first mention.
func (m *matcher) slotOf(inst *Instance) int {
	if i, ok := m.byID[inst.ID]; ok {
		return int(i)
	}
	m.byID[inst.ID] = int32(len(m.slots))
	m.slots = append(m.slots, slot{inst: inst, health: inst.Health(), table: -1})
	return len(m.slots) - 1
}

// tenantName is the tenant as answers name it.
func tenantName(t string) string { return cmp.Or(t, indexer.DefaultTenant) }

func sameTenant(a, b string) bool { return tenantName(a) == tenantName(b) }

// match looks the blocks of q up in every table and distributes what is found
// over the slots.
func (m *matcher) match(q *queryRequest) {
	begin := time.Now()
	for len(m.results) < len(m.tables) {
		m.results = append(m.results, indexer.Result{})
	}
	scope := m.index.Hasher().Scope(indexer.Scope{Tenant: q.tenant, LoRA: m.lora, Salt: q.salt})
	for i, t := range m.tables {
		r := &m.results[i]
		switch q.source {
		case sourceTokens:
			t.MatchTokens(q.tokens, scope, q.maxBlocks, r)
		case sourcePrompt:
			if t.Key().Bigram { // pairs of tokens: nothing remembers their hashes
				t.MatchTokens(q.tokenIDs(), scope, q.maxBlocks, r)
				break
			}
			t.MatchLocal(m.hashes.localHashes(q, t.Key().BlockSize), scope, q.maxBlocks, r)
		case sourceLocalHashes:
			t.MatchLocal(q.local, scope, q.maxBlocks, r)
		case sourceSeqHashes:
			t.MatchSeq(q.seq, q.maxBlocks, r)
		}
		for _, s := range r.Streams {
			if at, ok := m.byID[s.Stream.Instance]; ok {
				m.ranks = append(m.ranks, rankMatch{at, s.Stream.Rank, i, s.Blocks, s.Sure})
			}
		}
	}
	m.gather(q.tier)
	m.matched = time.Since(begin)
}

// gather sums the ranks up by instance. An instance whose ranks are in tables
// of different block sizes is answered from the table where it holds most
// tokens.
func (m *matcher) gather(tier indexer.Tier) {
	order := func(a, b rankMatch) int {
		return cmp.Or(cmp.Compare(a.slot, b.slot), cmp.Compare(a.rank, b.rank), cmp.Compare(a.table, b.table))
	}
	if !slices.IsSortedFunc(m.ranks, order) {
		slices.SortFunc(m.ranks, order)
	}
	for begin := 0; begin < len(m.ranks); {
		end := begin
		at := m.ranks[begin].slot
		for end < len(m.ranks) && m.ranks[end].slot == at {
			end++
		}
		s := &m.slots[at]
		s.ranks = m.ranks[begin:end]
		most := -1
		for _, r := range s.ranks {
			if n := r.blocks[tier] * m.blockSize(r.table); n > most {
				most, s.table = n, r.table
			}
		}
		for _, r := range s.ranks {
			if r.table == s.table {
				for t := range s.blocks {
					s.blocks[t] = max(s.blocks[t], r.blocks[t])
					s.sure[t] = max(s.sure[t], r.sure[t])
				}
			}
		}
		begin = end
	}
}

// blockSize is the number of tokens of a block of table i, 0 for table -1; of
// any, in a flat answer.
func (m *matcher) blockSize(i int) int {
	if m.flat.on {
		return m.flat.blockSize
	}
	if i < 0 {
		return 0
	}
	return m.tables[i].Key().BlockSize
}

// judge sets the state of the answer and its reason.
func (m *matcher) judge(q *queryRequest, known bool) {
	switch {
	case q.source == sourceText:
		m.state = NoTokens
		m.reason = "the tokens of the request are not known: " + q.noTokens +
			"; token_ids, token_ids_b64, seq_hashes or local_hashes need no tokenizer"
	case !m.followed():
		m.state = Cold
		m.reason = m.coldReason(known)
	case q.blockSize != 0 && len(m.tables) == 0 && !m.anyBlockSize(q.blockSize):
		m.state = NoTokens
		m.reason = fmt.Sprintf("no instance of %s has blocks of %d tokens", shown(m.model), q.blockSize)
	default:
		m.state, m.reason = m.worst()
	}
}

// followed reports whether any stream of the model has ever been followed.
func (m *matcher) followed() bool {
	for i := range m.slots {
		if m.slots[i].health.State != Connecting {
			return true
		}
	}
	for _, inst := range m.fleet.Instances() {
		if inst.Model == m.model && inst.Health().State != Connecting {
			return true
		}
	}
	return false
}

// anyBlockSize reports whether an instance considered has blocks of n tokens.
func (m *matcher) anyBlockSize(n int) bool {
	return slices.ContainsFunc(m.slots, func(s slot) bool { return s.health.BlockSize == n })
}

// coldReason says why nothing of the model is known.
func (m *matcher) coldReason(known bool) string {
	n := 0
	models := map[string]struct{}{}
	for _, inst := range m.fleet.Instances() {
		models[inst.Model] = struct{}{}
		if inst.Model == m.model {
			n++
		}
	}
	if n > 0 {
		return fmt.Sprintf("no stream of model %s has been followed yet: %d of its instances connecting", shown(m.model), n)
	}
	if why := m.starting(); why != "" {
		return "nothing is known yet: " + why
	}
	if known {
		return fmt.Sprintf("no instance of model %s is registered", shown(m.model))
	}
	s := "no model " + shown(m.model) + " is followed"
	if names := sortedKeys(models); len(names) > 0 {
		const most = 5
		if len(names) > most {
			names = append(names[:most], "...")
		}
		s += ": there is " + strings.Join(names, ", ")
	}
	return s
}

// worst is the state of an answer over a followed model.
func (m *matcher) worst() (AnswerState, string) {
	bad, first := 0, ""
	for _, r := range m.rows {
		state, reason := Unknown, r.reason
		if r.slot >= 0 {
			h := &m.slots[r.slot].health
			if h.State == Live {
				continue
			}
			state, reason = h.State, h.Reason
		}
		if bad++; bad == 1 {
			first = r.name + " is " + string(state)
			if reason != "" {
				first += " (" + reason + ")"
			}
		}
	}
	switch bad {
	case 0:
		return Exact, ""
	case 1:
		return Partial, first
	}
	return Partial, fmt.Sprintf("%s, and %d more instances are not live", first, bad-1)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
