package main_test

import (
	"bytes"
	le "encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kvindex/kvindex/events/enginesim"
	"github.com/kvindex/kvindex/indexer/snapshot"
)

// padded is a snapshot with so many bytes more, which mean nothing: blanks in its
// JSON.
func padded(t *testing.T, whole string, blanks int) []byte {
	t.Helper()
	r, err := snapshot.NewReader(strings.NewReader(whole), snapshot.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	n := le.LittleEndian.Uint32(body)
	var b bytes.Buffer
	w, err := snapshot.NewWriter(&b, r.Header())
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range [][]byte{
		le.LittleEndian.AppendUint32(nil, n+uint32(blanks)), body[4 : 4+n], bytes.Repeat([]byte(" "), blanks), body[4+n:],
	} {
		if _, err := w.Write(part); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// slowPeer offers a snapshot of which a chunk comes each time that more is sent to.
func slowPeer(t *testing.T, whole []byte) (url string, more chan<- struct{}) {
	t.Helper()
	next := make(chan struct{})
	peer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.kvindex.snapshot")
		w.Header().Set("Kvindex-Snapshot-Size", strconv.Itoa(len(whole)))
		for b := whole; len(b) > 0; {
			n := min(len(b), snapshot.ChunkSize)
			if _, err := w.Write(b[:n]); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
			b = b[n:]
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
		}
	}))
	t.Cleanup(peer.Close)
	return peer.URL, next
}

// TestE2EAnswersWhileRestoring: a replica answers from the beginning, and says
// that it knows nothing yet; registrations wait, or are told to come again. A
// restore that goes on is not given up, and used whole in the end, also when the
// replica has been ready for long.
func TestE2EAnswersWhileRestoring(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	first := serve(t, "")
	e := first.followed(t, "pod-0", enginesim.EngineOptions{
		Pool: enginesim.PoolOptions{Blocks: 500, BlockSize: 16, Vocabulary: 32_000}, Ranks: 1,
		Stream: enginesim.StreamOptions{BufferSteps: 10},
	})
	for range 10 {
		work(t, r, e)
	}
	first.eventually(func() string { return first.agrees("pod-0", e) })
	_, whole := first.do(http.MethodGet, "/v1/snapshot", "")
	const chunks = 9
	url, more := slowPeer(t, padded(t, whole, chunks*snapshot.ChunkSize))

	begin := time.Now()
	second := launch(t, fmt.Sprintf("events: {warmup_timeout: 3s}\nsnapshot: {peers: [%q]}", url))
	code, ready := second.do(http.MethodGet, "/readyz", "")
	if code != http.StatusServiceUnavailable && time.Since(begin) < 3*time.Second || !strings.Contains(ready, "snapshot: ") {
		t.Errorf("%d %s", code, ready)
	}
	second.eventually(func() string {
		if _, ready := second.do(http.MethodGet, "/readyz", ""); !strings.Contains(ready, "snapshot: restoring from peer "+url+", 0 of 10 MiB") {
			return ready
		}
		return ""
	})
	query := map[string]any{"model": "m", "token_ids": []int{1, 2, 3}}
	a := second.query(query)
	if a.State != "cold" || !strings.Contains(a.Reason, "nothing is known yet: snapshot: restoring from peer") || len(a.Instances) != 0 {
		t.Errorf("%+v", a)
	}
	if code, metrics := second.do(http.MethodGet, "/metrics", ""); code != http.StatusOK || !strings.Contains(metrics, "kvindex_queries_total") {
		t.Errorf("%d %s", code, metrics)
	}
	if code, said := second.do(http.MethodGet, "/v1/snapshot", ""); code != http.StatusServiceUnavailable {
		t.Errorf("an empty snapshot is offered: %d %s", code, said)
	}

	// One that registers meanwhile, again and again until it is taken.
	other, err := enginesim.Start(enginesim.EngineOptions{Pool: enginesim.PoolOptions{Blocks: 500, BlockSize: 16, Vocabulary: 32_000}, Ranks: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	body, err := json.Marshal(map[string]any{"instance_id": "pod-1", "model": "m", "endpoint": other.Endpoint(0), "replay_endpoint": other.ReplayEndpoint(0)})
	if err != nil {
		t.Fatal(err)
	}
	taken := make(chan string, 1)
	go func() {
		refused := 0
		for {
			resp, err := http.Post(second.url+"/register", "application/json", bytes.NewReader(body))
			if err != nil {
				taken <- err.Error()
				return
			}
			said, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			switch {
			case resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != "" && strings.Contains(string(said), "nothing can be registered yet"):
				refused++
			case resp.StatusCode == http.StatusCreated && refused > 0:
				taken <- ""
				return
			default:
				taken <- fmt.Sprintf("%d %s after %d refusals", resp.StatusCode, said, refused)
				return
			}
		}
	}()
	// Longer than warmup_timeout, and than a source may bring nothing.
	for range chunks {
		time.Sleep(900 * time.Millisecond)
		more <- struct{}{}
	}
	if code, ready := second.do(http.MethodGet, "/readyz", ""); code != http.StatusOK || !strings.Contains(ready, "restoring from peer") {
		t.Errorf("after warmup_timeout: %d %s", code, ready)
	}
	if a := second.query(query); a.State != "cold" {
		t.Errorf("ready, and knows nothing: %+v", a)
	}
	close(more) // all there is
	if said := <-taken; said != "" {
		t.Error(said)
	}
	second.eventually(func() string { return second.agrees("pod-0", e) })
	second.eventually(func() string { return second.agrees("pod-1", other) })
	for _, text := range []string{"still restoring", "restored a snapshot"} {
		if !strings.Contains(second.log.String(), text) {
			t.Errorf("the log lacks %q", text)
		}
	}
}
