package enginesim

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/kvindex/kvindex/indexer"
)

// TestPlayer plays recordings over real sockets: a subscriber that reads along
// gets every message as it was, across restarts, and a client that comes late
// gets the last process's from the replay socket.
func TestPlayer(t *testing.T) {
	f := func(name string) {
		t.Helper()
		rec := loadRecording(t, name)
		p, err := NewPlayer(rec, StreamOptions{})
		ok(t, err)
		defer p.Close()
		subs := map[string]*subscriber{}
		for _, s := range p.Streams() {
			subs[s.Pod] = subscribe(t, s.Stream, "")
			if p.Stream(s.Pod) != s.Stream {
				t.Errorf("%s: stream %q is not found", name, s.Pod)
			}
		}
		ok(t, p.WaitSubscribers(withTimeout(t)))
		life := map[string][]Publish{} // since the last restart
		for _, step := range rec.Steps {
			ok(t, p.Play(step))
			switch s := step.(type) {
			case Publish:
				life[s.Pod] = append(life[s.Pod], s)
				if m := subs[s.Pod].next(); m.topic != s.Topic || m.seq != s.Seq || !bytes.Equal(m.payload, s.Payload) {
					t.Fatalf("%s: got batch %d of %q, want %d of %q", name, m.seq, m.topic, s.Seq, s.Topic)
				}
			case Restart:
				life[s.Pod] = nil
				subs[s.Pod].wantBack(p.Stream(s.Pod))
			}
		}
		for _, s := range p.Streams() {
			got, ended := dialReplay(t, s.Stream).replay(0, 5*time.Second)
			if len(got) != len(life[s.Pod]) || !ended {
				t.Errorf("%s: a replay of %s brought %d batches, end %v, want %d", name, s.Pod, len(got), ended, len(life[s.Pod]))
				continue
			}
			for i, m := range got {
				if want := life[s.Pod][i]; m.seq != want.Seq || !bytes.Equal(m.payload, want.Payload) {
					t.Fatalf("%s: a replay of %s brought batch %d, want %d", name, s.Pod, m.seq, want.Seq)
				}
			}
		}
	}
	f("demo")
	f("dp2")
	f("main")
	f("hand_v0.9.0")
	f("sglang_v0.5.18_restart")
	f("sglang_v0.5.18_dp2")
}

func TestPlayerFails(t *testing.T) {
	rec, err := LoadRecording(os.DirFS(captures), "two_pods")
	ok(t, err)
	taken := startStream(t, StreamOptions{})
	if p, err := NewPlayer(rec, StreamOptions{Endpoint: taken.Endpoint()}); err == nil {
		t.Error("a port is taken and nothing is said")
		p.Close()
	}
	p, err := NewPlayer(rec, StreamOptions{NoReplay: true})
	ok(t, err)
	defer p.Close()
	for _, s := range []Step{Publish{Pod: "nobody"}, Restart{Pod: "nobody"}} {
		if err := p.Play(s); err == nil {
			t.Errorf("%+v is played", s)
		}
	}
	ok(t, p.Play(Ask{}), p.Play(Marker{}), p.Close())
	if err := p.Play(Publish{Pod: "pod-0"}); err == nil {
		t.Error("a closed player plays")
	}
}

// TestRecordingsAreInOrder asks a naive index at the time of each request. It
// has to agree with the engine but where the wire does not tell: after a reset
// that no step has published yet, where an identical prompt is still computed,
// and in SGLang for an extra key, which is in no event. It would not if steps
// were out of order or restarts in the wrong place.
func TestRecordingsAreInOrder(t *testing.T) {
	f := func(name string, right, of int) {
		t.Helper()
		rec := loadRecording(t, name)
		sglang := rec.Streams[0].Instance == "sgl-0"
		blockSize := 0
		indexes := map[string]*naive{}
		fresh := func(pod string) { indexes[pod] = newNaive(hash1337, "", 0) }
		for _, s := range rec.Streams {
			fresh(s.Pod)
		}
		asked, agreed := 0, 0
		for _, step := range rec.Steps {
			switch s := step.(type) {
			case Publish:
				for _, ev := range decodeBatch(t, s.Payload).Events {
					blockSize = max(blockSize, ev.BlockSize)
					if ev.Extra == nil {
						ev.Extra = [][]ExtraKey{{{Text: ev.Salt}}}
					} else if ev.LoRAName == "" && ev.Extra[0] != nil {
						ev.Salt = ev.Extra[0][0].Text
					} else if len(ev.Extra[0]) > 1 {
						ev.Salt = ev.Extra[0][1].Text
					}
					if err := indexes[s.Pod].apply([]Event{ev}, true); err != nil {
						t.Fatalf("%s: batch %d of %s: %v", name, s.Seq, s.Pod, err)
					}
				}
			case Restart:
				fresh(s.Pod)
			case Ask:
				if !s.HasCached || s.PromptTokens == nil || s.ExtraKey != "" {
					continue
				}
				req := Request{Tokens: s.PromptTokens, Salt: s.Salt, LoRA: loraOf(s)}
				if sglang {
					req.Tokens = append(req.Tokens[:len(req.Tokens):len(req.Tokens)], 0) // the whole list counts
				}
				asked++
				if indexes[s.Pod].held.match(hash1337, "", 0, max(blockSize, 1), req, indexer.GPU) == s.CachedTokens {
					agreed++
				}
			}
		}
		if asked != of || agreed != right {
			t.Errorf("%s: %d of %d answers agree, want %d of %d", name, agreed, asked, right, of)
		}
	}
	f("demo", 72, 73)
	f("two_pods", 144, 146)
	f("lora", 23, 23)
	f("bs32_default", 77, 80)
	f("sglang_v0.5.23_rust_p16", 39, 40)
	f("sglang_v0.5.23_rust_p16_dynamo", 39, 40)
	f("sglang_v0.5.8_p16", 34, 35)
	f("sglang_v0.5.23_rust_p16_hicache", 12, 12)
}

// loraOf is the adapter that a recorded request asked for, as its model.
func loraOf(a Ask) string {
	for _, name := range []string{"ada", "adb"} {
		if bytes.Contains(a.Body, []byte(`"model": "`+name+`"`)) {
			return name
		}
	}
	return ""
}
