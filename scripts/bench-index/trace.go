package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	_ "embed"
	"strconv"
	"strings"
	"time"

	"github.com/kvindex/kvindex/indexer"
)

//go:embed testdata/conversations.gz
var conversations []byte

// traceRequests returns the prompts of a public trace of conversations, as docs.
// An id of 512 tokens becomes 32 blocks of 16. Prompts that share a beginning
// share its hashes.
func traceRequests() ([]*doc, error) {
	z, err := gzip.NewReader(bytes.NewReader(conversations))
	if err != nil {
		return nil, err
	}
	var docs []*doc
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var local []indexer.LocalHash
		for id := range strings.FieldsSeq(lines.Text()) {
			n, err := strconv.ParseUint(id, 10, 32)
			if err != nil {
				return nil, err
			}
			for i := range uint32(32) {
				local = append(local, hasher.Local([]uint32{uint32(n), i}, nil))
			}
		}
		docs = append(docs, docOf(nil, local))
	}
	return docs, lines.Err()
}

// tracePod is a pod with room for so many blocks, of which it gives up those
// that were used least recently: of one prompt the last first.
type tracePod struct {
	used  map[indexer.SeqHash]int // block -> request that used it last
	queue []traceUse
}

type traceUse struct {
	at  int
	doc *doc
	i   int // block
}

// playTrace sends each request to the pod that matches most of it, the least
// busy first, as a router would, and the events that follow to e. It returns the
// time of the matches, and of the events by block.
func playTrace(e engine, docs []*doc, capacity int) (matches []time.Duration, nsPerPair float64) {
	var pods [numPods]tracePod
	for i := range pods {
		pods[i].used = map[indexer.SeqHash]int{}
	}
	events, pairs := time.Duration(0), 0
	apply := func(f func(*event), ev event) {
		start := time.Now()
		f(&ev)
		events += time.Since(start)
		pairs += ev.blocks()
	}
	for n, d := range docs {
		var out [numPods]int32
		start := time.Now()
		e.match(d.seq, &out)
		matches = append(matches, time.Since(start))
		best := n % numPods
		for pod, blocks := range out {
			if blocks > out[best] {
				best = pod
			}
		}
		p := &pods[best]
		hit := 0
		for hit < len(d.seq) && p.used[d.seq[hit]] > 0 {
			hit++
		}
		if hit < len(d.seq) {
			apply(e.store, event{int32(best), int32(hit), int32(len(d.seq)), d})
		}
		for i := len(d.seq) - 1; i >= 0; i-- {
			p.used[d.seq[i]] = n + 1
			p.queue = append(p.queue, traceUse{n + 1, d, i})
		}
		for len(p.used) > capacity {
			u := p.queue[0]
			p.queue = p.queue[1:]
			if p.used[u.doc.seq[u.i]] == u.at {
				delete(p.used, u.doc.seq[u.i])
				apply(e.remove, event{int32(best), int32(u.i), int32(u.i + 1), u.doc})
			}
		}
	}
	return matches, float64(events.Nanoseconds()) / float64(max(1, pairs))
}
