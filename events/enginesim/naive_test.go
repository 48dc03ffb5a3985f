package enginesim

import (
	"fmt"
	"testing"

	"github.com/kvindex/kvindex/indexer"
)

// naive is the simplest index of one rank's events that can be right: counts of
// copies in maps. It has to equal the pool's Truth after every step.
type naive struct {
	h      indexer.Hasher
	tenant string
	rank   int
	seqs   map[indexer.EngineHash]indexer.SeqHash // of every hash ever seen with tokens
	held   Truth
}

func newNaive(h indexer.Hasher, tenant string, rank int) *naive {
	return &naive{h: h, tenant: tenant, rank: rank, seqs: map[indexer.EngineHash]indexer.SeqHash{}, held: Truth{}}
}

// apply applies one batch. clearsCPU says whether AllBlocksCleared means the
// host tier too.
func (n *naive) apply(events []Event, clearsCPU bool) error {
	for _, ev := range events {
		switch ev.Kind {
		case Cleared:
			for k := range n.held {
				if k.Tier == indexer.GPU || clearsCPU {
					delete(n.held, k)
				}
			}
		case Removed:
			for _, hash := range ev.Hashes {
				k := n.key(hash, ev.Medium)
				s, ok := n.held[k]
				if !ok {
					return fmt.Errorf("%v is removed from %v and is not there", hash, k.Tier)
				}
				if s.Copies--; s.Copies == 0 {
					delete(n.held, k)
				} else {
					n.held[k] = s
				}
			}
		case Stored:
			if err := n.store(ev); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *naive) key(hash Hash, medium string) BlockKey {
	tier := indexer.GPU
	if medium == MediumCPU || medium == MediumCPUPinned {
		tier = indexer.CPU
	}
	return BlockKey{Rank: n.rank, Tier: tier, Seq: n.seqs[hash.Engine()]}
}

func (n *naive) store(ev Event) error {
	if len(ev.Tokens) > 0 {
		if len(ev.Tokens) != len(ev.Hashes)*ev.BlockSize {
			return fmt.Errorf("%d tokens for %d blocks of %d", len(ev.Tokens), len(ev.Hashes), ev.BlockSize)
		}
		if err := n.learn(ev); err != nil {
			return err
		}
	}
	for _, hash := range ev.Hashes {
		if _, ok := n.seqs[hash.Engine()]; !ok {
			return fmt.Errorf("%v is stored without tokens and unknown", hash)
		}
		k := n.key(hash, ev.Medium)
		n.held[k] = BlockState{Engine: hash.Engine(), Copies: n.held[k].Copies + 1}
	}
	return nil
}

// learn computes the sequence hashes of a run of blocks.
func (n *naive) learn(ev Event) error {
	scope := indexer.Scope{Tenant: n.tenant, LoRA: ev.LoRAName}
	for _, k := range ev.Extra[0] {
		if k.Text != ev.LoRAName {
			scope.Salt = k.Text
		}
	}
	if scope.Salt != "" && scope.Salt != ev.Salt {
		return fmt.Errorf("salt %q in the extra keys, %q in its own field", scope.Salt, ev.Salt)
	}
	var seq indexer.SeqHash
	if ev.HasParent {
		var ok bool
		if seq, ok = n.seqs[ev.Parent.Engine()]; !ok {
			return fmt.Errorf("parent %v is unknown", ev.Parent)
		}
	}
	for i, hash := range ev.Hashes {
		local := n.h.Local(ev.Tokens[i*ev.BlockSize:(i+1)*ev.BlockSize], nil)
		if i == 0 && !ev.HasParent {
			seq = n.h.Root(n.h.Scope(scope), local)
		} else {
			seq = n.h.Next(seq, local)
		}
		n.seqs[hash.Engine()] = seq
	}
	return nil
}

// match is what an index predicts: the leading tokens of the prompt that are in
// one of the tiers, but not the whole prompt.
func (t Truth) match(h indexer.Hasher, tenant string, rank, blockSize int, req Request, tiers ...indexer.Tier) int {
	seq := indexer.SeqHash(0)
	most := (len(req.Tokens) - 1) / blockSize
	for i := range most {
		local := h.Local(req.Tokens[i*blockSize:(i+1)*blockSize], nil)
		if i == 0 {
			seq = h.Root(h.Scope(indexer.Scope{Tenant: tenant, LoRA: req.LoRA, Salt: req.Salt}), local)
		} else {
			seq = h.Next(seq, local)
		}
		found := false
		for _, tier := range tiers {
			_, ok := t[BlockKey{Rank: rank, Tier: tier, Seq: seq}]
			found = found || ok
		}
		if !found {
			return i * blockSize
		}
	}
	return most * blockSize
}

// diff reports the first difference between two truths.
func diff(t testing.TB, got, want Truth) {
	t.Helper()
	for k, w := range want {
		if g := got[k]; g != w {
			t.Fatalf("%+v: got %+v, want %+v (%d entries, want %d)", k, g, w, len(got), len(want))
		}
	}
	for k, g := range got {
		if _, ok := want[k]; !ok {
			t.Fatalf("%+v: got %+v, want nothing (%d entries, want %d)", k, g, len(got), len(want))
		}
	}
}
