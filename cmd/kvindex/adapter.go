package main

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvindex/kvindex/api"
	"github.com/kvindex/kvindex/events"
	"github.com/kvindex/kvindex/events/discovery"
	"github.com/kvindex/kvindex/indexer"
)

// fleetAdapter shows an events.Fleet to the API.
type fleetAdapter struct {
	fleet   *events.Fleet
	config  *config
	client  *http.Client // for engines that describe themselves
	startup *startup     // before its end the fleet must stay as it is

	view    atomic.Pointer[fleetView]
	mu      sync.Mutex      // of those who make a new view
	numeric map[string]bool // ids that were registered as JSON numbers
}

// fleetView is a picture of the fleet in the API's words.
type fleetView struct {
	of     []*events.Instance // what it was made of
	list   []*api.Instance
	byInst map[*events.Instance]*api.Instance
}

func newFleetAdapter(f *events.Fleet, c *config, st *startup) *fleetAdapter {
	a := &fleetAdapter{
		fleet: f, config: c, startup: st,
		client:  &http.Client{Timeout: 5 * time.Second},
		numeric: map[string]bool{},
	}
	a.view.Store(&fleetView{})
	return a
}

// Register implements api.Fleet.
func (a *fleetAdapter) Register(ctx context.Context, r api.Registration) (api.Outcome, error) {
	if err := a.startup.wait(ctx); err != nil {
		return api.Outcome{}, err
	}
	in := instanceConfig{Model: r.Model, BlockSize: r.BlockSize}
	spec := events.InstanceSpec{
		ID: r.InstanceID, Model: r.Model, Tenant: r.Tenant, LoRA: r.LoRA, Salt: r.Salt,
		BlockSize: r.BlockSize, Engine: strings.ToLower(r.Type), URL: r.URL, Aliases: r.Aliases, Source: "register",
	}
	if with, err := a.config.spec(in); err == nil {
		spec.BlockSize = with.BlockSize // of the configured model, where the caller names none
	}
	if r.Endpoint != "" {
		st := events.StreamSpec{Endpoint: r.Endpoint, ReplayEndpoint: r.ReplayEndpoint}
		if r.DPRank != nil {
			st.Rank = *r.DPRank
		}
		spec.Streams = []events.StreamSpec{st}
	}
	if spec.URL != "" && (spec.ID == "" || spec.Model == "" || len(spec.Streams) == 0) {
		full, err := discovery.Describe(ctx, a.client, spec)
		if de := (*discovery.DescribeError)(nil); errors.As(err, &de) {
			if de.Silent {
				return api.Outcome{}, &api.UnreachableError{URL: de.URL, Tried: de.Tried}
			}
			return api.Outcome{}, &api.IncompleteError{Missing: de.Missing, Detail: strings.Join(de.Tried, "; ")}
		}
		if err != nil {
			return api.Outcome{}, &api.InvalidError{Field: "url", Reason: err.Error()}
		}
		spec = full
	}
	if missing := missingFields(spec); len(missing) > 0 {
		return api.Outcome{}, &api.IncompleteError{Missing: missing}
	}
	if err := spec.Validate(); err != nil {
		return api.Outcome{}, &api.InvalidError{Field: invalidField(err), Reason: err.Error()}
	}
	if r.NumericID {
		a.mu.Lock()
		a.numeric[spec.ID] = true
		a.mu.Unlock()
	}
	created, err := a.fleet.Add(spec)
	if ce := (*events.ConflictError)(nil); errors.As(err, &ce) {
		return api.Outcome{}, &api.ConflictError{Field: ce.Field, Have: ce.Have, Want: ce.Want}
	}
	return api.Outcome{ID: spec.ID, Model: spec.Model, Created: created}, err
}

func missingFields(s events.InstanceSpec) []string {
	var missing []string
	if s.ID == "" {
		missing = append(missing, "instance_id")
	}
	if s.Model == "" {
		missing = append(missing, "model")
	}
	if len(s.Streams) == 0 {
		missing = append(missing, "endpoint")
	}
	return missing
}

// invalidField guesses the request's field from a validation error.
func invalidField(err error) string {
	for _, f := range []string{"replay_endpoint", "endpoint", "block_size", "dp_rank", "model"} {
		if strings.Contains(err.Error(), f) {
			return f
		}
	}
	return "instance_id"
}

// Unregister implements api.Fleet.
func (a *fleetAdapter) Unregister(ctx context.Context, u api.Unregistration) (bool, error) {
	if err := a.startup.wait(ctx); err != nil {
		return false, err
	}
	inst, ok := a.fleet.Find(u.InstanceID)
	if !ok {
		return false, nil
	}
	spec := inst.Spec()
	tenant := u.Tenant
	if tenant == indexer.DefaultTenant {
		tenant = ""
	}
	if u.Model != "" && u.Model != spec.Model || u.Tenant != "" && tenant != spec.Tenant {
		return false, nil
	}
	return a.fleet.Remove(spec.ID, u.DPRank), nil
}

// Instances implements api.Fleet.
func (a *fleetAdapter) Instances() []*api.Instance { return a.current().list }

// current returns the view of the fleet as it is. It is remade when the fleet
// changes, not for every query.
func (a *fleetAdapter) current() *fleetView {
	if v := a.view.Load(); sameInstances(a.fleet.Instances(), v.of) {
		return v
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now, old := a.fleet.Instances(), a.view.Load()
	v := &fleetView{of: now, byInst: make(map[*events.Instance]*api.Instance, len(now))}
	for _, in := range now {
		out, ok := old.byInst[in]
		if !ok {
			out = apiInstance(in, a.numeric[in.Spec().ID])
		}
		v.byInst[in] = out
		v.list = append(v.list, out)
	}
	a.view.Store(v)
	return v
}

func sameInstances(a, b []*events.Instance) bool {
	// The fleet publishes a new slice for every change.
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

func apiInstance(in *events.Instance, numeric bool) *api.Instance {
	spec := in.Spec()
	return &api.Instance{
		ID: spec.ID, NumericID: numeric, Model: spec.Model,
		Tenant: spec.Tenant, LoRA: spec.LoRA, Aliases: spec.Names(),
		Health: func() api.Health {
			h := in.Health()
			return api.Health{State: api.State(h.State.String()), Reason: h.Reason, LastEvent: age(in.LastSeen()), BlockSize: in.BlockSize()}
		},
	}
}

func age(t time.Time) api.Age {
	if t.IsZero() {
		return api.Age{}
	}
	return api.Age{Since: time.Since(t), Known: true}
}

// Find implements api.Fleet.
func (a *fleetAdapter) Find(alias string) (*api.Instance, bool) {
	in, ok := a.fleet.Find(alias)
	if !ok {
		return nil, false
	}
	out, ok := a.current().byInst[in]
	return out, ok
}

// Clear implements api.Fleet.
func (a *fleetAdapter) Clear(_ context.Context, id string) (bool, error) {
	return a.each(id, (*events.Instance).Clear), nil
}

// Resync implements api.Fleet.
func (a *fleetAdapter) Resync(_ context.Context, id string) (bool, error) {
	return a.each(id, (*events.Instance).Resync), nil
}

func (a *fleetAdapter) each(id string, do func(*events.Instance)) bool {
	in, ok := a.fleet.Find(id)
	if ok {
		do(in)
	}
	return ok
}

// Detail implements api.Fleet.
func (a *fleetAdapter) Detail(id string) (api.InstanceDetail, bool) {
	in, ok := a.fleet.Find(id)
	if !ok {
		return api.InstanceDetail{}, false
	}
	spec, h := in.Spec(), in.Health()
	d := api.InstanceDetail{
		ID: spec.ID, Model: spec.Model, Tenant: spec.Tenant, LoRA: spec.LoRA,
		BlockSize: in.BlockSize(), State: api.State(h.State.String()), Reason: h.Reason,
		Engine: spec.Engine, Source: spec.Source, URL: spec.URL,
		Aliases: append([]string{}, spec.Aliases...),
	}
	for _, st := range in.Streams() {
		if d.Hint == "" {
			d.Hint = st.Note
		}
		d.Streams = append(d.Streams, streamDetail(st))
	}
	return d, true
}

func streamDetail(st events.StreamStatus) api.StreamDetail {
	c := st.Counters
	d := api.StreamDetail{
		DPRank: st.Rank, Endpoint: st.Endpoint, ReplayEndpoint: st.ReplayEndpoint,
		State: api.State(st.State.String()), Reason: st.Reason, Hint: st.Note,
		BlockSize: st.BlockSize, LastEvent: age(st.LastSeen),
		BatchResults: c.Batches, Events: map[string]uint64{}, Skips: map[string]uint64{},
		LostBatches: c.Lost, Replays: c.Replays, Pending: st.Waiting, SuspectBlocks: st.Suspect,
		Blocks: api.TierCounts{GPU: st.Blocks[indexer.GPU], CPU: st.Blocks[indexer.CPU], Disk: st.Blocks[indexer.Disk]},
	}
	if st.Lag >= 0 {
		d.Lag = api.Age{Since: st.Lag, Known: true}
	}
	if st.HasBatch {
		d.LastSeq = &st.LastSeq
	}
	if c.Connects > 0 {
		d.Reconnects, d.Incarnations = c.Connects-1, 1
	}
	for _, n := range c.Restarts {
		d.Incarnations += n
	}
	for _, n := range c.Batches {
		d.Batches += n
	}
	for reason, n := range c.Frames {
		d.Batches += n
		d.BatchResults[string(reason)] += n
	}
	for name, kind := range map[string]events.Kind{"stored": events.BlockStored, "removed": events.BlockRemoved, "cleared": events.AllBlocksCleared} {
		if n := c.Events[kind]; n > 0 {
			d.Events[name] = n
		}
	}
	for reason, n := range c.Skips {
		d.Skips[string(reason)] = n
	}
	return d
}
