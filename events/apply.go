package events

import (
	"encoding/binary"
	"fmt"

	"github.com/kvindex/kvindex/indexer"
)

// Reasons why a well-formed event is left out.
const (
	SkipMedium    SkipReason = "unknown_medium" // a place that this version does not know
	SkipRemote    SkipReason = "remote"         // shared storage: belongs to no instance
	SkipGroup     SkipReason = "other_group"    // an attention group that does not decide a prefix
	SkipTokens    SkipReason = "unmappable"     // tokens do not fill the blocks: positions unknown
	SkipBlockSize SkipReason = "block_size"     // not the stream's block size
	SkipNoHolder  SkipReason = "before_tokens"  // a location before any block with tokens
)

// maxBlockSize is far above what engines use and keeps products small.
const maxBlockSize = 1 << 20

// applier turns decoded events into updates of the index, for one stream.
type applier struct {
	opts  *SessionOptions
	count *Counters

	hasher  indexer.Hasher
	holders []rankHolder // one, but for streams whose batches name several ranks
	partial bool

	blockSize int  // of the stream, once known
	bigram    bool // tokens are pairs

	groups    []groupKind // what stores told about attention groups
	scopes    map[indexer.Scope]indexer.ScopeKey
	refused   int  // block size of the events that were refused, 0: none
	unchained bool // engine hashes name no prefix
	hidden    namespaces
	missing   uint64 // about how many blocks of the engine the index had no room for
	badEvents uint64 // events that could not be decoded since the last clear, and may have removed blocks
	unmapped  uint64 // stores that could not be applied since the last clear

	local []indexer.LocalHash // scratch
	extra []byte              // scratch
}

// rankHolder is the current incarnation of one rank.
type rankHolder struct {
	rank   int
	holder *indexer.Holder
}

// groupKind says whether a KV-cache group decides a prefix.
type groupKind struct {
	group int
	main  bool
}

func newApplier(o *SessionOptions, c *Counters) applier {
	a := applier{opts: o, count: c, blockSize: o.BlockSize, scopes: map[indexer.Scope]indexer.ScopeKey{}}
	if o.Index != nil {
		a.hasher = o.Index.Hasher()
	}
	return a
}

// batch applies b in order and reports whether it left the stream with
// nothing from before: everything was cleared.
func (a *applier) batch(b *Batch) (cleared bool) {
	for _, skip := range b.Skipped {
		a.count.Skips[skip.Reason]++
		// An event of a kind that we do not know says nothing about blocks; any
		// other may have been a store or a removal.
		if skip.Reason != SkipUnknownTag {
			a.badEvents++
		}
	}
	rank := a.opts.Stream.Rank
	if b.HasRank {
		rank = b.Rank
	}
	for i := range b.Events {
		e := &b.Events[i]
		var why SkipReason
		switch e.Kind {
		case BlockStored:
			why = a.stored(rank, e)
		case BlockRemoved:
			why = a.removed(rank, e)
		case AllBlocksCleared:
			a.clear(rank)
			cleared = !a.opts.GPUClearOnly && len(a.holders) == 0
		}
		if why != "" {
			a.count.Skips[why]++
			continue
		}
		a.count.Events[e.Kind]++
	}
	return cleared
}

func (a *applier) stored(rank int, e *Event) SkipReason {
	tier, why := place(e)
	if why != "" {
		return why
	}
	if !a.isMain(e) {
		return SkipGroup
	}
	if len(e.Hashes) == 0 {
		return ""
	}
	if len(e.Tokens) == 0 { // an offload connector: known blocks are now elsewhere too
		return a.located(rank, tier, e)
	}
	per := 1
	if e.Bigram {
		per = 2
	}
	if e.BlockSize <= 0 || e.BlockSize > maxBlockSize ||
		len(e.Tokens) != len(e.Hashes)*e.BlockSize*per ||
		e.HasExtra && e.ExtraLen != len(e.Hashes) {
		return a.refuse(tier, SkipTokens)
	}
	if a.blockSize != 0 && e.BlockSize != a.blockSize {
		if a.opts.BlockSize != 0 && tier == indexer.GPU {
			a.refused = e.BlockSize
		}
		return a.refuse(tier, SkipBlockSize)
	}
	scope := a.scope(e)
	h := a.open(rank, e)
	a.hashBlocks(e, per)
	r := h.Store(indexer.Run{
		Tier:   tier,
		Parent: e.Parent, HasParent: e.HasParent,
		Engine: e.Hashes, Local: a.local, Scope: scope,
	})
	a.count.Orphans += uint64(r.Orphaned)
	a.count.Refused += uint64(r.Refused)
	a.missing += uint64(r.Refused)
	if r.Conflicts > 0 || !e.Bigram && e.Hashes[0] == pythonTupleHash(e.Tokens[:e.BlockSize]) {
		a.unchained = true
	}
	return ""
}

// refuse leaves out a store of blocks that decide a prefix. On the GPU that is
// a loss; offload connectors may cut blocks in their own way for good.
func (a *applier) refuse(tier indexer.Tier, why SkipReason) SkipReason {
	if tier == indexer.GPU {
		a.unmapped++
	}
	return why
}

func (a *applier) located(rank int, tier indexer.Tier, e *Event) SkipReason {
	h := a.holder(rank)
	if h == nil {
		return SkipNoHolder
	}
	_, unknown := h.Locate(tier, e.Hashes)
	a.count.Unknown += uint64(unknown)
	return ""
}

func (a *applier) removed(rank int, e *Event) SkipReason {
	tier, why := place(e)
	if why != "" {
		return why
	}
	if !a.isMain(e) {
		return SkipGroup
	}
	h := a.holder(rank)
	if h == nil {
		a.count.Unknown += uint64(len(e.Hashes))
		return ""
	}
	_, unknown := h.Remove(tier, e.Hashes)
	a.count.Unknown += uint64(unknown)
	a.missing -= min(a.missing, uint64(unknown)) // the engine gives up what was not admitted
	return ""
}

func (a *applier) clear(rank int) {
	a.badEvents, a.unmapped, a.missing = 0, 0, 0
	for i, rh := range a.holders {
		if rh.rank != rank {
			continue
		}
		if a.opts.GPUClearOnly {
			rh.holder.Clear(indexer.GPU)
			return
		}
		rh.holder.Retire()
		a.holders = append(a.holders[:i], a.holders[i+1:]...)
		return
	}
}

// retire drops everything that the stream holds and what it taught: the next
// process behind the address may be another engine.
func (a *applier) retire() {
	for _, rh := range a.holders {
		rh.holder.Retire()
	}
	a.holders = nil
	a.blockSize, a.bigram = a.opts.BlockSize, false
	a.groups, a.hidden = nil, namespaces{}
	a.refused, a.unchained, a.badEvents, a.unmapped, a.missing = 0, false, 0, 0, 0
}

func (a *applier) holder(rank int) *indexer.Holder {
	for _, rh := range a.holders {
		if rh.rank == rank {
			return rh.holder
		}
	}
	return nil
}

// open returns the holder of rank, beginning one with the first block that
// has tokens: only then the block size is known.
func (a *applier) open(rank int, e *Event) *indexer.Holder {
	if h := a.holder(rank); h != nil {
		return h
	}
	a.blockSize, a.bigram = e.BlockSize, e.Bigram
	t := a.opts.Index.Table(indexer.TableKey{Model: a.opts.Model, BlockSize: e.BlockSize, Bigram: e.Bigram})
	h := t.Open(indexer.StreamID{Instance: a.opts.Instance, Rank: rank})
	h.SetPartial(a.partial)
	a.holders = append(a.holders, rankHolder{rank, h})
	return h
}

func (a *applier) setPartial(p bool) {
	if p == a.partial {
		return
	}
	a.partial = p
	for _, rh := range a.holders {
		rh.holder.SetPartial(p)
	}
}

// trouble says what in the content of the batches degrades the stream.
func (a *applier) trouble() string {
	switch {
	case a.refused != 0:
		return fmt.Sprintf("%s: the engine's blocks have %d tokens, the instance is registered with %d: its events are refused",
			CauseBlockSize, a.refused, a.opts.BlockSize)
	case a.unchained:
		return CauseUnchained + ": the engine's block hashes do not name prefixes (SGLang before 0.5.8): upgrade the engine"
	case a.badEvents+a.unmapped > 0:
		return fmt.Sprintf("%s: %d events could not be decoded or applied", CauseEvents, a.badEvents+a.unmapped)
	case a.missing > 0:
		return fmt.Sprintf("%s: the index is full: up to %d of the engine's blocks are not in it", CauseCapacity, a.missing)
	}
	return ""
}

// isMain reports whether the event's attention group decides a prefix. Stores
// name the kind of their group; removals only its number.
func (a *applier) isMain(e *Event) bool {
	if e.SpecKind != "" {
		main := mainKind(e.SpecKind)
		if e.Group >= 0 {
			a.learnGroup(e.Group, main)
		}
		return main
	}
	if e.Group < 0 || len(a.groups) == 0 {
		return true
	}
	for _, g := range a.groups {
		if g.group == e.Group {
			return g.main
		}
	}
	// Other groups have named their kinds and this one not yet: it has stored
	// nothing that counts.
	return false
}

func (a *applier) learnGroup(group int, main bool) {
	for _, g := range a.groups {
		if g.group == group {
			return
		}
	}
	if len(a.groups) < 256 {
		a.groups = append(a.groups, groupKind{group, main})
	}
}

func mainKind(kind string) bool {
	switch kind {
	case "full_attention", "mla_attention", "sink_full_attention":
		return true
	}
	return false
}

// place maps the wire's medium and locality to a tier.
func place(e *Event) (indexer.Tier, SkipReason) {
	if e.Locality == "REMOTE" {
		return 0, SkipRemote
	}
	switch e.Medium {
	case "", "GPU":
		return indexer.GPU, ""
	case "CPU", "CPU_PINNED", "CPU_TIER1":
		return indexer.CPU, ""
	case "DISK", "FS", "OBJ", "STORAGE", "NVME", "CPU_TIER2", "SHARED_STORAGE", "EXTERNAL":
		return indexer.Disk, ""
	}
	return 0, SkipMedium
}

// maxScopes bounds the memory for scope keys; beyond it they are recomputed.
const maxScopes = 4096

// scope is what separates the event's prompt from others with equal tokens.
func (a *applier) scope(e *Event) indexer.ScopeKey {
	s := indexer.Scope{Tenant: a.opts.Tenant, LoRA: e.LoRAName, Salt: e.Salt}
	switch {
	case s.LoRA != "":
		a.opts.Index.NoteLoRA(a.opts.Model, s.LoRA)
	case e.HasLoRA:
		// vLLM before 0.14 names adapters by a number that depends on the order
		// of loading: no request can ask for it, but base prompts must not meet it.
		s.LoRA = fmt.Sprintf("\x00lora_id:%d", e.LoRAID)
	default:
		s.LoRA = a.opts.LoRA
	}
	if s.Salt == "" && !e.HasParent && len(e.Extra) > 0 {
		s.Salt = saltOf(e.Extra[0], e.LoRAName)
	}
	if s.Salt == "" {
		if s.LoRA == "" {
			s.LoRA = a.hidden.of(e)
		}
		s.Salt = a.opts.Salt
	}
	if s == (indexer.Scope{}) {
		return 0
	}
	if k, ok := a.scopes[s]; ok {
		return k
	}
	k := a.hasher.Scope(s)
	if len(a.scopes) >= maxScopes {
		clear(a.scopes)
	}
	a.scopes[s] = k
	return k
}

// saltOf finds the cache_salt among the extra keys of a prompt's first block:
// the last bare string that is not the LoRA name in front. (A bare string is
// a multimodal id in 0.17 only; then the prompt lands in a scope of its own,
// where nothing else can meet it.)
func saltOf(keys BlockExtra, lora string) string {
	salt := ""
	for i, k := range keys {
		if k.Kind == ExtraString && (i > 0 || lora == "" || k.Str != lora) {
			salt = k.Str
		}
	}
	return salt
}

// hashBlocks fills a.local with the local hashes of the event's blocks.
func (a *applier) hashBlocks(e *Event, per int) {
	n := e.BlockSize * per
	a.local = a.local[:0]
	for i := range e.Hashes {
		a.extra = a.extra[:0]
		if i < len(e.Extra) {
			a.extra = appendExtra(a.extra, e.Extra[i], e.LoRAName, i == 0 && !e.HasParent)
		}
		a.local = append(a.local, a.hasher.Local(e.Tokens[i*n:(i+1)*n], a.extra))
	}
}

// appendExtra appends the canonical encoding of a block's extra keys, without
// those that the scope stands for: the LoRA name in front and, in a prompt's
// first block, the salt.
func appendExtra(buf []byte, keys BlockExtra, lora string, first bool) []byte {
	salt := ""
	if first {
		salt = saltOf(keys, lora)
	}
	for i, k := range keys {
		if k.Kind == ExtraString && (i == 0 && lora != "" && k.Str == lora || first && k.Str == salt) {
			continue
		}
		buf = append(buf, byte(k.Kind))
		buf = binary.LittleEndian.AppendUint32(buf, uint32(len(k.Str)))
		buf = append(buf, k.Str...)
		if k.Kind == ExtraOffset {
			buf = binary.LittleEndian.AppendUint64(buf, uint64(k.Offset))
		}
	}
	return buf
}
