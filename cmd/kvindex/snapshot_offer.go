package main

import (
	"log/slog"
	"net/http"

	"github.com/kvindex/kvindex/indexer/snapshot/peer"
)

// offered is what other replicas get.
type offered struct{ *snapshots }

// Size implements peer.Content.
func (o offered) Size() int64 { return o.size.Load() }

// offer answers GET /v1/snapshot. A replica that has heard of nothing has nothing
// to give: whoever took that for a snapshot would look no further.
func (s *snapshots) offer(st *startup, log *slog.Logger) http.Handler {
	h := peer.NewHandler(peer.HandlerOptions{Content: offered{s}, Logger: log})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		why := st.note()
		if why == "" && s.fleet.Changes() == 0 && !s.restored.Load() {
			why = "nothing has been heard of any engine yet"
		}
		if why != "" {
			w.Header().Set("Retry-After", "2")
			http.Error(w, "there is no snapshot to give: "+why, http.StatusServiceUnavailable)
			return
		}
		h.ServeHTTP(w, r)
	})
}
