package events

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// frameVectors is the "frames" section of the manifest. Frames are hex, or
// placeholders such as <payload>.
type frameVectors struct {
	Live []struct {
		Name    string   `json:"name"`
		Frames  []string `json:"frames"`
		Decoded *struct {
			Topic string `json:"topic"`
			Seq   uint64 `json:"seq"`
		} `json:"decoded"`
		Outcome string `json:"outcome"`
	} `json:"live"`
	Replay map[string]json.RawMessage `json:"replay"`
}

func unhexFrames(t *testing.T, frames []string) [][]byte {
	t.Helper()
	var out [][]byte
	for _, f := range frames {
		b, err := hex.DecodeString(f)
		if strings.HasPrefix(f, "<") {
			b, err = []byte(f), nil
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b)
	}
	return out
}

func TestParseLiveVectors(t *testing.T) {
	for _, v := range loadManifest(t).Frames.Live {
		t.Run(v.Name, func(t *testing.T) {
			topic, seq, payload, err := ParseLive(unhexFrames(t, v.Frames))
			if v.Decoded == nil {
				var fe *FrameError
				if !errors.As(err, &fe) {
					t.Fatalf("ParseLive = %q, %d, %v; want a *FrameError (%s)", topic, seq, err, v.Outcome)
				}
				t.Log(err)
				return
			}
			if err != nil || string(topic) != v.Decoded.Topic || seq != v.Decoded.Seq || string(payload) != "<payload>" {
				t.Errorf("ParseLive = %q, %d, %q, %v; want %+v", topic, seq, payload, err, *v.Decoded)
			}
		})
	}
}

func TestParseReplayVectors(t *testing.T) {
	tested := 0
	for name, raw := range loadManifest(t).Frames.Replay {
		if !strings.HasPrefix(name, "reply_") {
			continue
		}
		var messages [][]string
		if err := json.Unmarshal(raw, &messages); err != nil {
			t.Fatal(err)
		}
		if len(messages) != 2 {
			t.Fatalf("%s: want a batch and an end", name)
		}
		reply, err := ParseReplay(unhexFrames(t, messages[0]))
		if err != nil || reply.Seq != 5 || reply.End || string(reply.Payload) != "<payload>" {
			t.Errorf("%s: ParseReplay = %+v, %v", name, reply, err)
		}
		if reply, err = ParseReplay(unhexFrames(t, messages[1])); err != nil || !reply.End || reply.Payload != nil {
			t.Errorf("%s: ParseReplay of the end = %+v, %v", name, reply, err)
		}
		tested++
	}
	if tested != 2 {
		t.Errorf("%d layouts in the manifest, want 2", tested)
	}
}

func TestReplayRequestVector(t *testing.T) {
	var want []string
	if err := json.Unmarshal(loadManifest(t).Frames.Replay["request_from_DEALER"], &want); err != nil {
		t.Fatal(err)
	}
	got := ReplayRequest(5)
	if !equalFrames(got, unhexFrames(t, want)) {
		t.Errorf("ReplayRequest(5) = %x, want %v", got, want)
	}
}

func equalFrames(a, b [][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

func TestParseReplay(t *testing.T) {
	seq7 := "\x00\x00\x00\x00\x00\x00\x00\x07"
	end := strings.Repeat("\xff", 8)
	f := func(frames []string, want Reply, reason FrameReason) {
		t.Helper()
		var in [][]byte
		for _, frame := range frames {
			in = append(in, []byte(frame))
		}
		got, err := ParseReplay(in)
		var fe *FrameError
		if reason != "" {
			if !errors.As(err, &fe) || fe.Reason != reason || fe.Error() == "" {
				t.Errorf("ParseReplay(%q) = %+v, %v; want %s", frames, got, err, reason)
			}
			return
		}
		if err != nil || got.Seq != want.Seq || got.End != want.End || !bytes.Equal(got.Payload, want.Payload) {
			t.Errorf("ParseReplay(%q) = %+v, %v; want %+v", frames, got, err, want)
		}
	}
	data := Reply{Seq: 7, Payload: []byte("p")}
	done := Reply{Seq: EndSeq, End: true}
	f([]string{"", seq7, "p"}, data, "")
	f([]string{"", "kv", seq7, "p"}, data, "")
	f([]string{"", "", seq7, "p"}, data, "")
	f([]string{seq7, "p"}, data, "")
	f([]string{"", seq7, ""}, Reply{Seq: 7}, "") // the decoder rejects an empty batch
	f([]string{"", end, ""}, done, "")
	f([]string{"", "kv", end, ""}, done, "")
	f([]string{end, ""}, done, "")
	f([]string{"", ""}, done, "")
	f([]string{""}, done, "")
	f([]string{"", "", ""}, done, "")
	f(nil, Reply{}, FrameCount)
	f([]string{"p"}, Reply{}, FrameCount)
	f([]string{"", "", "", "", ""}, Reply{}, FrameCount)
	f([]string{"", "kv", "x", seq7, "p"}, Reply{}, FrameCount)
	f([]string{"id", "kv", seq7, "p"}, Reply{}, FrameDelimiter)
	f([]string{"", "p"}, Reply{}, FrameSeqLength)
	f([]string{"", "7", "p"}, Reply{}, FrameSeqLength)
	f([]string{"", seq7 + "\x00", "p"}, Reply{}, FrameSeqLength)
	f([]string{"", end, "p"}, Reply{}, FrameSeqReserved)
}
