package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	userAgent    = "kvindex"
	maxRedirects = 10
)

// errSilent ends a request whose server sends nothing any more.
var errSilent = errors.New("it sent nothing for too long")

// meta is what the hub says of a file.
type meta struct {
	commit string // X-Repo-Commit
	etag   string // the checksum that names the blob
	size   int64  // -1 if it is not known
}

// resolveURL is the hub's route to a file, as huggingface_hub builds it
// (hf_hub_url).
func (c *Cache) resolveURL(repo, revision, file string) string {
	parts := strings.Split(file, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return c.o.Endpoint + "/" + repo + "/resolve/" + url.PathEscape(revision) + "/" + strings.Join(parts, "/")
}

// head asks what a file of a revision is. errNoEntry: the revision has no such
// file; meta.commit may be known all the same.
func (c *Cache) head(ctx context.Context, repo, revision, file string) (meta, error) {
	var m meta
	resp, err := c.follow(ctx, http.MethodHead, c.resolveURL(repo, revision, file), nil, m.read)
	if err != nil {
		return m, err
	}
	defer resp.Body.Close()
	if err := c.statusError(resp); err != nil {
		return m, err
	}
	if !commitHash.MatchString(m.commit) {
		return m, unavailable("%s does not answer as a hub does (its answer has no commit): is HF_ENDPOINT right, is a proxy or firewall in between?", c.host)
	}
	if !blobName.MatchString(m.etag) {
		return m, unavailable("%s gives no checksum (ETag) of %s", c.host, file)
	}
	return m, nil
}

// read takes what a response says, and reports whether that is all there is to
// know without following it to another host.
func (m *meta) read(resp *http.Response) (known bool) {
	h := resp.Header
	m.commit = firstOf(h.Get("X-Repo-Commit"), m.commit)
	m.etag = strings.Trim(strings.TrimPrefix(firstOf(h.Get("X-Linked-Etag"), h.Get("ETag")), "W/"), `"`)
	m.size = -1
	if n, err := strconv.ParseInt(h.Get("X-Linked-Size"), 10, 64); err == nil {
		m.size = n
	} else if !isRedirect(resp) {
		m.size = resp.ContentLength
	}
	return m.commit != "" && m.etag != ""
}

// follow makes a request and follows redirects: those within a host always,
// and those to another host unless known says that the answer is enough. The
// token goes to the endpoint only.
func (c *Cache) follow(
	ctx context.Context, method, address string, header http.Header, known func(*http.Response) bool,
) (*http.Response, error) {
	at, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("cannot ask the hub: %w", err)
	}
	for range maxRedirects {
		resp, err := c.once(ctx, method, at, header)
		if err != nil {
			return nil, err
		}
		enough := known(resp)
		if !isRedirect(resp) {
			return resp, nil
		}
		next, err := at.Parse(resp.Header.Get("Location"))
		if err != nil {
			resp.Body.Close()
			return nil, unavailable("%s redirects to what is no URL", at.Host)
		}
		if enough && origin(next) != origin(at) {
			return resp, nil
		}
		resp.Body.Close()
		if (next.Scheme != "https" && next.Scheme != "http") || (at.Scheme == "https" && next.Scheme == "http") {
			return nil, unavailable("%s redirects from %s to %s, which is not followed", at.Host, at.Scheme, c.clean(next.Scheme))
		}
		at = next
	}
	return nil, unavailable("%s redirects more than %d times", c.host, maxRedirects)
}

// once makes one request.
func (c *Cache) once(ctx context.Context, method string, at *url.URL, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, at.String(), http.NoBody)
	if err != nil {
		return nil, unavailable("%s cannot be asked", at.Host)
	}
	for k, v := range header {
		req.Header[k] = v
	}
	req.Header.Set("User-Agent", userAgent)
	req.Header.Set("Accept-Encoding", "identity") // sizes and ranges are those of the file
	if c.o.Token != "" && origin(at) == c.origin {
		req.Header.Set("Authorization", "Bearer "+string(c.o.Token))
	}
	watched, quiet := c.watch(ctx)
	resp, err := c.client.Do(req.WithContext(watched))
	if err != nil {
		quiet.end()
		return nil, c.transportError(ctx, at, quiet.reason(err))
	}
	resp.Body = &watchedBody{ReadCloser: resp.Body, watch: quiet}
	quiet.heard()
	return resp, nil
}

// transportError says what happened to a request. The client's own error has
// the URL, which may be signed.
func (c *Cache) transportError(ctx context.Context, at *url.URL, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("cannot ask %s: %w", at.Host, ctx.Err())
	}
	if e := (*url.Error)(nil); errors.As(err, &e) {
		err = e.Err
	}
	return &temporaryError{error: unavailable("%s: %s", at.Host, c.clean(err.Error()))}
}

// statusError is nil for an answer that is one, or a redirect at which follow
// stopped.
func (c *Cache) statusError(resp *http.Response) error {
	code, message := resp.Header.Get("X-Error-Code"), c.clean(resp.Header.Get("X-Error-Message"))
	said := fmt.Sprintf("%s answered %d", resp.Request.URL.Host, resp.StatusCode)
	if code != "" || message != "" {
		said += fmt.Sprintf(" (%s)", strings.Trim(c.clean(code)+": "+message, ": "))
	}
	switch status := resp.StatusCode; {
	case status < 400:
		return nil
	case code == "EntryNotFound":
		return errNoEntry
	case code == "RevisionNotFound":
		return fmt.Errorf("%w: there is no such revision: %s", ErrNotFound, said)
	case code == "GatedRepo":
		return fmt.Errorf("%w: %s", ErrUnauthorized, said)
	case code == "RepoNotFound":
		return fmt.Errorf("%w: %w: %s", ErrNotFound, errNoRepo, said)
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return fmt.Errorf("%w: %s", ErrUnauthorized, said)
	case status == http.StatusNotFound:
		return errNoEntry
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests, status >= 500:
		after := firstOf(resp.Header.Get("Retry-After"), rateLimitReset(resp.Header.Get("RateLimit")))
		if after != "" {
			said += ", try again after " + c.clean(after)
		}
		return &temporaryError{error: unavailable("%s", said), after: after}
	default:
		return unavailable("%s", said)
	}
}

func isRedirect(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return resp.Header.Get("Location") != ""
	}
	return false
}

// origin is a URL's scheme, host and port.
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}

// watch cancels a request whose server is silent for too long.
type watch struct {
	timer   *time.Timer
	cancel  context.CancelFunc
	silence time.Duration
	fired   atomic.Bool
}

func (c *Cache) watch(ctx context.Context) (context.Context, *watch) {
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{cancel: cancel, silence: c.o.Silence}
	w.timer = time.AfterFunc(w.silence, func() {
		w.fired.Store(true)
		cancel()
	})
	return ctx, w
}

func (w *watch) heard() { w.timer.Reset(w.silence) }

func (w *watch) end() {
	w.timer.Stop()
	w.cancel()
}

// reason is err, or errSilent if that is why there was an error.
func (w *watch) reason(err error) error {
	if w.fired.Load() {
		return errSilent
	}
	return err
}

// watchedBody is a response's body under watch.
type watchedBody struct {
	io.ReadCloser
	watch *watch
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.watch.heard()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.watch.reason(err)
	}
	return n, err
}

// Close ends the request.
func (b *watchedBody) Close() error {
	b.watch.end()
	return b.ReadCloser.Close()
}
