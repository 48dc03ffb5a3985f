package main

import (
	"fmt"

	"github.com/kvindex/kvindex/indexer"
)

// engine is an index that is measured. store and remove are called by one
// goroutine, match by one other at the same time.
type engine interface {
	store(e *event)
	remove(e *event)
	match(seq []indexer.SeqHash, out *[numPods]int32)
	retire(pod int)
	close()
}

// kvindex is the package indexer, through its API.
type kvindex struct {
	index *indexer.Index
	table *indexer.Table
	pods  [numPods]*indexer.Holder
	r     indexer.Result
}

func newKvindex() engine {
	x, err := indexer.New(indexer.Options{})
	if err != nil {
		panic(err) // the options are constant
	}
	k := &kvindex{index: x, table: x.Table(indexer.TableKey{Model: "m", BlockSize: 16})}
	for i := range k.pods {
		k.pods[i] = k.table.Open(indexer.StreamID{Instance: podName(i), Rank: i})
	}
	return k
}

func podName(i int) string { return fmt.Sprintf("vllm-deploy-7f9c-%04d", i) }

func (k *kvindex) store(e *event) {
	r := indexer.Run{Engine: e.doc.name[e.from:e.to], Local: e.doc.local[e.from:e.to]}
	if up, i := e.parent(); up != nil {
		r.Parent, r.HasParent = up.name[i], true
	}
	k.pods[e.pod].Store(r)
}

func (k *kvindex) remove(e *event) {
	k.pods[e.pod].Remove(indexer.GPU, e.doc.name[e.from:e.to])
}

func (k *kvindex) match(seq []indexer.SeqHash, out *[numPods]int32) {
	k.table.MatchSeq(seq, 0, &k.r)
	for i := range k.r.Streams {
		s := &k.r.Streams[i]
		out[s.Stream.Rank] = int32(s.Blocks[indexer.GPU])
	}
}

func (k *kvindex) retire(pod int) { k.pods[pod].Retire() }
func (k *kvindex) close()         { k.index.Close() }
