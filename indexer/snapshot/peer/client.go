// Package peer passes snapshots from one replica to another, over HTTP.
package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/kvindex/kvindex/indexer/snapshot"
)

// ContentType of a snapshot over HTTP: the stream that the package's
// documentation describes.
const ContentType = "application/vnd.kvindex.snapshot"

// Path is where a replica offers its snapshot.
const Path = "/v1/snapshot"

// sizeHeader says how many bytes the body will have, about: it is made while it
// is sent.
const sizeHeader = "Kvindex-Snapshot-Size"

// Options are the settings of a Client. URL is needed.
type Options struct {
	URL         string          // of the other replica, without Path
	TokenFile   string          // bearer token, read anew for each request
	Limits      snapshot.Limits // of what is read
	Timeout     time.Duration   // of the whole; 0: none
	IdleTimeout time.Duration   // without a byte; 0: 10 s

	// Transport, if set, is used in place of http.DefaultTransport, with a client
	// certificate for instance. The caller closes its idle connections.
	Transport http.RoundTripper
}

// Validate reports the first setting that cannot be used.
func (o Options) Validate() error {
	u, err := url.Parse(o.URL)
	if err != nil {
		return fmt.Errorf("cannot use a peer's URL: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("cannot use the peer's URL %q: it must be http://HOST:PORT or https://HOST:PORT", u.Redacted())
	}
	return nil
}

// Client fetches the snapshot of another replica: fresher than what is stored
// anywhere. It is safe for concurrent use.
type Client struct {
	o      Options
	client *http.Client
}

// New returns a Client. It connects to nothing yet.
func New(o Options) (*Client, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.URL = strings.TrimRight(o.URL, "/")
	if o.IdleTimeout == 0 {
		o.IdleTimeout = 10 * time.Second
	}
	if o.Transport == nil {
		o.Transport = &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, DisableCompression: true}
	}
	return &Client{o: o, client: &http.Client{Transport: o.Transport}}, nil
}

// String names the peer in logs.
func (c *Client) String() string {
	u, err := url.Parse(c.o.URL)
	if err != nil {
		return "peer"
	}
	return "peer " + u.Redacted()
}

// Open asks for the peer's snapshot. A peer has one only: with a before that is
// not zero, and if the peer says that it has none to give, it is ErrNone.
func (c *Client) Open(ctx context.Context, before snapshot.ID) (*snapshot.Reader, error) {
	if before != (snapshot.ID{}) {
		return nil, fmt.Errorf("%w before %s: %s has one only", snapshot.ErrNone, before, c)
	}
	r, err := c.open(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot get a snapshot from %s: %w", c, err)
	}
	return r, nil
}

func (c *Client) open(ctx context.Context) (*snapshot.Reader, error) {
	body, ctx := newPeerBody(ctx, c.o)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.o.URL+Path, nil)
	if err != nil {
		return nil, errors.Join(err, body.Close())
	}
	req.Header.Set("Accept", ContentType)
	if c.o.TokenFile != "" {
		token, err := os.ReadFile(c.o.TokenFile)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("cannot read the peer's token: %w", err), body.Close())
		}
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	resp, err := c.client.Do(req) //nolint:bodyclose // peerBody.Close closes it
	if err != nil {
		err = body.explain(err)
		return nil, errors.Join(err, body.Close())
	}
	body.body = resp.Body
	if err := refusal(resp); err != nil {
		return nil, errors.Join(err, body.Close())
	}
	r, err := snapshot.NewReader(body, c.o.Limits)
	if err != nil {
		body.Close() //nolint:errcheck // the other error says it
		return nil, err
	}
	if n, err := strconv.ParseInt(resp.Header.Get(sizeHeader), 10, 64); err == nil && n > 0 {
		r.Announce(n)
	}
	return r, nil
}

// refusal is nil if the answer is a snapshot.
func refusal(resp *http.Response) error {
	switch {
	case resp.StatusCode == http.StatusOK && resp.Header.Get("Content-Type") == ContentType:
		return nil
	case resp.StatusCode == http.StatusOK:
		return snapshot.Reject(snapshot.ReasonMagic, "the answer is %q and not %q", resp.Header.Get("Content-Type"), ContentType)
	case resp.StatusCode == http.StatusNotFound, resp.StatusCode == http.StatusServiceUnavailable:
		return fmt.Errorf("%w: it answers %s", snapshot.ErrNone, resp.Status)
	}
	return fmt.Errorf("it answers %s", resp.Status)
}

// peerBody is an HTTP body that may not stall.
type peerBody struct {
	body   io.ReadCloser
	idle   time.Duration
	timer  *time.Timer
	cancel context.CancelCauseFunc
	cause  func() error
}

// stallError says that a peer sent nothing for too long.
type stallError struct{ idle time.Duration }

func (e stallError) Error() string { return fmt.Sprintf("it has sent nothing for %v", e.idle) }

// Timeout makes it one for whoever asks errors.
func (stallError) Timeout() bool { return true }

func newPeerBody(ctx context.Context, o Options) (*peerBody, context.Context) {
	cancelDeadline := context.CancelFunc(func() {})
	if o.Timeout > 0 {
		ctx, cancelDeadline = context.WithTimeout(ctx, o.Timeout)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	b := &peerBody{idle: o.IdleTimeout, cause: func() error { return context.Cause(ctx) }}
	b.cancel = func(cause error) { cancel(cause); cancelDeadline() }
	b.timer = time.AfterFunc(b.idle, func() { b.cancel(stallError{b.idle}) })
	return b, ctx
}

func (b *peerBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if n > 0 {
		b.timer.Reset(b.idle)
	}
	if err != nil && err != io.EOF { //nolint:errorlint // io.EOF passes as it is
		err = b.explain(err)
	}
	return n, err
}

// explain tells a stall from other errors.
func (b *peerBody) explain(err error) error {
	if stall := (stallError{}); errors.As(b.cause(), &stall) {
		return stall
	}
	return err
}

// Close ends the request.
func (b *peerBody) Close() error {
	b.timer.Stop()
	b.cancel(nil)
	if b.body == nil {
		return nil
	}
	return b.body.Close()
}
