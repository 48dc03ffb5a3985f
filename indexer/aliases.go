package indexer

import "slices"

// place is where a block stands in its prompt.
type place struct {
	seq    SeqHash
	parent SeqHash    // of the block before it; meaningless at position 0
	before EngineHash // the engine's name of that block; meaningless at position 0
	pos    uint32     // how many blocks are before it
	scope  scopeID    // of its prompt
}

// alias is a block that an engine hash names, and how often the stream holds
// it under this name.
type alias struct {
	seq    SeqHash
	before EngineHash
	pos    uint32
	copies [NumTiers]uint16
	scope  scopeID
	unseen bool // removed by the stream, never stored: nothing but that is known
}

func (a *alias) held() bool { return a.copies != [NumTiers]uint16{} }

// lateAliases is how many aliases of removed blocks a holder keeps.
const lateAliases = 4096

// aliases maps the engine hashes of one stream to blocks.
//
// An engine hash names one block, for it stands for the whole prefix. Engines
// whose hashes do not (or collide) may name a second block while they hold the
// first; then the name is ambiguous. It still removes, but leads no longer
// from a parent to a child: better to forget blocks than to invent them.
//
// The alias of a block that was removed from its last tier is not dropped at
// once: offload connectors announce the copy in cpu after the removal from gpu,
// and events may be lost between a removal and the store of a child. The latest
// 4,096 of them are kept. After that the name is unknown, and what is stored
// under it waits as an orphan until the parent is stored again. Nothing is
// lost by that: no match gets past a parent that is not held.
type aliases struct {
	m    map[EngineHash]alias
	more map[EngineHash][]alias // further blocks of ambiguous names, each held
	late []EngineHash           // ring of the names in m that may hold nothing
	next int                    // where the ring goes on
	keep int                    // its size
}

// known returns the block that e names, held or lately removed. It is false
// if e names none or more than one.
func (n *aliases) known(e EngineHash) (alias, bool) {
	a, ok := n.m[e]
	if !ok || a.unseen || n.ambiguous(e) {
		return alias{}, false
	}
	return a, true
}

func (n *aliases) ambiguous(e EngineHash) bool {
	if len(n.more) == 0 {
		return false
	}
	_, yes := n.more[e]
	return yes
}

// bury keeps a, which holds nothing, for a while.
func (n *aliases) bury(e EngineHash, a alias) {
	n.m[e] = a
	if len(n.late) < n.keep {
		n.late = append(n.late, e)
		return
	}
	old := n.late[n.next]
	if b, ok := n.m[old]; ok && !b.held() {
		delete(n.m, old)
	}
	n.late[n.next] = e
	n.next = (n.next + 1) % n.keep
}

// take takes one copy in tier t of the block that e names, or, where e is
// ambiguous, all copies of all blocks that it names: it is not known which of
// them went. It calls gone for each block with the number of copies taken, and
// reports whether there were any.
func (n *aliases) take(e EngineHash, t Tier, gone func(alias, int)) bool {
	a, ok := n.m[e]
	if !ok {
		return false
	}
	if n.ambiguous(e) {
		return n.takeAll(e, t, gone)
	}
	if a.copies[t] == 0 {
		return false
	}
	a.copies[t]--
	gone(a, 1)
	if a.held() {
		n.m[e] = a
	} else {
		n.bury(e, a)
	}
	return true
}

// takeAll takes all copies in tier t of all blocks that e names. If that
// leaves one block, e is no longer ambiguous; if it leaves none, e is unknown.
func (n *aliases) takeAll(e EngineHash, t Tier, gone func(alias, int)) bool {
	all := append([]alias{n.m[e]}, n.more[e]...)
	taken := false
	for i := range all {
		if c := int(all[i].copies[t]); c > 0 {
			all[i].copies[t] = 0
			gone(all[i], c)
			taken = true
		}
	}
	all = slices.DeleteFunc(all, func(a alias) bool { return !a.held() })
	delete(n.more, e)
	switch {
	case len(all) == 0:
		delete(n.m, e)
	case len(all) == 1:
		n.m[e] = all[0]
	default:
		n.m[e], n.more[e] = all[0], all[1:]
	}
	return taken
}
