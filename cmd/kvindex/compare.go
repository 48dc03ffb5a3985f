package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kvindex/kvindex/events/enginesim"
)

// comparison plays a recording against a running kvindex and asks it, at the
// moments when the requests were sent to the engines, what they would reuse.
type comparison struct {
	base   string // URL of kvindex
	rec    *enginesim.Recording
	player *enginesim.Player
	row    func(comparedRow)

	model     string
	sglang    bool              // the recording is of SGLang
	expected  map[string]uint64 // pod -> seq of the last batch that was played
	process   map[string]int    // pod -> which incarnation that batch is of, at least
	lastQuery []byte
	latencies []time.Duration

	chats         bool // ask with the bodies of chats too
	chatsAsked    int
	chatsEqual    int // that found the same as the token ids
	chatLatencies []time.Duration

	// what the recording's content explains; see learn
	learnt, namespaces, hybrid, saltNamed bool

	compared, equal, unexplained int
	classes                      map[string]int
}

// comparedRow is one request.
type comparedRow struct {
	ID           string         `json:"id"`
	Scenario     string         `json:"scenario,omitempty"`
	Pod          string         `json:"pod"` // that got the request
	PromptTokens int            `json:"prompt_tokens"`
	Predicted    map[string]int `json:"predicted"` // reusable tokens by instance
	Cached       int            `json:"cached_tokens"`
	Equal        bool           `json:"equal"`
	Class        string         `json:"class,omitempty"` // of the difference
	Why          string         `json:"why,omitempty"`
	State        string         `json:"state"` // of the answer
	Reason       string         `json:"reason,omitempty"`
}

// Classes of differences that a recording explains.
const (
	classCleared   = "cleared"   // the engine had cleared its cache; the event came with its next batch
	classRestarted = "restarted" // the engine had restarted and published nothing yet
	classInFlight  = "in_flight" // the prefix was being computed for another request
	classNoCache   = "no_cache"  // the request reads no cache
	classNamespace = "namespace" // blocks of a namespace that events do not name
	classHybrid    = "hybrid"    // another attention group of the model had lost its part of the prefix
	classSalt      = "salt"      // the engine's events do not name salts
	classUnchained = "unchained" // the engine's hashes name no prefix, and kvindex says so
	classUnknown   = "unexplained"
)

// summary is the last line of the JSON output.
type summary struct {
	Compared    int            `json:"compared"`
	Equal       int            `json:"equal"`
	Unexplained int            `json:"unexplained"`
	Classes     map[string]int `json:"classes"`
}

func (c *comparison) summary() summary {
	return summary{c.compared, c.equal, c.unexplained, c.classes}
}

func median(times []time.Duration) time.Duration {
	if len(times) == 0 {
		return 0
	}
	l := slices.Clone(times)
	slices.Sort(l)
	return l[len(l)/2]
}

// run plays every step.
func (c *comparison) run(ctx context.Context) error {
	c.model = recordedModel(c.rec)
	var meta struct {
		Engine string `json:"engine"`
	}
	_ = json.Unmarshal(c.rec.Meta, &meta) // recordings without one are of vLLM
	c.sglang = meta.Engine == "sglang"
	c.expected, c.process, c.classes = map[string]uint64{}, map[string]int{}, map[string]int{}
	if err := c.register(ctx); err != nil {
		return err
	}
	for i, step := range c.rec.Steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		switch s := step.(type) {
		case enginesim.Publish:
			if err := c.player.Play(s); err != nil {
				return err
			}
			c.expected[s.Pod] = s.Seq
		case enginesim.Restart:
			if err := c.restart(ctx, s); err != nil {
				return err
			}
		case enginesim.Ask:
			if err := c.ask(ctx, i, s); err != nil {
				return fmt.Errorf("request %s: %w", s.ID, err)
			}
		}
	}
	return c.caughtUp(ctx)
}

// recordedModel is what the pods serve: the end of the topic kv@pod@model if
// requests ask for that, else what most of them ask for.
func recordedModel(rec *enginesim.Recording) string {
	asked := map[string]int{}
	topic := ""
	for _, s := range rec.Steps {
		switch s := s.(type) {
		case enginesim.Publish:
			if parts := strings.SplitN(s.Topic, "@", 3); topic == "" && len(parts) == 3 {
				topic = parts[2]
			}
		case enginesim.Ask:
			if m := requestOf(s).Model; m != "" {
				asked[m]++
			}
		}
	}
	best := topic
	for m, n := range asked {
		if asked[topic] == 0 && n > asked[best] {
			best = m
		}
	}
	if best == "" {
		return "tiny"
	}
	return best
}

// recordedRequest is what the comparison reads of a recorded request.
type recordedRequest struct {
	Model    string `json:"model"`
	Logprobs *int   `json:"prompt_logprobs"`
	N        int    `json:"n"`
}

func requestOf(a enginesim.Ask) recordedRequest {
	var r recordedRequest
	_ = json.Unmarshal(a.Body, &r) // a request without a JSON body asks for nothing
	return r
}

// register makes kvindex follow the fake pods, as pods or operators do it.
func (c *comparison) register(ctx context.Context) error {
	for _, s := range c.player.Streams() {
		err := c.post(ctx, "/register", map[string]any{
			"instance_id": s.Instance, "model": c.model, "dp_rank": s.Rank,
			"endpoint": s.Endpoint(), "replay_endpoint": s.ReplayEndpoint(),
		}, nil)
		if err != nil {
			return err
		}
	}
	return c.subscribed(ctx)
}

// subscribed waits until kvindex listens to every pod: without a replay socket
// what is published before that is lost, as in life.
func (c *comparison) subscribed(ctx context.Context) error {
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := c.player.WaitSubscribers(wait); err != nil {
		return fmt.Errorf("kvindex does not subscribe to every pod: %w", err)
	}
	return c.caughtUp(ctx)
}

// patience is how long kvindex may take to catch up with what was played.
const patience = 30 * time.Second

// restart ends one process of a pod and begins the next, and waits until
// kvindex has noticed. (It notices although the new process has published
// nothing: its replay no longer has the last batch of the old one.)
func (c *comparison) restart(ctx context.Context, s enginesim.Restart) error {
	before, err := c.stream(ctx, s.Pod)
	if err != nil {
		return err
	}
	if _, played := c.expected[s.Pod]; played {
		c.process[s.Pod] = before.Incarnations + 1
		delete(c.expected, s.Pod)
	}
	if err := c.player.Play(s); err != nil {
		return err
	}
	err = c.await(ctx, func() (string, error) {
		now, err := c.stream(ctx, s.Pod)
		if err != nil || now.Reconnects > before.Reconnects && now.settled() {
			return "", err
		}
		return fmt.Sprintf("%s is %s after a restart", s.Pod, now.State), nil
	})
	if err != nil {
		return err
	}
	return c.subscribed(ctx)
}

// streamView is what the comparison reads of /v1/instances/{id}.
type streamView struct {
	Rank       int     `json:"dp_rank"`
	State      string  `json:"state"`
	Reason     string  `json:"reason"`
	LastSeq    *uint64 `json:"last_seq"`
	Reconnects int     `json:"reconnects"`
	// Incarnations is how many processes of the engine have been seen.
	Incarnations int `json:"incarnations"`
}

func (s streamView) settled() bool { return s.State == "live" || s.State == "degraded" }

func (c *comparison) stream(ctx context.Context, pod string) (streamView, error) {
	info, ok := c.rec.Stream(pod)
	if !ok {
		return streamView{}, fmt.Errorf("the recording has no stream %s", pod)
	}
	var inst struct {
		Streams []streamView `json:"streams"`
	}
	if err := c.get(ctx, "/v1/instances/"+url.PathEscape(info.Instance), &inst); err != nil {
		return streamView{}, err
	}
	for _, s := range inst.Streams {
		if s.Rank == info.Rank {
			return s, nil
		}
	}
	return streamView{}, fmt.Errorf("kvindex does not follow dp_rank %d of %s", info.Rank, info.Instance)
}

// caughtUp waits until kvindex has applied everything that was played.
func (c *comparison) caughtUp(ctx context.Context) error {
	for _, info := range c.rec.Streams {
		err := c.await(ctx, func() (string, error) {
			s, err := c.stream(ctx, info.Pod)
			if err != nil {
				return "", err
			}
			seq, played := c.expected[info.Pod]
			if s.settled() && (!played || s.LastSeq != nil && *s.LastSeq == seq && s.Incarnations >= c.process[info.Pod]) {
				return "", nil
			}
			return fmt.Sprintf("%s is %s (%s); its last batch is number %d", info.Pod, s.State, s.Reason, seq), nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// await polls a condition that states what it waits for.
func (c *comparison) await(ctx context.Context, check func() (waiting string, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		waiting, err := check()
		if err != nil || waiting == "" {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.New("kvindex does not catch up: " + waiting)
		case <-time.After(time.Millisecond):
		}
	}
}

// queryAnswer is what the comparison reads of an answer.
type queryAnswer struct {
	State        string                    `json:"state"`
	PromptTokens int                       `json:"prompt_tokens"`
	Instances    map[string]instanceAnswer `json:"instances"`
}

type instanceAnswer struct {
	Reason   string         `json:"reason"`
	Reusable int            `json:"reusable_tokens"`
	GPU      int            `json:"gpu"`
	DP       map[string]int `json:"dp"`
}

// predicted is what is to equal a's cached tokens. SGLang's log has the match
// of the whole prompt, by rank; vLLM's what the request can reuse of it.
func (c *comparison) predicted(a enginesim.Ask, in instanceAnswer) int {
	if !c.sglang {
		return in.Reusable
	}
	if len(in.DP) > 1 {
		return in.DP[strconv.Itoa(a.Rank)]
	}
	return in.GPU
}

func (c *comparison) ask(ctx context.Context, i int, a enginesim.Ask) error {
	if !a.HasCached || a.PromptTokens == nil || a.Rank < 0 || a.Status != 0 && a.Status != http.StatusOK {
		return nil // not a prompt, or not one that the log answers for
	}
	if a.ExtraKey != "" {
		return nil // of a namespace that only SGLang knows: nobody can ask for it
	}
	if err := c.caughtUp(ctx); err != nil {
		return err
	}
	req := map[string]any{"model": c.model, "token_ids": a.PromptTokens}
	if m := requestOf(a).Model; m != "" {
		req["model"] = m
	}
	if a.Salt != "" {
		req["cache_salt"] = a.Salt
	}
	begin := time.Now()
	var ans queryAnswer
	if err := c.post(ctx, "/v1/query", req, &ans); err != nil {
		return err
	}
	c.latencies = append(c.latencies, time.Since(begin))
	if c.chats {
		if err := c.askWithBody(ctx, a, ans); err != nil {
			return err
		}
	}
	row := comparedRow{
		ID: a.ID, Scenario: a.Scenario, Pod: a.Pod, PromptTokens: len(a.PromptTokens), Predicted: map[string]int{},
		Cached: a.CachedTokens, State: ans.State, Reason: ans.Instances[a.Instance].Reason,
	}
	for id, in := range ans.Instances {
		row.Predicted[id] = in.Reusable
		if id == a.Instance {
			row.Predicted[id] = c.predicted(a, in)
		}
	}
	row.Equal = row.Predicted[a.Instance] == row.Cached
	c.count(i, a, &row)
	c.row(row)
	return nil
}

// askWithBody asks with the request as the engine got it, and compares with
// what its token ids found.
func (c *comparison) askWithBody(ctx context.Context, a enginesim.Ask, want queryAnswer) error {
	begin := time.Now()
	var got queryAnswer
	if err := c.post(ctx, "/v1/query", a.Body, &got); err != nil {
		return err
	}
	c.chatLatencies = append(c.chatLatencies, time.Since(begin))
	c.chatsAsked++
	if got.PromptTokens == len(a.PromptTokens) && got.State == want.State && got.Instances[a.Instance].Reusable == want.Instances[a.Instance].Reusable {
		c.chatsEqual++
	}
	return nil
}

func (c *comparison) count(i int, a enginesim.Ask, row *comparedRow) {
	c.compared++
	if row.Equal {
		c.equal++
		return
	}
	row.Class, row.Why = c.explain(i, a, row)
	c.classes[row.Class]++
	if row.Class == classUnknown {
		c.unexplained++
	}
}

func (c *comparison) post(ctx context.Context, path string, body, into any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	if path == "/v1/query" {
		c.lastQuery = b
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, bytes.NewReader(b))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	return c.do(req, into)
}

func (c *comparison) get(ctx context.Context, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, http.NoBody)
	if err != nil {
		return err
	}
	return c.do(req, into)
}

func (c *comparison) do(req *http.Request, into any) error {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("cannot ask kvindex: %w", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("cannot read the answer of kvindex: %w", err)
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s: %s", req.Method, req.URL.Path, resp.Status, b)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%s %s: %w", req.Method, req.URL.Path, err)
	}
	return nil
}
