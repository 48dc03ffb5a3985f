package api

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// fakeFleet is a Fleet in memory. Registered instances are live at once.
type fakeFleet struct {
	mu     sync.Mutex
	list   atomic.Pointer[[]*Instance]
	byName map[string]*Instance
	regs   map[string]Registration
	health map[string]*atomic.Pointer[Health]
	detail map[string]InstanceDetail

	registerErr error // what Register answers, if set
	commands    []string
}

func newFakeFleet() *fakeFleet {
	f := &fakeFleet{byName: map[string]*Instance{}, regs: map[string]Registration{},
		health: map[string]*atomic.Pointer[Health]{}, detail: map[string]InstanceDetail{}}
	f.list.Store(&[]*Instance{})
	return f
}

// add adds an instance in the given state.
func (f *fakeFleet) add(inst Instance, h Health) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := new(atomic.Pointer[Health])
	p.Store(&h)
	f.health[inst.ID] = p
	inst.Health = func() Health { return *p.Load() }
	list := append(slices.Clone(*f.list.Load()), &inst)
	slices.SortFunc(list, func(a, b *Instance) int { return cmp.Compare(a.ID, b.ID) })
	f.list.Store(&list)
	f.byName[inst.ID] = &inst
	for _, a := range inst.Aliases {
		f.byName[a] = &inst
	}
}

// set changes the health of an instance.
func (f *fakeFleet) set(id string, h Health) { f.health[id].Store(&h) }

func (f *fakeFleet) Register(_ context.Context, r Registration) (Outcome, error) {
	if f.registerErr != nil {
		return Outcome{}, f.registerErr
	}
	if r.InstanceID == "" {
		r.InstanceID = "from-url"
	}
	f.mu.Lock()
	old, again := f.regs[r.InstanceID]
	f.regs[r.InstanceID] = r
	f.mu.Unlock()
	if again {
		if old.BlockSize != r.BlockSize {
			return Outcome{}, &ConflictError{"block_size", strconv.Itoa(old.BlockSize), strconv.Itoa(r.BlockSize)}
		}
		return Outcome{r.InstanceID, r.Model, false}, nil
	}
	f.add(Instance{ID: r.InstanceID, NumericID: r.NumericID, Model: r.Model, Tenant: r.Tenant, Aliases: r.Aliases},
		Health{State: Connecting, BlockSize: r.BlockSize})
	return Outcome{r.InstanceID, r.Model, true}, nil
}

func (f *fakeFleet) Unregister(_ context.Context, u Unregistration) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.byName[u.InstanceID]; !ok {
		return false, nil
	}
	delete(f.byName, u.InstanceID)
	delete(f.regs, u.InstanceID)
	list := slices.DeleteFunc(slices.Clone(*f.list.Load()), func(i *Instance) bool { return i.ID == u.InstanceID })
	f.list.Store(&list)
	return true, nil
}

func (f *fakeFleet) Instances() []*Instance { return *f.list.Load() }

func (f *fakeFleet) Find(alias string) (*Instance, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	inst, ok := f.byName[alias]
	return inst, ok
}

func (f *fakeFleet) Detail(id string) (InstanceDetail, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if d, ok := f.detail[id]; ok {
		return d, true
	}
	inst, ok := f.byName[id]
	if !ok {
		return InstanceDetail{}, false
	}
	h := inst.Health()
	seq := uint64(41)
	return InstanceDetail{
		ID: id, Model: inst.Model, BlockSize: h.BlockSize, State: h.State, Reason: h.Reason, Aliases: inst.Aliases,
		Source: "register", Streams: []StreamDetail{{
			Endpoint: "tcp://10.0.0.7:5557", State: h.State, Reason: h.Reason, BlockSize: h.BlockSize, LastSeq: &seq,
			LastEvent: h.LastEvent, Lag: Age{3 * time.Millisecond, true}, Batches: 42,
			BatchResults: map[string]uint64{"applied": 40, "duplicate": 2}, Events: map[string]uint64{"stored": 50},
			Skips: map[string]uint64{"unknown_type": 1}, Blocks: TierCounts{GPU: 7},
		}},
	}, true
}

func (f *fakeFleet) Clear(_ context.Context, id string) (bool, error) { return f.command("clear", id) }
func (f *fakeFleet) Resync(_ context.Context, id string) (bool, error) {
	return f.command("resync", id)
}

func (f *fakeFleet) command(what, id string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.byName[id]
	f.commands = append(f.commands, what+" "+id)
	return ok, nil
}
