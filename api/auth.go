package api

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// tokenMaxAge is how long a token file is trusted before it is read again.
const tokenMaxAge = time.Second

// auth decides who may do what.
type auth struct {
	token, admin *tokenFile // nil: not configured
	origin       *http.CrossOriginProtection
}

func newAuth(token, admin string, log *slog.Logger) (a auth, err error) {
	a.origin = http.NewCrossOriginProtection()
	if token != "" {
		if a.token, err = openTokenFile(token, log); err != nil {
			return a, err
		}
	}
	if admin != "" {
		if a.admin, err = openTokenFile(admin, log); err != nil {
			return a, err
		}
	}
	return a, nil
}

// allow returns nil if the sender of r may use routes of this access.
func (a *auth) allow(r *http.Request, need access) error {
	if need == accessOpen {
		return nil
	}
	// A page in a browser beside kvindex must not be able to command it.
	if a.origin.Check(r) != nil {
		return &Error{http.StatusForbidden, codeForbidden, "the request comes from a page of another origin", ""}
	}
	presented, given := bearer(r)
	isAdmin := given && a.admin != nil && a.admin.matches(presented)
	if a.token != nil && !isAdmin && (!given || !a.token.matches(presented)) {
		return unauthorized(given)
	}
	switch {
	case need != accessAdmin || isAdmin:
		return nil
	case a.admin != nil && given:
		return &Error{http.StatusForbidden, codeForbidden, "this route needs the admin token", ""}
	case a.admin != nil:
		return unauthorized(false)
	case !isLoopback(r.RemoteAddr):
		return &Error{http.StatusForbidden, codeForbidden,
			"without an admin token this route is for loopback peers only", ""}
	}
	return nil
}

func unauthorized(given bool) error {
	reason := "the header Authorization: Bearer TOKEN is missing"
	if given {
		reason = "the bearer token is not the right one"
	}
	return &Error{http.StatusUnauthorized, codeUnauthorized, reason, ""}
}

// bearer returns the bearer token of r.
func bearer(r *http.Request) (token string, ok bool) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	return strings.TrimSpace(token), true
}

// isLoopback reports whether the peer at addr ("host:port") is this machine.
func isLoopback(addr string) bool {
	ap, err := netip.ParseAddrPort(addr)
	return err == nil && ap.Addr().Unmap().IsLoopback()
}

// tokenFile is a secret in a file that may change while we run. What is kept
// is its hash, so that comparing takes the same time for every guess.
type tokenFile struct {
	path string
	log  *slog.Logger
	sum  atomic.Pointer[[sha256.Size]byte]
	read atomic.Int64 // monotonic nanoseconds of the last reading
	base time.Time
	bad  atomic.Bool // the last reading failed, and was logged
}

func openTokenFile(path string, log *slog.Logger) (*tokenFile, error) {
	t := &tokenFile{path: path, log: log, base: time.Now()}
	sum, err := readToken(path)
	if err != nil {
		return nil, err
	}
	t.sum.Store(sum)
	return t, nil
}

func readToken(path string) (*[sha256.Size]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the token file: %w", err)
	}
	b = bytes.TrimSpace(b)
	if len(b) == 0 {
		return nil, fmt.Errorf("the token file %q is empty", path)
	}
	sum := sha256.Sum256(b)
	return &sum, nil
}

// matches compares a token with the file's, reading the file again if the
// last time is too long ago. A file that cannot be read leaves the last good
// token in force.
func (t *tokenFile) matches(token string) bool {
	now := int64(time.Since(t.base))
	if last := t.read.Load(); now-last >= int64(tokenMaxAge) && t.read.CompareAndSwap(last, now) {
		if sum, err := readToken(t.path); err == nil {
			t.sum.Store(sum)
			t.bad.Store(false)
		} else if !t.bad.Swap(true) {
			t.log.Warn("the token file cannot be read again: the last token stays in force", "error", err.Error())
		}
	}
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], t.sum.Load()[:]) == 1
}
