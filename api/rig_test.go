package api

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json/v2"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kvindex/kvindex/indexer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testModel = "Qwen/Qwen3-0.6B"

// rig is a server on a real index and a fake fleet.
type rig struct {
	t     testing.TB
	index *indexer.Index
	fleet *fakeFleet
	srv   *Server

	holders map[string]*indexer.Holder
}

func newRig(t testing.TB, change ...func(*Options)) *rig {
	t.Helper()
	x, err := indexer.New(indexer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Close)
	r := &rig{t: t, index: x, fleet: newFakeFleet(), holders: map[string]*indexer.Holder{}}
	o := Options{Index: x, Fleet: r.fleet, Version: "test"}
	for _, f := range change {
		f(&o)
	}
	if r.srv, err = New(o); err != nil {
		t.Fatal(err)
	}
	return r
}

// live adds a live instance of testModel.
func (r *rig) live(id string, aliases ...string) {
	r.fleet.add(Instance{ID: id, Model: testModel, Aliases: aliases},
		Health{State: Live, LastEvent: Age{12 * time.Millisecond, true}, BlockSize: 16})
}

// store makes an instance's rank hold the blocks of tokens.
func (r *rig) store(id string, rank int, tier indexer.Tier, tokens []uint32) {
	r.t.Helper()
	r.storeIn(indexer.TableKey{Model: testModel, BlockSize: 16}, indexer.Scope{}, id, rank, tier, tokens)
}

func (r *rig) storeIn(key indexer.TableKey, scope indexer.Scope, id string, rank int, tier indexer.Tier, tokens []uint32) {
	r.t.Helper()
	name := fmt.Sprint(key, id, rank)
	h := r.holders[name]
	if h == nil {
		h = r.index.Table(key).Open(indexer.StreamID{Instance: id, Rank: rank})
		r.holders[name] = h
	}
	hs := r.index.Hasher()
	run := indexer.Run{Tier: tier, Scope: hs.Scope(scope)}
	seqs := r.index.Table(key).Sequence(tokens, run.Scope, nil)
	for i, seq := range seqs {
		run.Engine = append(run.Engine, indexer.EngineHash(seq))
		run.Local = append(run.Local, hs.Local(tokens[i*key.BlockSize:(i+1)*key.BlockSize], nil))
	}
	if res := h.Store(run); res.Stored+res.Duplicates != len(seqs) {
		r.t.Fatalf("stored %+v of %d blocks", res, len(seqs))
	}
}

// prompt returns n tokens that depend on seed.
func prompt(n int, seed uint32) []uint32 {
	tokens := make([]uint32, n)
	for i := range tokens {
		tokens[i] = (uint32(i)*2654435761 + seed*40503) % 151936
	}
	return tokens
}

// tokensJSON is tokens as a JSON array, tokensB64 as base64.
func tokensJSON(tokens []uint32) string {
	b, _ := json.Marshal(tokens)
	return string(b)
}

func tokensB64(tokens []uint32) string {
	b := make([]byte, 0, 4*len(tokens))
	for _, t := range tokens {
		b = binary.LittleEndian.AppendUint32(b, t)
	}
	return base64.StdEncoding.EncodeToString(b)
}

// do sends a request to the handler.
func (r *rig) do(method, path, body string, change ...func(*http.Request)) *http.Response {
	r.t.Helper()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	req := httptest.NewRequest(method, path, in)
	req.RemoteAddr = "127.0.0.1:1"
	for _, f := range change {
		f(req)
	}
	w := httptest.NewRecorder()
	r.srv.Handler().ServeHTTP(w, req)
	return w.Result()
}

// post posts body and decodes the answer of the wanted status.
func (r *rig) post(path, body string, status int) map[string]any {
	r.t.Helper()
	return r.decoded(r.do(http.MethodPost, path, body), status)
}

func (r *rig) get(path string, status int) map[string]any {
	r.t.Helper()
	return r.decoded(r.do(http.MethodGet, path, ""), status)
}

func (r *rig) decoded(resp *http.Response, status int) map[string]any {
	r.t.Helper()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	if resp.StatusCode != status {
		r.t.Fatalf("status %d, want %d: %s", resp.StatusCode, status, body)
	}
	var v map[string]any
	if err := json.Unmarshal(body, &v); err != nil {
		r.t.Fatalf("%v in %s", err, body)
	}
	return v
}

// text reads a response's body.
func text(t testing.TB, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
