package indexer

import (
	"testing"

	"pgregory.net/rapid"
)

// pool is an engine's cache: it announces what it does to whoever listens.
type pool struct {
	space  space
	copies map[SeqHash]int
	listen []*Holder
}

// serve runs a prompt: the leading blocks that are cached are used, the rest is
// computed and stored, also where a later block is still cached.
func (p *pool) serve(c chain) {
	hit := 0
	for hit < len(c.seq) && p.copies[c.seq[hit]] > 0 {
		hit++
	}
	if hit == len(c.seq) {
		return
	}
	for _, seq := range c.seq[hit:] {
		p.copies[seq]++
	}
	for _, h := range p.listen {
		h.Store(p.space.run(GPU, c, hit, len(c.seq)))
	}
}

// evict gives up one copy of one block, if there is one.
func (p *pool) evict(seq SeqHash) {
	if p.copies[seq] == 0 {
		return
	}
	p.copies[seq]--
	for _, h := range p.listen {
		h.Remove(GPU, []EngineHash{p.space.engine(seq)})
	}
}

func (p *pool) match(c chain) int {
	for i, seq := range c.seq {
		if p.copies[seq] == 0 {
			return i
		}
	}
	return len(c.seq)
}

// TestLateJoiners: streams that were joined late, helped by one that was
// followed from the start, never answer more than their engines hold. The
// latter stays exact, whatever it tells the others.
func TestLateJoiners(t *testing.T) {
	trunk := newChain(1, 8)
	paths := []chain{trunk, trunk.branch(2, 3, 4), trunk.branch(3, 6, 5), newChain(4, 3)}
	gained := 0
	rapid.Check(t, func(rt *rapid.T) {
		x, err := New(Options{})
		if err != nil {
			rt.Fatal(err)
		}
		defer x.Close()
		tb := x.Table(TableKey{"m", testBlockSize, false})
		tb.keepLate = rapid.IntRange(1, 8).Draw(rt, "late aliases")
		pools := []*pool{{space: 1}, {space: 1}, {space: 1}, {space: 2}}
		ids := []StreamID{streamA, streamB, streamC, {"d", 0}}
		for _, p := range pools {
			p.copies = map[SeqHash]int{}
		}
		join := func(i int) {
			h := tb.Open(ids[i])
			h.SetPartial(i > 0)
			for _, old := range pools[i].listen {
				old.Retire()
			}
			pools[i].listen = []*Holder{h}
		}
		join(0)
		step := func(rt *rapid.T) {
			p := rapid.SampledFrom(pools).Draw(rt, "engine")
			c := rapid.SampledFrom(paths).Draw(rt, "prompt")
			if rapid.Bool().Draw(rt, "evict") {
				p.evict(rapid.SampledFrom(c.seq).Draw(rt, "block"))
			} else {
				n := rapid.IntRange(1, len(c.seq)).Draw(rt, "blocks")
				p.serve(chain{local: c.local[:n], seq: c.seq[:n]})
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"step":  step,
			"step2": step,
			"step3": step,
			"join":  func(rt *rapid.T) { join(rapid.IntRange(1, len(pools)-1).Draw(rt, "engine")) },
			"": func(rt *rapid.T) {
				for _, c := range paths {
					got := matched(rt, tb, c)
					for i, p := range pools {
						has, says := p.match(c), got[ids[i]][GPU]
						if says > has || i == 0 && says < has {
							rt.Fatalf("engine %d holds %d blocks, the index says %d", i, has, says)
						}
						if i > 0 && says > 0 {
							gained++
						}
					}
				}
			},
		})
		waitSwept(t, x)
		checkInvariants(rt, tb)
	})
	if gained == 0 {
		t.Error("late joiners never matched anything")
	}
}
