package enginesim

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
)

// loader gathers a recording's files.
type loader struct {
	fsys fs.FS
	dir  string
	rec  *Recording
	ends map[string][]float64 // when a pod's process ended, best evidence first
}

func (l *loader) streams() error {
	index := map[string]int{}
	return l.lines("stream.jsonl", true, func(line []byte) error {
		var m struct {
			T       float64 `json:"t"`
			Pod     string  `json:"pod"`
			Topic   string  `json:"topic"`
			Seq     uint64  `json:"seq"`
			Payload []byte  `json:"payload_b64"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return err
		}
		i, ok := index[m.Pod]
		if !ok {
			i = len(l.rec.Streams)
			index[m.Pod] = i
			l.rec.Streams = append(l.rec.Streams, StreamInfo{Pod: m.Pod})
		}
		l.rec.Streams[i].Batches++
		l.rec.Steps = append(l.rec.Steps, Publish{At: m.T, Pod: m.Pod, Topic: m.Topic, Seq: m.Seq, Payload: m.Payload})
		return nil
	})
}

func (l *loader) requests() error {
	return l.lines("requests.jsonl", false, func(line []byte) error {
		var q requestLine
		if err := json.Unmarshal(line, &q); err != nil {
			return err
		}
		if q.ID != "" {
			ask, err := q.ask(slices.Clone(line))
			l.rec.Steps = append(l.rec.Steps, ask)
			return err
		}
		m := Marker{At: q.T, Name: q.Marker + q.Op, Pod: q.Pod, Line: slices.Clone(line)}
		l.rec.Steps = append(l.rec.Steps, m)
		if m.Name == "stop" || m.Name == "restart" {
			l.ends[m.Pod] = append(l.ends[m.Pod], m.At)
		}
		return nil
	})
}

// socketLog reads when the recording's sockets lost their connections: the
// best evidence of when a process ended.
func (l *loader) socketLog() error {
	lost := map[string][]float64{}
	err := l.lines("stream.socket.jsonl", false, func(line []byte) error {
		var e struct {
			T     float64 `json:"t"`
			Pod   string  `json:"pod"`
			Event string  `json:"event"`
		}
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		if e.Event == "DISCONNECTED" {
			lost[e.Pod] = append(lost[e.Pod], e.T)
		}
		return nil
	})
	for pod, ts := range lost {
		l.ends[pod] = append(ts, l.ends[pod]...)
	}
	return err
}

// replays reads the layout of replays from the first one that was recorded.
func (l *loader) replays() error {
	return l.lines("replay.jsonl", false, func(line []byte) error {
		var m struct {
			Frames [][]byte `json:"frames_b64"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return err
		}
		switch {
		case l.rec.Layout != ReplayDefault:
		case len(m.Frames) == 3:
			l.rec.Layout = ReplayWithoutTopic
		case len(m.Frames) == 4:
			l.rec.Layout = ReplayWithTopic
		}
		return nil
	})
}

func (l *loader) meta() error {
	b, err := fs.ReadFile(l.fsys, path.Join(l.dir, "meta.json"))
	if err == nil {
		l.rec.Meta = b
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// requestLine is a line of the request log of any kind of recording.
type requestLine struct {
	Marker         string         `json:"marker"`
	Op             string         `json:"op"` // SGLang's recordings
	T              float64        `json:"t"`  // of a marker or operation
	ID             string         `json:"id"`
	Pod            string         `json:"pod"`
	Scenario       string         `json:"scenario"`
	Endpoint       string         `json:"endpoint"`
	TSend          float64        `json:"t_send"`
	TFinish        float64        `json:"t_finish"`
	Status         jsontext.Value `json:"status"` // a number; a text where the client went away
	Body           jsontext.Value `json:"body"`
	Prompt         jsontext.Value `json:"prompt_token_ids"`
	Output         [][]uint32     `json:"output_token_ids"`
	Generated      []uint32       `json:"generated"` // recordings that were driven by hand
	Cached         *int           `json:"cached_tokens"`
	CachedSchedule *int           `json:"cached_tokens_scheduler"`
	ExtraKey       *string        `json:"extra_key"`
	Salt           *string        `json:"cache_salt"`
}

func (q *requestLine) ask(line []byte) (Ask, error) {
	a := Ask{
		At: q.TSend, Finished: q.TFinish, ID: q.ID, Scenario: q.Scenario, Endpoint: q.Endpoint, Pod: q.Pod,
		Body: q.Body, Outputs: q.Output, Line: line,
	}
	if q.Status.Kind() == '0' {
		if err := json.Unmarshal(q.Status, &a.Status); err != nil {
			return a, err
		}
	}
	if len(q.Body) == 0 {
		a.Body = jsontext.Value("{}")
	}
	if q.Generated != nil {
		a.Outputs = [][]uint32{q.Generated}
	}
	if q.Cached != nil {
		a.CachedTokens, a.CachedTokensScheduler, a.HasCached = *q.Cached, *q.Cached, true
	}
	if q.CachedSchedule != nil {
		a.CachedTokensScheduler = *q.CachedSchedule
	}
	if err := q.prompt(&a); err != nil {
		return a, fmt.Errorf("prompt of request %q: %w", q.ID, err)
	}
	return a, q.namespace(&a)
}

// prompt reads one list of tokens, or one list for each prompt.
func (q *requestLine) prompt(a *Ask) error {
	if len(q.Prompt) == 0 {
		return nil
	}
	err := json.Unmarshal(q.Prompt, &a.PromptTokens)
	if err != nil && json.Unmarshal(q.Prompt, &a.Prompts) == nil {
		a.PromptTokens = nil
		return nil
	}
	return err
}

// namespace reads what separates the request's cache entries: from the line,
// or as most recordings have it, from the request's body.
func (q *requestLine) namespace(a *Ask) error {
	var body struct {
		ExtraKey *string `json:"extra_key"`
		Salt     *string `json:"cache_salt"`
	}
	if a.Body.Kind() == '{' {
		if err := json.Unmarshal(a.Body, &body); err != nil {
			return fmt.Errorf("body of request %q: %w", q.ID, err)
		}
	}
	for _, v := range []*string{q.ExtraKey, body.ExtraKey} {
		if v != nil {
			a.ExtraKey = *v
		}
	}
	for _, v := range []*string{q.Salt, body.Salt} {
		if v != nil {
			a.Salt = *v
		}
	}
	return nil
}

// lines calls fn with each line of a file, which is not kept.
func (l *loader) lines(name string, must bool, fn func(line []byte) error) error {
	f, err := l.fsys.Open(path.Join(l.dir, name))
	compressed := errors.Is(err, fs.ErrNotExist)
	if compressed {
		f, err = l.fsys.Open(path.Join(l.dir, name+".gz"))
	}
	if errors.Is(err, fs.ErrNotExist) && !must {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	var r io.Reader = f
	if compressed {
		z, err := gzip.NewReader(f)
		if err != nil {
			return fmt.Errorf("file %s.gz: %w", name, err)
		}
		r = z
	}
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 0, 1<<16), 1<<26)
	for n := 1; sc.Scan(); n++ {
		if len(bytes.TrimSpace(sc.Bytes())) == 0 {
			continue
		}
		if err := fn(sc.Bytes()); err != nil {
			return fmt.Errorf("file %s, line %d: %w", name, n, err)
		}
	}
	if err := sc.Err(); err != nil {
		return fmt.Errorf("file %s: %w", name, err)
	}
	return nil
}
