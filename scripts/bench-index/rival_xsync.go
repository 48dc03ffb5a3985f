package main

import (
	"math/bits"
	"slices"

	"github.com/puzpuzpuz/xsync/v3"

	"github.com/kvindex/kvindex/indexer"
)

// copyOnWrite is one concurrent map from block to the pods that hold it, copied
// with every change, and what each pod holds.
type copyOnWrite struct {
	m     *xsync.MapOf[indexer.SeqHash, []uint16]
	held  [numPods]map[indexer.EngineHash]indexer.SeqHash
	alive []uint16
}

func newCopyOnWrite() engine {
	x := &copyOnWrite{m: xsync.NewMapOf[indexer.SeqHash, []uint16]()}
	for i := range x.held {
		x.held[i] = map[indexer.EngineHash]indexer.SeqHash{}
	}
	return x
}

func (x *copyOnWrite) store(e *event) {
	pod := uint16(e.pod)
	for i := e.from; i < e.to; i++ {
		x.m.Compute(e.doc.seq[i], func(old []uint16, _ bool) ([]uint16, bool) {
			if slices.Contains(old, pod) {
				return old, false
			}
			return append(slices.Clone(old), pod), false
		})
		x.held[pod][e.doc.name[i]] = e.doc.seq[i]
	}
}

func (x *copyOnWrite) drop(pod uint16, seq indexer.SeqHash) {
	x.m.Compute(seq, func(old []uint16, _ bool) ([]uint16, bool) {
		left := slices.DeleteFunc(slices.Clone(old), func(p uint16) bool { return p == pod })
		return left, len(left) == 0
	})
}

func (x *copyOnWrite) remove(e *event) {
	for i := e.from; i < e.to; i++ {
		if seq, ok := x.held[e.pod][e.doc.name[i]]; ok {
			x.drop(uint16(e.pod), seq)
			delete(x.held[e.pod], e.doc.name[i])
		}
	}
}

func (x *copyOnWrite) retire(pod int) {
	for _, seq := range x.held[pod] {
		x.drop(uint16(pod), seq)
	}
	clear(x.held[pod])
}

func (x *copyOnWrite) match(seq []indexer.SeqHash, out *[numPods]int32) {
	alive := x.alive[:0]
	for i, k := range seq {
		pods, _ := x.m.Load(k)
		if i == 0 {
			alive = append(alive, pods...)
			continue
		}
		n := 0
		for _, p := range alive {
			if slices.Contains(pods, p) {
				alive[n] = p
				n++
			} else {
				out[p] = int32(i)
			}
		}
		if alive = alive[:n]; n == 0 {
			break
		}
	}
	for _, p := range alive {
		out[p] = int32(len(seq))
	}
	x.alive = alive
}

func (x *copyOnWrite) close() {}

// scoreBits notes n blocks for each of the pods.
func scoreBits(pods uint64, n int32, out *[numPods]int32) {
	for ; pods != 0; pods &= pods - 1 {
		out[bits.TrailingZeros64(pods)] = n
	}
}
