// Package discovery finds out what there is to follow: from the engine's own
// description of itself (vLLM's GET /kv_event_sources) and from lists of
// endpoints.
package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/kvindex/kvindex/events"
)

// maxAnswer bounds what is read of an engine's answer.
const maxAnswer = 1 << 20

// DescribeError says why an engine's URL alone was not enough.
type DescribeError struct {
	URL     string
	Missing []string // what the engine did not tell, by the field names of a registration
	Tried   []string // what was asked and what came of it, a line each
	Silent  bool     // it did not answer at all
}

func (e *DescribeError) Error() string {
	return fmt.Sprintf("the engine at %s does not tell %s: %s", e.URL, strings.Join(e.Missing, ", "), strings.Join(e.Tried, "; "))
}

// errSilent marks errors of engines that cannot be reached.
var errSilent = errors.New("cannot reach the engine")

// Describe completes spec, which has a URL, by asking the engine: endpoints
// from /kv_event_sources (vLLM from 0.32 on), the model from /v1/models. What
// spec has is kept. The error is a *DescribeError if something is missing
// after that.
func Describe(ctx context.Context, c *http.Client, spec events.InstanceSpec) (events.InstanceSpec, error) {
	u, err := url.Parse(spec.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return spec, fmt.Errorf("url %q is not http://HOST:PORT", spec.URL)
	}
	spec.URL = strings.TrimRight(spec.URL, "/")
	if spec.ID == "" {
		spec.ID = u.Host
	}
	fail := &DescribeError{URL: spec.URL, Silent: true}
	missing := func(field string, err error) {
		fail.Missing = append(fail.Missing, field)
		fail.Tried = append(fail.Tried, err.Error())
		fail.Silent = fail.Silent && errors.Is(err, errSilent)
	}
	if len(spec.Streams) == 0 {
		spec.Streams, err = eventSources(ctx, c, spec.URL, u.Hostname())
		if err != nil {
			missing("endpoint", err)
		}
	}
	if spec.Model == "" {
		spec.Model, err = servedModel(ctx, c, spec.URL)
		if err != nil {
			missing("model", err)
		}
	}
	if len(fail.Missing) > 0 {
		return spec, fail
	}
	return spec, nil
}

// eventSource is one rank's entry of /kv_event_sources: the publisher's
// resolved configuration.
type eventSource struct {
	Enabled        *bool  `json:"enable_kv_cache_events"`
	Publisher      string `json:"publisher"`
	Endpoint       string `json:"endpoint"`
	ReplayEndpoint string `json:"replay_endpoint"`
}

func eventSources(ctx context.Context, c *http.Client, base, host string) ([]events.StreamSpec, error) {
	var byRank map[string]eventSource
	if err := get(ctx, c, base+"/kv_event_sources", &byRank); err != nil {
		return nil, err
	}
	var streams []events.StreamSpec
	for key, src := range byRank {
		rank, err := strconv.Atoi(key)
		if err != nil || rank < 0 {
			return nil, fmt.Errorf("/kv_event_sources: %q is not a dp_rank", key)
		}
		if src.Enabled != nil && !*src.Enabled || src.Publisher != "zmq" {
			return nil, fmt.Errorf("/kv_event_sources: dp_rank %d has publisher %q: start the engine with --kv-events-config '{\"enable_kv_cache_events\":true,\"publisher\":\"zmq\",...}'", rank, src.Publisher)
		}
		st := events.StreamSpec{Rank: rank}
		if st.Endpoint, err = Dialable(src.Endpoint, host); err != nil {
			return nil, fmt.Errorf("/kv_event_sources: dp_rank %d: endpoint: %w", rank, err)
		}
		if src.ReplayEndpoint != "" {
			if st.ReplayEndpoint, err = Dialable(src.ReplayEndpoint, host); err != nil {
				return nil, fmt.Errorf("/kv_event_sources: dp_rank %d: replay_endpoint: %w", rank, err)
			}
		}
		streams = append(streams, st)
	}
	if len(streams) == 0 {
		return nil, errors.New("/kv_event_sources lists no rank: are KV events enabled?")
	}
	slices.SortFunc(streams, func(a, b events.StreamSpec) int { return a.Rank - b.Rank })
	return streams, nil
}

// Dialable turns the address that an engine binds (tcp://*:5557) into the one
// that it is reached at.
func Dialable(bind, host string) (string, error) {
	rest, ok := strings.CutPrefix(bind, "tcp://")
	if !ok {
		return "", fmt.Errorf("%q is not tcp: kvindex cannot dial it", bind)
	}
	h, port, err := net.SplitHostPort(rest)
	if err != nil {
		return "", fmt.Errorf("%q is not tcp://HOST:PORT", bind)
	}
	if port == "0" {
		return "", fmt.Errorf("%q names no port", bind)
	}
	switch h {
	case "*", "0.0.0.0", "::", "":
		h = host
	}
	return "tcp://" + net.JoinHostPort(h, port), nil
}

func servedModel(ctx context.Context, c *http.Client, base string) (string, error) {
	models, err := baseModels(ctx, c, base)
	if err != nil {
		return "", err
	}
	return models[0], nil
}

// baseModels are the names that the engine has for its model, at least one.
func baseModels(ctx context.Context, c *http.Client, base string) ([]string, error) {
	var list struct {
		Data []struct {
			ID     string  `json:"id"`
			Parent *string `json:"parent"` // set for LoRA adapters
		} `json:"data"`
	}
	if err := get(ctx, c, base+"/v1/models", &list); err != nil {
		return nil, err
	}
	var models []string
	for _, m := range list.Data {
		if m.ID != "" && m.Parent == nil {
			models = append(models, m.ID)
		}
	}
	if len(models) == 0 {
		return nil, errors.New("/v1/models lists no base model")
	}
	return models, nil
}

func get(ctx context.Context, c *http.Client, u string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return fmt.Errorf("%w: %w", errSilent, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", u, resp.Status)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(into); err != nil {
		return fmt.Errorf("GET %s: not the JSON that was expected: %w", u, err)
	}
	return nil
}

// Ranks expands one pair of endpoints to n data-parallel ranks the way engines
// do: the port rises by one a rank.
func Ranks(endpoint, replay string, n int) ([]events.StreamSpec, error) {
	out := make([]events.StreamSpec, 0, n)
	for r := range n {
		e, err := offsetPort(endpoint, r)
		if err != nil {
			return nil, fmt.Errorf("endpoint: %w", err)
		}
		st := events.StreamSpec{Rank: r, Endpoint: e}
		if replay != "" {
			if st.ReplayEndpoint, err = offsetPort(replay, r); err != nil {
				return nil, fmt.Errorf("replay_endpoint: %w", err)
			}
		}
		for _, other := range out {
			if other.Endpoint == st.ReplayEndpoint || other.ReplayEndpoint == st.Endpoint {
				return nil, fmt.Errorf("dp_rank %d: %s is both an event and a replay port: engines add the rank to both, so keep them at least %d apart", r, st.Endpoint, n)
			}
		}
		out = append(out, st)
	}
	return out, nil
}

func offsetPort(endpoint string, by int) (string, error) {
	if by == 0 {
		return endpoint, nil
	}
	i := strings.LastIndexByte(endpoint, ':')
	port, err := strconv.Atoi(endpoint[i+1:])
	if err != nil || !strings.HasPrefix(endpoint, "tcp://") || port+by > 65535 {
		return "", fmt.Errorf("%q: cannot add dp_rank %d to its port", endpoint, by)
	}
	return endpoint[:i+1] + strconv.Itoa(port+by), nil
}
