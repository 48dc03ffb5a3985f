package indexer

import (
	"fmt"
	"time"
)

// Restored is a holder that was read: what a stream held when the snapshot was
// taken.
type Restored struct {
	Key    TableKey
	Stream StreamID
	Holder *Holder
}

// Snapshot is what was read of a snapshot: not yet part of the index that it was
// read for. Either Use or Discard is called, once.
type Snapshot struct {
	// Holders are what streams held when it was taken, with what was suspect of it.
	// After Use they answer matches like any others, until they are retired.
	Holders []Restored
	// Refused is how many blocks the bounds of Options did not admit.
	Refused int

	index  *Index
	models []string
	loras  []adapter
	tables map[TableKey]*Table
}

type adapter struct{ model, name string }

// ReadSnapshot reads what AppendSnapshot of an index with the same seed wrote,
// for an index that has no tables yet. An error, which wraps ErrSnapshot, says
// what is wrong. The version before this one is read, too. It takes about 400 to
// 600 ns a block.
func (x *Index) ReadSnapshot(b []byte) (*Snapshot, error) {
	d := &dec{b: b}
	if d.version = d.num(); d.err == nil && (d.version < oldestVersion || d.version > SnapshotVersion) {
		return nil, fmt.Errorf("%w: it has version %d, this kvindex reads %d to %d", ErrSnapshot, d.version, oldestVersion, SnapshotVersion)
	}
	if seed := d.hash(); d.err == nil && seed != x.hasher.fingerprint() {
		return nil, fmt.Errorf("%w: its hashes have another seed (index.seed)", ErrSnapshot)
	}
	s := &Snapshot{index: x, tables: map[TableKey]*Table{}}
	for range d.count(1, "models") {
		s.models = append(s.models, d.str("a model"))
	}
	for range d.count(2, "adapters") {
		name := d.str("an adapter")
		for range d.count(1, "models of an adapter") {
			s.loras = append(s.loras, adapter{d.str("a model"), name})
		}
	}
	for range d.count(5, "tables") {
		t, found, refused := x.decodeTable(d)
		if d.err != nil {
			break
		}
		if s.tables[t.key] != nil {
			d.fail("two tables of %q with blocks of %d", t.key.Model, t.key.BlockSize)
			t.abandon()
			break
		}
		s.tables[t.key] = t
		s.Holders = append(s.Holders, found...)
		s.Refused += refused
	}
	if d.err == nil && d.at != len(b) {
		d.fail("%d bytes follow the end", len(b)-d.at)
	}
	if d.err == nil && len(x.dir.Load().tables) > 0 {
		d.err = fmt.Errorf("%w: the index has tables already", ErrSnapshot)
	}
	if d.err != nil {
		s.Discard()
		return nil, d.err
	}
	return s, nil
}

// Use makes what was read part of the index.
func (s *Snapshot) Use() {
	for _, m := range s.models {
		s.index.Alias(m, m)
	}
	s.index.change(func(d *directory) {
		for _, t := range s.tables {
			d.insert(t)
		}
	})
	for _, l := range s.loras {
		s.index.NoteLoRA(l.model, l.name)
	}
}

// Discard forgets what was read.
func (s *Snapshot) Discard() {
	for _, t := range s.tables {
		t.abandon()
	}
}

// abandon gives back what t was counted for. It must not have been published.
func (t *Table) abandon() {
	for range t.arena.count {
		t.mem.unblock()
	}
	t.mem.add(-t.mem.bytes.Load())
}

// reader decodes one table.
type reader struct {
	*dec
	t       *Table
	scopes  []scopeID
	holders []*Holder
	sets    []readSet
	apart   []readSuspects
	refused int

	last    uint32   // the entry before, 0 if that was not admitted
	waiting []simple // entries that are read, and not admitted yet
}

// simple is an entry as most are: with one name, and no copies beyond the first.
type simple struct {
	place  place
	name   EngineHash
	set    *readSet
	linked bool
}

// readSuspects is what is suspect of a holder. While it is read it is a holder by
// itself.
type readSuspects struct {
	of, holder *Holder
	since      time.Time
}

// openSuspects makes room for what is suspect of h.
func (r *reader) openSuspects(h *Holder) {
	since := time.UnixMilli(int64(r.upTo(1<<62, "a time")))
	if now := time.Now(); since.After(now) {
		since = now // by another clock, or by ours before it was set back
	}
	s := r.t.Open(h.id)
	r.holders = append(r.holders, s)
	r.apart = append(r.apart, readSuspects{h, s, since})
}

// joinSuspects gives holders what is suspect of them.
func (r *reader) joinSuspects() {
	for _, a := range r.apart {
		a.holder.seat.of = a.of
		a.of.suspects = append(a.of.suspects, suspect{a.holder.seat, a.since})
	}
	r.t.publishRoster()
}

// member is one stream in a set.
type member struct {
	holder *Holder
	tiers  byte
}

// readSet is a set of the snapshot.
type readSet struct {
	members []member
	id      uint32 // what it is here
	blocks  int    // that have it, and are not yet counted for the members
}

func (x *Index) decodeTable(d *dec) (t *Table, found []Restored, refused int) {
	key := TableKey{Model: d.str("a model"), BlockSize: d.upTo(1<<31, "a block size"), Bigram: d.bool("bigram")}
	if d.err != nil {
		return nil, nil, 0
	}
	x.mu.Lock()
	t = newTable(key, x)
	x.mu.Unlock()
	// Nobody else knows t yet: its mutex is not needed.
	r := &reader{dec: d, t: t, scopes: []scopeID{0}}
	for range d.count(8, "scopes") {
		r.scopes = append(r.scopes, t.scopeID(ScopeKey(d.hash())))
	}
	for range d.count(3, "streams") {
		id := StreamID{Instance: d.str("an instance"), Rank: d.upTo(1<<31, "a rank")}
		h := t.Open(id)
		flags := d.byte()
		if flags > streamPartial|streamUnsure {
			d.fail("flags %#x of a stream", flags)
		}
		h.partial, h.unsure = flags&streamPartial != 0, flags&streamUnsure != 0
		r.holders = append(r.holders, h)
		found = append(found, Restored{key, id, h})
		if d.version == 1 {
			continue
		}
		for range d.count(1, "times of suspicion") {
			r.openSuspects(h)
		}
	}
	r.readSets()
	r.readEntries()
	r.joinSuspects()
	r.readParked()
	r.readLate()
	for _, s := range r.sets {
		t.sets.count(s.id, 0, 0, -1)
	}
	if d.err != nil {
		t.abandon()
		return nil, nil, 0
	}
	return t, found, r.refused
}

func (r *reader) readSets() {
	for range r.counted(r.fixed(), 3, "sets") {
		var set readSet
		for range r.count(2, "members of a set") {
			i := r.upTo(uint64(len(r.holders)), "a stream")
			tiers := r.byte()
			if r.err != nil {
				return
			}
			if tiers == 0 || tiers >= 1<<NumTiers {
				r.fail("tiers %#x", tiers)
				return
			}
			h := r.holders[i]
			set.members = append(set.members, member{h, tiers})
			for tier := range Tier(NumTiers) {
				if tiers>>tier&1 != 0 {
					set.id = r.t.sets.with(set.id, h.slot, tier)
				}
			}
		}
		r.t.sets.count(set.id, 0, 0, 1) // so that it stays until blocks have it
		r.sets = append(r.sets, set)
	}
}

// entryName is one name of an entry, as it is read.
type entryName struct {
	name, before EngineHash
	set          *readSet
}

// readEntries reads the blocks. That each has a place in memory of its own, which
// is not in any cache, is what it takes time for; so those of several are fetched
// at once.
func (r *reader) readEntries() {
	n := r.counted(r.fixed(), 10, "entries")
	r.t.index.reserve(n)
	r.t.names.index.reserve(n)
	var at place
	var name EngineHash // of the entry before
	var set *readSet
	var names []entryName
	for ; n > 0 && r.err == nil; n-- {
		flags := r.byte()
		seq := SeqHash(r.hash())
		linked := flags&entryLinked != 0
		if linked {
			at = place{seq: seq, parent: at.seq, before: name, pos: at.pos + 1, scope: at.scope}
		} else {
			at = r.place()
			at.seq = seq
		}
		if flags&entrySameSet == 0 {
			set = r.set()
		}
		if flags&(entryMany|entryExtra) == 0 {
			name = EngineHash(r.hash())
			r.t.index.touch(uint64(seq))
			r.t.names.index.touch(uint64(name))
			if r.waiting = append(r.waiting, simple{at, name, set, linked}); len(r.waiting) == touchAhead {
				r.admitWaiting(n)
			}
			continue
		}
		r.admitWaiting(n)
		names = r.names(names[:0], flags, at.before, set)
		if r.err != nil || !r.isNew(seq, set, len(names)) {
			return
		}
		r.last = r.hold(at, names, r.near(linked, n))
		name = names[0].name
		if flags&entryExtra != 0 {
			r.copies(at, names)
		}
	}
	r.admitWaiting(1)
	for i := range r.sets {
		r.sets[i].count()
	}
}

// names reads the names of an entry.
func (r *reader) names(to []entryName, flags byte, before EngineHash, set *readSet) []entryName {
	if flags&entryMany == 0 {
		return append(to, entryName{EngineHash(r.hash()), before, set})
	}
	for range r.count(17, "names") {
		to = append(to, entryName{EngineHash(r.hash()), EngineHash(r.hash()), r.set()})
	}
	return to
}

// isNew checks an entry. It is false, and the snapshot broken, if it cannot be.
func (r *reader) isNew(seq SeqHash, set *readSet, names int) bool {
	if names == 0 || seq == 0 || set == nil || r.t.find(seq) != 0 {
		r.fail("an entry without a name, a hash or a set, or one that is there twice")
		return false
	}
	return true
}

// near says where the next entry should be, of so many that are left.
func (r *reader) near(linked bool, left int) hint {
	h := hint{want: min(left, slabSize)}
	if linked {
		h.after = r.last
	}
	return h
}

// admitWaiting makes entries of what was read.
func (r *reader) admitWaiting(left int) {
	for i := range r.waiting {
		w := &r.waiting[i]
		if r.err != nil || !r.isNew(w.place.seq, w.set, 1) {
			break
		}
		r.last = r.admit(w.place, entryName{w.name, w.place.before, w.set}, r.near(w.linked, left+len(r.waiting)-i-1))
	}
	r.waiting = r.waiting[:0]
}

// hold makes the streams hold the block at p, and returns its entry, 0 if it is
// not admitted.
func (r *reader) hold(p place, names []entryName, near hint) (id uint32) {
	if len(names) == 1 && names[0].before == p.before {
		return r.admit(p, names[0], near)
	}
	for _, n := range names {
		p.before = n.before
		for _, m := range n.set.members {
			for tier := range Tier(NumTiers) {
				if m.tiers>>tier&1 == 0 {
					continue
				}
				out := m.holder.hold(tier, n.name, &p, 1, near)
				if out.refusal != admitted {
					r.refused++
					return 0
				}
				id = out.id
			}
		}
	}
	return id
}

// admit is hold for an entry with one name.
func (r *reader) admit(p place, n entryName, near hint) uint32 {
	id, refusal := r.t.admit(&p, n.name, n.set.id, near)
	if refusal != admitted {
		r.refused++
		return 0
	}
	if near.after != 0 && id != near.after+1 {
		r.t.arena.hint(near.after, id)
	}
	n.set.blocks++
	return id
}

// count counts the blocks that have the set for its members.
func (s *readSet) count() {
	for _, m := range s.members {
		for tier := range Tier(NumTiers) {
			if m.tiers>>tier&1 != 0 {
				m.holder.held[tier].Add(int64(s.blocks))
			}
		}
	}
	s.blocks = 0
}

// copies reads how many copies there are beyond the first.
func (r *reader) copies(p place, names []entryName) {
	for range r.byte() {
		n := r.upTo(uint64(len(names)), "a name")
		h := r.upTo(uint64(len(r.holders)), "a stream")
		tier := Tier(r.byte())
		more := r.upTo(1<<16, "copies")
		if r.err != nil {
			return
		}
		if tier >= NumTiers {
			r.fail("tier %d", tier)
			return
		}
		p.before = names[n].before
		r.holders[h].hold(tier, names[n].name, &p, more, hint{want: 1})
	}
}

func (r *reader) place() place {
	p := place{pos: uint32(r.upTo(1<<32, "a position")), scope: r.scope()}
	if p.pos > 0 {
		p.parent, p.before = SeqHash(r.hash()), EngineHash(r.hash())
	}
	return p
}

func (r *reader) scope() scopeID {
	n := r.num()
	if n == uint64(manyScopes) {
		return manyScopes
	}
	if n >= uint64(len(r.scopes)) {
		r.fail("scope %d of %d", n, len(r.scopes))
		return 0
	}
	return r.scopes[n]
}

func (r *reader) set() *readSet {
	if i := r.upTo(uint64(len(r.sets)), "a set"); r.err == nil {
		return &r.sets[i]
	}
	return nil
}

// holder reads which holder something is of, beside blocks. After an error it is
// nil.
func (r *reader) holder() *Holder {
	i := r.upTo(uint64(len(r.holders)), "a stream")
	if r.err != nil {
		return nil
	}
	if h := r.holders[i]; h.of == h {
		return h
	}
	r.fail("stream %d is what is suspect of another", i)
	return nil
}

func (r *reader) readParked() {
	for range r.counted(r.fixed(), 36, "parked blocks") {
		h := r.holder()
		run := Run{
			Engine: []EngineHash{EngineHash(r.hash())}, Parent: EngineHash(r.hash()), HasParent: true,
			Local: []LocalHash{LocalHash(r.hash())}, Scope: ScopeKey(r.hash()),
		}
		var copies [NumTiers]int
		for t := range copies {
			copies[t] = r.upTo(1<<16, "copies")
		}
		if r.err != nil {
			return
		}
		for t, n := range copies {
			run.Tier = Tier(t)
			for range n {
				r.refused += h.Store(run).Refused
			}
		}
	}
}

func (r *reader) readLate() {
	for range r.counted(r.fixed(), 28, "late names") {
		h := r.holder()
		l := lateName{
			name: EngineHash(r.hash()), seq: SeqHash(r.hash()), before: EngineHash(r.hash()),
			pos: uint32(r.upTo(1<<32, "a position")), scope: r.scope(), unseen: r.bool("unseen"),
		}
		if r.err != nil {
			return
		}
		h.late.put(l, int64(h.blocks()), r.t.mem)
	}
}
