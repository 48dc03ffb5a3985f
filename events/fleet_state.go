package events

import (
	"time"

	"github.com/kvindex/kvindex/indexer"
)

// InstanceState is an instance as a snapshot keeps it.
type InstanceState struct {
	Spec    InstanceSpec  `json:"spec"`
	Streams []StreamState `json:"streams"`
}

// Freeze keeps every stream from applying anything while f runs, and gives f
// what they have got to. What the index holds at that time is exactly what was
// applied up to those positions.
func (f *Fleet) Freeze(do func([]InstanceState)) {
	f.mu.Lock() // nothing begins or ends meanwhile
	defer f.mu.Unlock()
	now := time.Now()
	list := f.view.Load().list
	states := make([]InstanceState, 0, len(list))
	for _, in := range list {
		for _, s := range in.sessions {
			s.mu.Lock()
		}
	}
	defer func() {
		for _, in := range list {
			for _, s := range in.sessions {
				s.mu.Unlock()
			}
		}
	}()
	for _, in := range list {
		st := InstanceState{Spec: in.spec, Streams: []StreamState{}}
		for _, s := range in.sessions {
			if one, ok := s.streamState(now); ok {
				st.Streams = append(st.Streams, one)
			}
		}
		states = append(states, st)
	}
	do(states)
}

// Changes grows whenever what Freeze would give, or what the index holds, has
// changed.
func (f *Fleet) Changes() uint64 { return f.changes.Load() }

// restorable is what was restored and waits for its instance to be followed
// again.
type restorable struct {
	spec    InstanceSpec
	state   StreamState
	holders map[int]*indexer.Holder
}

// Restore takes over what a snapshot held, before anything is followed: each
// stream goes on from there when its instance is added with the same facts.
// Holders that belong to no stream are retired at once, and those whose stream
// is not followed again within the time that suspicion has, then.
func (f *Fleet) Restore(states []InstanceState, holders []indexer.Restored) {
	type owner struct {
		key    indexer.TableKey
		stream indexer.StreamID
	}
	free := map[owner]*indexer.Holder{}
	for _, h := range holders {
		free[owner{h.Key, h.Stream}] = h.Holder
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.restored = map[streamName]*restorable{}
	f.restoredUntil = time.Now().Add(f.opts.SuspectTTL)
	for _, in := range states {
		for _, st := range in.Streams {
			r := &restorable{spec: in.Spec, state: st, holders: map[int]*indexer.Holder{}}
			key := indexer.TableKey{Model: in.Spec.Model, BlockSize: st.BlockSize, Bigram: st.Bigram}
			for _, rank := range st.Ranks {
				o := owner{key, indexer.StreamID{Instance: in.Spec.ID, Rank: rank}}
				if h := free[o]; h != nil {
					r.holders[rank] = h
					delete(free, o)
				}
			}
			if len(r.holders) == len(st.Ranks) && len(st.Ranks) > 0 {
				f.restored[streamName{in.Spec.ID, st.Rank}] = r
				continue
			}
			r.retire()
		}
	}
	for _, h := range free {
		h.Retire()
	}
}

func (r *restorable) retire() {
	for _, h := range r.holders {
		h.Retire()
	}
}

// streamName names a stream of an instance.
type streamName struct {
	instance string
	rank     int
}

// takeRestored returns what a stream goes on from, nil if nothing fits. The
// caller has f.mu.
func (f *Fleet) takeRestored(spec *InstanceSpec, st StreamSpec) *Restore {
	name := streamName{spec.ID, st.Rank}
	r := f.restored[name]
	if r == nil {
		return nil
	}
	delete(f.restored, name)
	same := r.spec.Model == spec.Model && r.spec.Tenant == spec.Tenant && r.spec.LoRA == spec.LoRA && r.spec.Salt == spec.Salt &&
		r.state.Endpoint == st.Endpoint && (spec.BlockSize == 0 || spec.BlockSize == r.state.BlockSize)
	if !same {
		r.retire()
		return nil
	}
	return &Restore{State: r.state, Holders: r.holders}
}

// tick lets time pass for every stream.
func (f *Fleet) tick(now time.Time) {
	for _, in := range f.Instances() {
		for _, s := range in.sessions {
			s.Tick(now)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.restored) > 0 && now.After(f.restoredUntil) {
		for _, r := range f.restored {
			r.retire()
		}
		f.restored = nil
	}
}

// Awaited returns the instances that a snapshot told of and that are not
// followed again yet.
func (f *Fleet) Awaited() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var ids []string
	seen := map[string]bool{}
	for name := range f.restored {
		if !seen[name.instance] {
			seen[name.instance] = true
			ids = append(ids, name.instance)
		}
	}
	return ids
}
