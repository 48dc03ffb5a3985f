package enginesim

import (
	"os"
	"slices"
	"sync"
	"testing"
)

const captures = "../testdata/captures"

func recordingNames(t testing.TB) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(captures)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	if len(names) == 0 {
		t.Fatalf("no recordings in %s", captures)
	}
	return names
}

// loaded keeps recordings between tests, which only read them.
var loaded sync.Map

func loadRecording(t testing.TB, name string) *Recording {
	t.Helper()
	if r, ok := loaded.Load(name); ok {
		return r.(*Recording)
	}
	r, err := LoadRecording(os.DirFS(captures), name)
	if err != nil {
		t.Fatal(err)
	}
	loaded.Store(name, r)
	return r
}

func TestLoadRecordings(t *testing.T) {
	for _, name := range recordingNames(t) {
		r := loadRecording(t, name)
		if r.Name != name || len(r.Streams) == 0 || r.Layout == ReplayDefault {
			t.Errorf("%s: name %q, %d streams, layout %d", name, r.Name, len(r.Streams), r.Layout)
		}
		next := map[string]uint64{}
		asks, last := 0, 0.0
		for i, s := range r.Steps {
			if s.Time() < last || s.Time() == 0 {
				t.Errorf("%s: step %d at %f after %f", name, i, s.Time(), last)
			}
			last = s.Time()
			switch s := s.(type) {
			case Publish:
				if s.Seq != next[s.Pod] || len(s.Payload) == 0 {
					t.Errorf("%s: batch %d of %s where %d is next", name, s.Seq, s.Pod, next[s.Pod])
				}
				next[s.Pod] = s.Seq + 1
			case Restart:
				next[s.Pod] = 0
			case Ask:
				asks++
				if s.ID == "" || s.Instance == "" || s.HasCached && s.PromptTokens == nil && s.Prompts == nil {
					t.Errorf("%s: bad ask %s", name, s.Line)
				}
			}
		}
		if asks == 0 {
			t.Errorf("%s: nothing was asked", name)
		}
	}
}

func TestRestartsOfRecordings(t *testing.T) {
	f := func(name, pod string, want float64) {
		t.Helper()
		var got []float64
		for _, s := range loadRecording(t, name).Steps {
			if r, ok := s.(Restart); ok && r.Pod == pod {
				got = append(got, r.At)
			}
		}
		if !slices.Equal(got, []float64{want}) {
			t.Errorf("%s: %s restarts at %f, want %f", name, pod, got, want)
		}
	}
	f("demo", "pod-1", 1795958857.3876712)                   // its socket was disconnected
	f("main", "pod-0", 1795955336.3599286)                   // the same
	f("sglang_v0.5.18_restart", "sgl-0", 1795960224.8514268) // its log says stop
}

func TestInstancesOfRecordings(t *testing.T) {
	f := func(name string, want ...StreamInfo) {
		t.Helper()
		r := loadRecording(t, name)
		if !slices.Equal(r.Streams, want) {
			t.Errorf("%s: %+v, want %+v", name, r.Streams, want)
		}
	}
	f("demo", StreamInfo{"pod-0", "pod-0", 0, 78}, StreamInfo{"pod-1", "pod-1", 0, 51})
	f("dp2", StreamInfo{"rank-0", "pod-0", 0, 46}, StreamInfo{"rank-1", "pod-0", 1, 47})
	f("sglang_v0.5.18_dp2", StreamInfo{"sgl-0", "sgl-0", 0, 1}, StreamInfo{"sgl-0-dp1", "sgl-0", 1, 2})

	asked := map[[2]any]bool{}
	for _, name := range []string{"dp2", "sglang_v0.5.18_dp2"} {
		for _, s := range loadRecording(t, name).Steps {
			if a, ok := s.(Ask); ok {
				asked[[2]any{a.Instance, a.Rank}] = true
			}
		}
	}
	for _, want := range [][2]any{{"pod-0", -1}, {"sgl-0", 0}, {"sgl-0", 1}} {
		if !asked[want] {
			t.Errorf("nothing was asked of %v: %v", want, asked)
		}
	}
}

func TestAsksOfRecordings(t *testing.T) {
	find := func(name, id string) Ask {
		t.Helper()
		for _, s := range loadRecording(t, name).Steps {
			if a, ok := s.(Ask); ok && a.ID == id {
				return a
			}
		}
		t.Fatalf("%s has no request %q", name, id)
		return Ask{}
	}
	a := find("demo", "round_robin-c2-t0")
	if a.Pod != "pod-0" || a.Status != 200 || len(a.PromptTokens) != 861 || a.CachedTokens != 752 || !a.HasCached ||
		a.Endpoint != "/v1/chat/completions" || len(a.Outputs) != 1 || a.Finished <= a.At || a.Body.Kind() != '{' {
		t.Errorf("got %+v", a)
	}
	if a := find("demo", "reset"); a.Endpoint != "/reset_prefix_cache" || a.HasCached || a.PromptTokens != nil {
		t.Errorf("got %+v", a)
	}
	if a := find("demo", "sticky-c1-t0"); a.Status != 400 || a.HasCached {
		t.Errorf("got %+v", a)
	}
	if a := find("hand_v0.24.0", "r5"); a.Salt != "tenant-a" || a.CachedTokens != 32 {
		t.Errorf("got %+v", a)
	}
	a = find("sglang_v0.5.23_rust_p16", "v0.5.23_rust_p16-0027")
	if a.Salt != "salt-a" || a.ExtraKey != "tenant-x" || a.CachedTokens != 48 || a.CachedTokensScheduler != 32 {
		t.Errorf("got %+v", a)
	}
	several := 0
	for _, s := range loadRecording(t, "main").Steps {
		if a, ok := s.(Ask); ok && a.Prompts != nil {
			several++
			if a.PromptTokens != nil || len(a.Prompts) < 2 {
				t.Errorf("got %+v", a)
			}
		}
	}
	if several != 1 {
		t.Errorf("%d requests with several prompts, want 1", several)
	}
}

func TestLoadRecordingFails(t *testing.T) {
	if r, err := LoadRecording(os.DirFS(captures), "missing"); err == nil {
		t.Errorf("got %+v", r)
	}
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/stream.jsonl", []byte("{\"t\":1}\n{\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := LoadRecording(os.DirFS(dir), "."); err == nil {
		t.Errorf("got %+v", r)
	} else {
		t.Log(err)
	}
}
