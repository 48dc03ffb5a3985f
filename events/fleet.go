package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvindex/kvindex/indexer"
)

// ErrClosed is returned by a Fleet that has been closed.
var ErrClosed = errors.New("the fleet is closed")

// Source delivers the messages of one stream to a session until ctx is
// cancelled. It returns only then, or with the error that made it impossible.
type Source func(ctx context.Context, s *Session) error

// FleetOptions configure a Fleet.
type FleetOptions struct {
	Index        *indexer.Index
	Source       Source
	Limits       Limits
	MaxPending   int           // see SessionOptions
	SuspectTTL   time.Duration // likewise
	Grace        time.Duration // likewise
	GPUClearOnly bool
	Logger       *slog.Logger // nil: discard
}

// Fleet is the set of followed instances. All methods are safe for concurrent
// use; those that read are cheap, for they serve every query.
type Fleet struct {
	opts FleetOptions
	ctx  context.Context //nolint:containedctx // the life of the fleet's own goroutines, ended by Close
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu      sync.Mutex // of writers
	running map[*Session]*follower
	closed  bool

	restored      map[streamName]*restorable // waits for its instance
	restoredUntil time.Time

	changes atomic.Uint64 // of what a snapshot would hold
	view    atomic.Pointer[view]
}

// follower is a session's goroutine.
type follower struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// view is an immutable picture of the fleet.
type view struct {
	list   []*Instance // by id
	byName map[string]*Instance
}

// NewFleet returns an empty fleet.
func NewFleet(o FleetOptions) *Fleet {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.SuspectTTL <= 0 {
		o.SuspectTTL = DefaultSuspectTTL
	}
	ctx, stop := context.WithCancel(context.Background())
	f := &Fleet{opts: o, ctx: ctx, stop: stop, running: map[*Session]*follower{}}
	f.view.Store(&view{byName: map[string]*Instance{}})
	f.wg.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				f.tick(now)
			}
		}
	})
	return f
}

// ConflictError says that an instance is already followed under other facts.
type ConflictError struct {
	ID, Field  string
	Have, Want string
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("instance %q is registered with %s %q, not %q: unregister it first", e.ID, e.Field, e.Have, e.Want)
}

// Add follows an instance. An instance that is already followed may be given
// again, whole or rank by rank: new ranks are added to it, known ones must
// agree, else the error is a *ConflictError and nothing changes. created
// reports whether anything is new.
//
// A registration (Source "register") of an address that another registered
// instance has takes it from that one: an address is reused when its pod is
// gone, and one process is one instance.
func (f *Fleet) Add(spec InstanceSpec) (created bool, err error) {
	created, displaced, err := f.add(spec)
	for _, d := range displaced {
		f.opts.Logger.Warn("the address belongs to another instance now: the one before is no longer followed",
			"instance", d.instance, "dp_rank", d.rank, "now", spec.ID)
		f.Remove(d.instance, &d.rank)
	}
	return created, err
}

// displacedBy returns the streams of other registered instances at spec's
// addresses.
func (v *view) displacedBy(spec *InstanceSpec) (list []streamName) {
	if spec.Source != "register" {
		return nil
	}
	for _, in := range v.list {
		if in.spec.ID == spec.ID || in.spec.Source != "register" {
			continue
		}
		for _, st := range in.spec.Streams {
			if slices.ContainsFunc(spec.Streams, func(own StreamSpec) bool { return own.Endpoint == st.Endpoint }) {
				list = append(list, streamName{in.spec.ID, st.Rank})
			}
		}
	}
	return list
}

func (f *Fleet) add(spec InstanceSpec) (created bool, displaced []streamName, err error) {
	if err := spec.Validate(); err != nil {
		return false, nil, err
	}
	if spec.Tenant == indexer.DefaultTenant {
		spec.Tenant = ""
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false, nil, ErrClosed
	}
	v := f.view.Load()
	i, known := v.find(spec.ID)
	if !known {
		f.store(slices.Insert(slices.Clone(v.list), i, f.follow(&Instance{spec: spec}, spec.Streams)))
		return true, v.displacedBy(&spec), nil
	}
	old := v.list[i]
	merged, added, err := merge(old.spec, spec)
	if err != nil {
		return false, nil, err
	}
	if len(added) == 0 && slices.Equal(merged.Aliases, old.spec.Aliases) {
		return false, nil, nil
	}
	list := slices.Clone(v.list)
	list[i] = f.follow(&Instance{spec: merged, sessions: old.sessions}, added)
	f.store(list)
	return true, v.displacedBy(&spec), nil
}

// merge adds what spec says to old, or names the first contradiction.
func merge(old, spec InstanceSpec) (merged InstanceSpec, added []StreamSpec, err error) {
	conflict := func(field, have, want string) error {
		return &ConflictError{ID: old.ID, Field: field, Have: have, Want: want}
	}
	switch {
	case old.Model != spec.Model:
		return old, nil, conflict("model", old.Model, spec.Model)
	case old.Tenant != spec.Tenant:
		return old, nil, conflict("tenant_id", old.Tenant, spec.Tenant)
	case old.LoRA != spec.LoRA:
		return old, nil, conflict("lora_name", old.LoRA, spec.LoRA)
	case old.Salt != spec.Salt:
		return old, nil, conflict("additional_salt", "one value", "another") // a salt is a secret of its tenant
	case spec.BlockSize != 0 && old.BlockSize != spec.BlockSize:
		return old, nil, conflict("block_size", fmt.Sprint(old.BlockSize), fmt.Sprint(spec.BlockSize))
	}
	merged = old
	merged.Streams = slices.Clone(old.Streams)
	for _, st := range spec.Streams {
		i := slices.IndexFunc(old.Streams, func(o StreamSpec) bool { return o.Rank == st.Rank })
		switch {
		case i < 0:
			added = append(added, st)
			merged.Streams = append(merged.Streams, st)
		case old.Streams[i].Transport() != st.Transport():
			// Followed twice, every block of it would count twice.
			return old, nil, conflict(fmt.Sprintf("dp_rank %d transport", st.Rank), old.Streams[i].Transport(), st.Transport())
		case old.Streams[i].Endpoint != st.Endpoint:
			return old, nil, conflict(fmt.Sprintf("dp_rank %d endpoint", st.Rank), old.Streams[i].Endpoint, st.Endpoint)
		case old.Streams[i].ReplayEndpoint != st.ReplayEndpoint:
			return old, nil, conflict(fmt.Sprintf("dp_rank %d replay_endpoint", st.Rank), old.Streams[i].ReplayEndpoint, st.ReplayEndpoint)
		}
	}
	merged.Aliases = slices.Clone(old.Aliases)
	for _, a := range spec.Aliases {
		if !slices.Contains(merged.Aliases, a) {
			merged.Aliases = append(merged.Aliases, a)
		}
	}
	if merged.URL == "" {
		merged.URL = spec.URL
	}
	return merged, added, nil
}

// follow starts sessions for streams and adds them to inst, by rank.
func (f *Fleet) follow(inst *Instance, streams []StreamSpec) *Instance {
	inst.sessions = slices.Clone(inst.sessions)
	for _, st := range streams {
		s := NewSession(SessionOptions{
			Index: f.opts.Index, Instance: inst.spec.ID, Model: inst.spec.Model,
			Tenant: inst.spec.Tenant, LoRA: inst.spec.LoRA, Salt: inst.spec.Salt, BlockSize: inst.spec.BlockSize,
			Stream: st, GPUClearOnly: f.opts.GPUClearOnly, MaxPending: f.opts.MaxPending,
			Limits: f.opts.Limits, Logger: f.opts.Logger,
			changes: &f.changes, SuspectTTL: f.opts.SuspectTTL, Grace: f.opts.Grace, Restore: f.takeRestored(&inst.spec, st),
		})
		inst.sessions = append(inst.sessions, s)
		ctx, cancel := context.WithCancel(f.ctx)
		fo := &follower{cancel: cancel, done: make(chan struct{})}
		f.running[s] = fo
		f.wg.Go(func() {
			defer close(fo.done)
			if err := f.opts.Source(ctx, s); err != nil && ctx.Err() == nil {
				s.Note("cannot follow the stream: " + err.Error())
			}
		})
	}
	slices.SortFunc(inst.sessions, func(a, b *Session) int { return a.opts.Stream.Rank - b.opts.Stream.Rank })
	return inst
}

// Remove stops following an instance, or only one of its ranks if rank is not
// nil, and drops its blocks. It reports whether there was anything to remove,
// and returns when the transport is closed.
func (f *Fleet) Remove(id string, rank *int) bool {
	f.mu.Lock()
	v := f.view.Load()
	i, known := v.find(id)
	if !known {
		f.mu.Unlock()
		return false
	}
	old := v.list[i]
	var keep, drop []*Session
	for _, s := range old.sessions {
		if rank == nil || s.opts.Stream.Rank == *rank {
			drop = append(drop, s)
		} else {
			keep = append(keep, s)
		}
	}
	list := slices.Clone(v.list)
	if len(keep) == 0 {
		list = slices.Delete(list, i, i+1)
	} else {
		spec := old.spec
		spec.Streams = slices.DeleteFunc(slices.Clone(spec.Streams), func(s StreamSpec) bool { return s.Rank == *rank })
		list[i] = &Instance{spec: spec, sessions: keep}
	}
	f.store(list)
	var waits []*follower
	for _, s := range drop {
		waits = append(waits, f.running[s])
		delete(f.running, s)
		s.Close() // at once: no query finds it from here on
	}
	f.mu.Unlock()
	for _, fo := range waits {
		fo.cancel()
		<-fo.done
	}
	return len(drop) > 0
}

// Close stops following everything and waits for the transports.
func (f *Fleet) Close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.stop()
	f.wg.Wait()
}

// Instances returns the followed instances by id. The slice is shared: read
// only.
func (f *Fleet) Instances() []*Instance { return f.view.Load().list }

// Find returns the instance that has the given name: see InstanceSpec.Names.
func (f *Fleet) Find(name string) (*Instance, bool) {
	i, ok := f.view.Load().byName[strings.TrimRight(name, "/")]
	return i, ok
}

func (v *view) find(id string) (int, bool) {
	return slices.BinarySearchFunc(v.list, id, func(i *Instance, id string) int { return strings.Compare(i.spec.ID, id) })
}

// store publishes a new view. An id always means its instance; any other name
// means one only if no second instance has it.
func (f *Fleet) store(list []*Instance) {
	v := &view{list: list, byName: make(map[string]*Instance, 4*len(list))}
	for _, i := range list {
		for _, n := range i.spec.Names() {
			if other, taken := v.byName[n]; taken && other != i {
				v.byName[n] = nil
				continue
			}
			v.byName[n] = i
		}
	}
	for n, i := range v.byName {
		if i == nil {
			delete(v.byName, n)
		}
	}
	for _, i := range list {
		v.byName[i.spec.ID] = i
	}
	f.view.Store(v)
	f.changes.Add(1)
}
