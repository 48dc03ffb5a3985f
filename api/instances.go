package api

import (
	"context"
	"encoding/json/jsontext"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"
)

// handleInstances answers GET /v1/instances, and ?model= for one model's.
func (s *Server) handleInstances(c *gin.Context) error {
	model := s.canonical(c.Query("model"))
	list := []InstanceDetail{}
	for _, inst := range s.fleet.Instances() {
		if model != "" && inst.Model != model {
			continue
		}
		if d, ok := s.fleet.Detail(inst.ID); ok {
			list = append(list, d)
		}
	}
	v := struct {
		Instances []InstanceDetail `json:"instances"`
	}{list}
	return s.show(c, http.StatusOK, v, func(t *table) {
		t.head("ID", "MODEL", "BLOCK", "STATE", "RANKS", "GPU", "CPU", "DISK", "SUSPECT", "REASON")
		for _, d := range list {
			b := d.blocks()
			t.row(d.ID, d.Model, d.BlockSize, d.State, len(d.Streams), b.GPU, b.CPU, b.Disk, d.suspects(), d.Reason)
		}
	})
}

// canonical is the index's name of the model that a filter names.
func (s *Server) canonical(name string) string {
	if model, _, ok := s.index.Resolve(name); ok {
		return model
	}
	return name
}

// blocks sums the blocks of all streams.
func (d *InstanceDetail) blocks() (sum TierCounts) {
	for i := range d.Streams {
		b := d.Streams[i].Blocks
		sum.GPU += b.GPU
		sum.CPU += b.CPU
		sum.Disk += b.Disk
	}
	return sum
}

// suspects counts, of all these, what may be no longer held.
func (d *InstanceDetail) suspects() (n int) {
	for i := range d.Streams {
		n += d.Streams[i].SuspectBlocks
	}
	return n
}

// find returns the instance that the path means, by any of its names.
func (s *Server) find(c *gin.Context) (*Instance, error) {
	name := c.Param("id")
	inst, ok := s.fleet.Find(name)
	if !ok {
		var ids []string
		for _, inst := range s.fleet.Instances() {
			ids = append(ids, inst.ID)
		}
		reason := "no followed instance is called " + shown(name)
		if near := nearest(name, ids); near != "" {
			reason += ": is " + near + " meant?"
		}
		return nil, &Error{http.StatusNotFound, codeNotFound, reason, "id"}
	}
	return inst, nil
}

// handleInstance answers GET /v1/instances/{id}.
func (s *Server) handleInstance(c *gin.Context) error {
	inst, err := s.find(c)
	if err != nil {
		return err
	}
	d, ok := s.fleet.Detail(inst.ID)
	if !ok {
		return notFound("instance %s has just been removed", shown(inst.ID))
	}
	return s.show(c, http.StatusOK, d, func(t *table) {
		t.row("id", d.ID)
		t.row("model", d.Model)
		t.row("block size", d.BlockSize)
		t.row("state", d.State)
		for _, f := range [][2]string{
			{"reason", d.Reason}, {"hint", d.Hint}, {"engine", d.Engine}, {"source", d.Source},
			{"url", d.URL}, {"tenant", d.Tenant}, {"lora", d.LoRA},
		} {
			if f[1] != "" {
				t.row(f[0], f[1])
			}
		}
		for _, a := range d.Aliases {
			t.row("alias", a)
		}
		t.head("RANK", "ENDPOINT", "STATE", "SEQ", "LAST EVENT", "BATCHES", "LOST", "REPLAYS", "GPU", "CPU", "DISK", "SUSPECT", "REASON")
		for _, st := range d.Streams {
			seq := ""
			if st.LastSeq != nil {
				seq = strconv.FormatUint(*st.LastSeq, 10)
			}
			t.row(st.DPRank, st.Endpoint, st.State, seq, shownAge(st.LastEvent), st.Batches, st.LostBatches,
				st.Replays, st.Blocks.GPU, st.Blocks.CPU, st.Blocks.Disk, st.SuspectBlocks, st.Reason)
		}
	})
}

// handleClear answers POST /v1/instances/{id}/clear.
func (s *Server) handleClear(c *gin.Context) error {
	return s.command(c, "cleared", s.fleet.Clear)
}

// handleResync answers POST /v1/instances/{id}/resync.
func (s *Server) handleResync(c *gin.Context) error {
	return s.command(c, "resync started", s.fleet.Resync)
}

// command runs what an operator may do to an instance.
func (s *Server) command(c *gin.Context, done string, f func(context.Context, string) (bool, error)) error {
	inst, err := s.find(c)
	if err != nil {
		return err
	}
	ok, err := f(c.Request.Context(), inst.ID)
	if err != nil {
		return err
	}
	if !ok {
		return notFound("instance %s has just been removed", shown(inst.ID))
	}
	return s.writeJSON(c, http.StatusOK, struct {
		Status     string `json:"status"`
		InstanceID string `json:"instance_id"`
	}{done, inst.ID})
}

// worker is one line of GET /workers, in the shape of Dynamo's indexer.
type worker struct {
	ID        jsontext.Value    `json:"instance_id"` // a number where it was registered as one
	Model     string            `json:"model_name"`
	Tenant    string            `json:"tenant_id"`
	Status    State             `json:"status"`
	Endpoints map[string]string `json:"endpoints"` // by rank
}

// handleWorkers answers GET /workers, with ?model_name= and ?tenant_id= (or
// routing_group) as filters.
func (s *Server) handleWorkers(c *gin.Context) error {
	model, tenant := s.canonical(c.Query("model_name")), c.Query("tenant_id")
	if tenant == "" {
		tenant = c.Query("routing_group")
	}
	list := []worker{}
	for _, inst := range s.fleet.Instances() {
		if (model != "" && inst.Model != model) || (tenant != "" && !sameTenant(inst.Tenant, tenant)) {
			continue
		}
		d, ok := s.fleet.Detail(inst.ID)
		if !ok {
			continue
		}
		w := worker{ID: appendString(nil, inst.ID), Model: inst.Model, Tenant: tenantName(inst.Tenant),
			Status: d.State, Endpoints: map[string]string{}}
		if inst.NumericID {
			w.ID = jsontext.Value(inst.ID)
		}
		for _, st := range d.Streams {
			w.Endpoints[strconv.Itoa(st.DPRank)] = st.Endpoint
		}
		list = append(list, w)
	}
	return s.show(c, http.StatusOK, list, func(t *table) {
		t.head("INSTANCE", "MODEL", "TENANT", "STATUS", "RANK", "ENDPOINT")
		for _, w := range list {
			ranks := sortedKeys(w.Endpoints)
			slices.SortStableFunc(ranks, func(a, b string) int { return len(a) - len(b) })
			for _, r := range ranks {
				t.row(strings.Trim(string(w.ID), `"`), w.Model, w.Tenant, w.Status, r, w.Endpoints[r])
			}
		}
	})
}
