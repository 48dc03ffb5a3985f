package enginesim

import (
	"cmp"
	"encoding/json/jsontext"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Recording is what one or more real engines published, and what was asked of
// them meanwhile, in the order in which it happened.
type Recording struct {
	Name    string
	Streams []StreamInfo // in order of their first batch
	Steps   []Step       // ordered by time
	// Layout is that of the engine's replays, ReplayDefault if unknown.
	Layout ReplayLayout
	// Meta is the recording's meta.json, nil if it has none.
	Meta jsontext.Value
}

// StreamInfo says which (instance, dp_rank) the messages of a pod are from.
//
// Recordings name their streams, not their instances. A pod is an instance
// with rank 0, with two exceptions: "X-dpN" is rank N of X, and "rank-N" is
// rank N of the only pod that the request log knows (of "pod-0" if it knows
// none or several).
type StreamInfo struct {
	Pod      string
	Instance string
	Rank     int
	Batches  int
}

// LoadRecording reads the recording in folder dir of fsys. Files may be
// compressed, with .gz at the end of their names. stream.jsonl must be there;
// requests.jsonl, stream.socket.jsonl, replay.jsonl and meta.json may.
func LoadRecording(fsys fs.FS, dir string) (*Recording, error) {
	r := &Recording{Name: path.Base(dir)}
	l := loader{fsys: fsys, dir: dir, rec: r, ends: map[string][]float64{}}
	for _, f := range []func() error{l.streams, l.requests, l.socketLog, l.replays, l.meta} {
		if err := f(); err != nil {
			return nil, fmt.Errorf("cannot load the recording %q: %w", dir, err)
		}
	}
	r.nameInstances()
	l.placeRestarts()
	slices.SortStableFunc(r.Steps, func(a, b Step) int { return cmp.Compare(a.Time(), b.Time()) })
	return r, nil
}

// Stream returns the stream of a pod.
func (r *Recording) Stream(pod string) (StreamInfo, bool) {
	for _, s := range r.Streams {
		if s.Pod == pod {
			return s, true
		}
	}
	return StreamInfo{}, false
}

// placeRestarts adds a Restart wherever a pod's numbers go back: when its
// process is known to have ended between the two batches, and otherwise right
// before the second.
func (l *loader) placeRestarts() {
	last := map[string]Publish{}
	var restarts []Step
	for _, s := range l.rec.Steps {
		p, ok := s.(Publish)
		if !ok {
			continue
		}
		before, seen := last[p.Pod]
		last[p.Pod] = p
		if !seen || p.Seq > before.Seq {
			continue
		}
		at := p.At
		for _, end := range l.ends[p.Pod] {
			if end >= before.At && end <= p.At {
				at = end
				break
			}
		}
		restarts = append(restarts, Restart{At: at, Pod: p.Pod})
	}
	l.rec.Steps = append(restarts, l.rec.Steps...) // before a batch of the same time
}

// nameInstances fills in the instances of streams and of asks.
func (r *Recording) nameInstances() {
	streams := map[string]bool{}
	for _, s := range r.Streams {
		streams[s.Pod] = true
	}
	only, several := "", false
	for _, s := range r.Steps {
		if a, ok := s.(Ask); ok && !streams[a.Pod] && a.Pod != only {
			several = several || only != ""
			only = a.Pod
		}
	}
	if only == "" || several {
		only = "pod-0"
	}
	for i := range r.Streams {
		s := &r.Streams[i]
		s.Instance, s.Rank = s.Pod, 0
		if n, ok := strings.CutPrefix(s.Pod, "rank-"); ok {
			if rank, err := strconv.Atoi(n); err == nil {
				s.Instance, s.Rank = only, rank
			}
		} else if k := strings.LastIndex(s.Pod, "-dp"); k > 0 {
			if rank, err := strconv.Atoi(s.Pod[k+len("-dp"):]); err == nil {
				s.Instance, s.Rank = s.Pod[:k], rank
			}
		}
	}
	for i, s := range r.Steps {
		a, ok := s.(Ask)
		if !ok {
			continue
		}
		a.Instance, a.Rank = a.Pod, -1
		if s, ok := r.Stream(a.Pod); ok {
			a.Instance, a.Rank = s.Instance, s.Rank
		}
		r.Steps[i] = a
	}
}
