package main_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvindex/kvindex/events/enginesim"
	"github.com/kvindex/kvindex/indexer/snapshot/redistest"
)

// TestE2EFullerSnapshotStays: a replica that came late and knows only a part of
// an engine's history does not replace the snapshot of one that knows all, as
// long as that one is there.
func TestE2EFullerSnapshotStays(t *testing.T) {
	store := redistest.Start(t)
	config := "snapshot: {interval: 1s, redis: \"redis://" + store.Addr + "\"}"
	r := rand.New(rand.NewPCG(1, 2))
	full, poor := serve(t, config), serve(t, config)
	e := full.followed(t, "pod-0", enginesim.EngineOptions{
		Pool: enginesim.PoolOptions{Blocks: 500, BlockSize: 16, Vocabulary: 32_000}, Ranks: 1,
		Stream: enginesim.StreamOptions{BufferSteps: 10}, // a replay does not reach far back
	})
	for range 10 {
		work(t, r, e)
	}
	full.eventually(func() string { return full.agrees("pod-0", e) })
	written := func(s *server, least int) {
		t.Helper()
		s.within(time.Minute, func() string {
			work(t, r, e)
			if n := s.snapshotsWritten(); n < least {
				return fmt.Sprintf("%d snapshots, want %d", n, least)
			}
			time.Sleep(100 * time.Millisecond)
			return ""
		})
	}
	written(full, 1)
	body, err := json.Marshal(map[string]any{"instance_id": "pod-0", "model": "m", "endpoint": e.Endpoint(0), "replay_endpoint": e.ReplayEndpoint(0)})
	if err != nil {
		t.Fatal(err)
	}
	if code, said := poor.do(http.MethodPost, "/register", string(body)); code != http.StatusCreated {
		t.Fatalf("%d %s", code, said)
	}
	history := func(s *server) func() string {
		return func() string {
			if in := s.instance("pod-0"); in.State != "degraded" || !strings.Contains(in.Reason, "history") {
				return in.State + " " + in.Reason
			}
			return ""
		}
	}
	poor.eventually(history(poor))
	poor.within(time.Minute, func() string {
		work(t, r, e)
		if poor.metric("kvindex_snapshot_kept_back_total") < 3 {
			return "nothing is kept back"
		}
		return ""
	})
	written(full, full.snapshotsWritten()+2)
	if n := poor.snapshotsWritten(); n != 0 {
		t.Errorf("it has written %d snapshots", n)
	}
	if n := strings.Count(poor.log.String(), "another replica knows more"); n != 1 {
		t.Errorf("it is said %d times", n)
	}
	// The engine replays little: the snapshot must have its last batches.
	skipped := full.metric("kvindex_snapshot_skipped_total")
	full.eventually(func() string {
		if full.metric("kvindex_snapshot_skipped_total") == skipped {
			return "there is something new to write still"
		}
		return ""
	})
	third := serve(t, config)
	third.eventually(func() string { return third.agrees("pod-0", e) })
	third.kill(syscall.SIGKILL)

	full.kill(syscall.SIGKILL)
	written(poor, 1)
	late := serve(t, config)
	late.eventually(history(late))
}
