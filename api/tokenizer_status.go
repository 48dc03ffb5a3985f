package api

import (
	"encoding/json/v2"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/kvindex/kvindex/tokenizer"
)

// tokenizerJSON is what GET /v1/models says of a model's tokenizer.
type tokenizerJSON struct {
	State   tokenizer.State                  `json:"state"`
	Reason  string                           `json:"reason,omitzero"`
	Source  string                           `json:"source,omitzero"`
	Engine  string                           `json:"engine,omitzero"` // what computes, such as bpe/qwen2 or hf
	Proof   string                           `json:"proof,omitzero"`  // what showed that it is exact
	MaxLen  int                              `json:"max_model_len,omitzero"`
	Bytes   int                              `json:"bytes,omitzero"` // memory of what computes, beside the cache
	Engines map[string]tokenizer.EngineProof `json:"engines,omitzero"`

	Requests   map[tokenizer.Source]uint64 `json:"requests"`       // answered, by where the tokens came from
	Unknown    uint64                      `json:"unknown"`        // requests whose tokens could not be told
	HitRate    *float64                    `json:"cache_hit_rate"` // share of tokens found in the prefix cache; null before the first
	Samples    map[string]uint64           `json:"samples"`
	Mismatches map[tokenizer.Stage]uint64  `json:"mismatches"`
	Witnessed  Witnessed                   `json:"witnessed"`
}

// tokenizerOf describes the tokenizer of a model, nil if it has none.
func (s *Server) tokenizerOf(model string) *tokenizerJSON {
	st, ok := s.tokenizers.Status(model)
	if !ok {
		return nil
	}
	j := &tokenizerJSON{
		State: st.State, Reason: st.Reason, Source: st.Source, Engine: st.Engine, Proof: st.Proof, MaxLen: st.MaxLen, Bytes: st.Bytes,
		Engines: st.Engines, Requests: st.Requests, Unknown: st.Unknown, Samples: st.Samples, Mismatches: st.Mismatches,
		Witnessed: s.witness.of(model, time.Now()),
	}
	if all := st.Cached + st.Computed; all > 0 {
		rate := math.Round(float64(st.Cached)/float64(all)*1e4) / 1e4
		j.HitRate = &rate
	}
	return j
}

// columns are what a table of models says of the tokenizer.
func (j *tokenizerJSON) columns() (state, hits, proved, reason string) {
	if j == nil {
		return "none", "", "", ""
	}
	if j.HitRate != nil {
		hits = strconv.FormatFloat(100**j.HitRate, 'f', 1, 64) + "%"
	}
	n := 0
	for _, p := range j.Engines {
		if p.Equal > 0 && p.Differs == "" {
			n++
		}
	}
	if len(j.Engines) > 0 {
		proved = strconv.Itoa(n) + " of " + strconv.Itoa(len(j.Engines))
	}
	return strings.TrimSpace(string(j.State) + " " + j.Engine), hits, proved, j.Reason
}

// handleReload answers POST /v1/tokenizers/reload {"model": NAME}: the model's
// tokenizer is loaded from its files again, which the answer waits for.
func (s *Server) handleReload(c *gin.Context) error {
	var req struct {
		Model string `json:"model"`
	}
	body, err := readBody(c, nil, 64<<10)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, &req); err != nil || req.Model == "" {
		return missing("model", `the body is not {"model": NAME}, which says whose tokenizer to load again`)
	}
	if s.tokenizers == nil {
		return notFound("kvindex has no tokenizer")
	}
	if _, err := s.tokenizers.Reload(c.Request.Context(), req.Model); err != nil {
		if errors.Is(err, tokenizer.ErrNoTokenizer) {
			return notFound("the model %s has no tokenizer that was loaded from files", shown(req.Model))
		}
		return err
	}
	return s.writeJSON(c, http.StatusOK, s.tokenizerOf(req.Model))
}
