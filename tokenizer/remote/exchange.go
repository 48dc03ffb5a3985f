package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// maxRefusal bounds what is read of an answer that is not 200.
const maxRefusal = 64 << 10

// The endpoints of an engine.
const (
	pathTokenize = "/tokenize"
	pathMetrics  = "/metrics"
)

var pathRender = [numKinds]string{Completion: "/v1/completions/render", Chat: "/v1/chat/completions/render"}

// result is what a request says of its target.
type result uint8

const (
	worked  result = iota
	failed         // for the breaker to count
	unclear        // the caller ended it
)

// outcome is what the end of a request says of the target. One that answers
// works, even if it refuses.
func outcome(err error) result {
	switch {
	case errors.Is(err, ErrUnavailable):
		return failed
	case errors.Is(err, ErrClosed), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return unclear
	}
	return worked
}

// askTarget asks a target by the endpoint that knows most.
func (c *Client) askTarget(ctx context.Context, u use, r *request) ([]uint32, error) {
	if r.kind.isTokenize() {
		return c.tokenize(ctx, u, r, r.renderBody(u.Model))
	}
	if c.hasRender(u.target, r.kind) {
		path := pathRender[r.kind]
		answer, err := c.post(ctx, u.Target, path, r.renderBody(u.Model))
		if err == nil {
			c.told(u.target, r.kind, path)
			return decodeRendered(answer)
		}
		if !errors.Is(err, errNoRoute) {
			return nil, err
		}
		c.lacksRender(u, r.kind)
	}
	switch {
	case r.onlyRender != "":
		return nil, elsewhereError{unsupported(fmt.Sprintf("%q has no %s, and its %s does not know %s",
			u.ID, pathRender[r.kind], pathTokenize, r.onlyRender))}
	case u.RenderOnly:
		return nil, elsewhereError{unsupported(fmt.Sprintf("%q has no %s, and its %s tells other tokens",
			u.ID, pathRender[r.kind], pathTokenize))}
	}
	return c.tokenize(ctx, u, r, r.tokenizeBody(u.Model))
}

// tokenize asks a target's /tokenize.
func (c *Client) tokenize(ctx context.Context, u use, r *request, body []byte) ([]uint32, error) {
	answer, err := c.post(ctx, u.Target, pathTokenize, body)
	if errors.Is(err, errNoRoute) {
		reason := fmt.Sprintf("%q has no %s", u.ID, pathTokenize)
		if render := pathRender[r.kind]; render != "" {
			reason = fmt.Sprintf("%q has neither %s nor %s", u.ID, render, pathTokenize)
		}
		return nil, elsewhereError{unsupported(reason)}
	}
	if err != nil {
		return nil, err
	}
	c.told(u.target, r.kind, pathTokenize)
	return decodeTokenized(answer)
}

// hasRender says whether a target's /render is to be asked for.
func (c *Client) hasRender(s *target, kind Kind) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.now().Before(s.noRender[kind])
}

// lacksRender remembers that a target has no /render, for a while: the engine
// may be replaced by a newer one.
func (c *Client) lacksRender(u use, kind Kind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u.target.noRender[kind] = c.now().Add(c.o.RecheckRender)
}

func (c *Client) told(s *target, kind Kind, path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.endpoint[kind] = path
}

// post sends a body and returns the answer to it. The error is errNoRoute, or
// one of the package's.
func (c *Client) post(ctx context.Context, t Target, path string, body []byte) ([]byte, error) {
	begin := time.Now()
	req, err := c.newRequest(ctx, http.MethodPost, t, path, body)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, exchangeError(ctx, t, err)
	}
	defer func() { _ = resp.Body.Close() }()
	limit := int64(c.o.MaxAnswerBytes)
	if resp.StatusCode != http.StatusOK {
		limit = maxRefusal
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return nil, exchangeError(ctx, t, err)
	}
	c.counters.observe(time.Since(begin))
	if resp.StatusCode != http.StatusOK {
		return nil, statusError(t, resp.StatusCode, answer)
	}
	if int64(len(answer)) > limit {
		return nil, badAnswer(fmt.Sprintf("it has more than %d bytes", limit))
	}
	return answer, nil
}

// newRequest makes a request to a path below a target's URL.
func (c *Client) newRequest(ctx context.Context, method string, t Target, path string, body []byte) (*http.Request, error) {
	u, err := url.Parse(t.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, elsewhereError{fmt.Errorf("%w: the URL of %q is not http://HOST:PORT", ErrUnavailable, t.ID)}
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(t.URL, "/")+path, bytes.NewReader(body))
	if err != nil {
		return nil, elsewhereError{fmt.Errorf("%w: the URL of %q cannot be used", ErrUnavailable, t.ID)}
	}
	for name, values := range c.o.Header {
		req.Header[name] = values
	}
	req.Header.Set("Accept", "application/json")
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
		// Nothing happens by asking twice. Without a value the header is not sent,
		// but lets the transport ask again if the engine closed an idle
		// connection just then: vLLM's server does so after 5 s.
		req.Header["Idempotency-Key"] = []string{}
	}
	return req, nil
}

// statusError is what an answer that is not 200 means. Its text may quote the
// request, and is not passed on.
func statusError(t Target, status int, answer []byte) error {
	switch {
	case status == http.StatusNotFound && modelMissing(answer):
		return fmt.Errorf("%w: %q answers %d: it does not serve the model", ErrRefused, t.ID, status)
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed, status == http.StatusNotImplemented:
		return errNoRoute
	case status == http.StatusTooManyRequests:
		return elsewhereError{fmt.Errorf("%w: %q answers %d", ErrSaturated, t.ID, status)}
	case status >= 500:
		return elsewhereError{fmt.Errorf("%w: %q answers %d", ErrUnavailable, t.ID, status)}
	case status >= 400:
		return fmt.Errorf("%w: %q answers %d", ErrRefused, t.ID, status)
	}
	return badAnswer(fmt.Sprintf("%q answers %d", t.ID, status))
}
