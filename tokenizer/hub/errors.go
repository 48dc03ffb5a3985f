package hub

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// Errors that callers tell apart. What Fetch returns wraps one of them, the
// error of its context, or one of the file system, and says what to do.
var (
	// ErrInvalid: a name or an option cannot be used.
	ErrInvalid = errors.New("not valid")
	// ErrNotFound: the hub has no such model, revision or required file.
	ErrNotFound = errors.New("the hub does not have it")
	// ErrUnauthorized: the hub wants a token, or a token that may read the model.
	ErrUnauthorized = errors.New("the hub refuses access: set HF_TOKEN to a token that may read the model, " +
		"and accept the model's terms on its page if it has any")
	// ErrOffline: the files are not in the cache, and downloads are switched off.
	ErrOffline = errors.New("downloads are switched off (local_files_only, HF_HUB_OFFLINE)")
	// ErrUnavailable: the hub cannot be reached, or does not answer as a hub does.
	ErrUnavailable = errors.New("the hub is unreachable")
	// ErrBroken: what arrived is not what the hub announced.
	ErrBroken = errors.New("the download is broken")
	// ErrTooLarge: a file is larger than Options.MaxFile.
	ErrTooLarge = errors.New("the file is too large")
)

var (
	// errNoEntry: the commit has no such file.
	errNoEntry = errors.New("no such file")
	// errNoRepo: the hub does not tell apart what does not exist and what may
	// not be seen.
	errNoRepo = errors.New("there is no such model, or it is private and HF_TOKEN may not read it")
)

// temporaryError is one after which it makes sense to try again.
type temporaryError struct {
	error
	after string // when to: a Retry-After header, or ""
}

func (e *temporaryError) Unwrap() error { return e.error }

// unavailable is an ErrUnavailable with what happened.
func unavailable(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrUnavailable, fmt.Errorf(format, args...))
}

// advise says what to do about an error that will not go away by itself.
func advise(err error, src Source) error {
	switch {
	case errors.Is(err, ErrUnavailable):
		return fmt.Errorf("%w; check the network, HF_ENDPOINT and proxies, or fill the cache with `hf download %s`, or name a directory", err, src.Repo)
	case errors.Is(err, ErrBroken):
		return fmt.Errorf("%w; try again, it goes on from there; if it stays so, a proxy or mirror in between cuts or changes files", err)
	}
	return err
}

// clean is text from a server, fit for an error: one line, short, without the
// token.
func (c *Cache) clean(s string) string {
	if t := string(c.o.Token); t != "" {
		s = strings.ReplaceAll(s, t, "(token)")
	}
	const most = 300
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}
