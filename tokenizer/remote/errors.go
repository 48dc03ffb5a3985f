package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/kvindex/kvindex/tokenizer"
)

// What Tokens and TokensFrom answer in place of tokens, to be told apart by
// errors.Is. Beside these there are the errors of the caller's context.
var (
	// ErrNoTarget: no instance of the model has a URL.
	ErrNoTarget = errors.New("no engine of the model has a URL")
	// ErrSaturated: the engines, or this client, have too much to do.
	ErrSaturated = errors.New("the engines of the model are saturated")
	// ErrUnavailable: a connection failed, the engine answered 5xx or not in
	// time, or it did so before and is left alone for a while.
	ErrUnavailable = errors.New("the engine cannot be asked")
	// ErrRefused: the engine answered that the request is wrong (4xx).
	ErrRefused = errors.New("the engine refuses the request")
	// ErrUnsupported: the engine cannot tell what the request's blocks are
	// computed from. The error is a *tokenizer.UnknownError too.
	ErrUnsupported = errors.New("tokens cannot be told")
	// ErrAnswer: the engine's answer is not of the shape that is expected.
	ErrAnswer = errors.New("the engine's answer cannot be used")
	// ErrBody: the request's body is not a JSON object.
	ErrBody = errors.New("the body is not a JSON object")
	// ErrClosed: the client is closed.
	ErrClosed = errors.New("the client is closed")
)

// Causes within the package.
var (
	// errTimeout ends a call that used up Options.Timeout.
	errTimeout = errors.New("no answer in time")
	// errNoRoute is an answer that the engine does not have what was asked.
	errNoRoute = errors.New("the engine has no such endpoint")
	// errElsewhere marks errors with which another engine may do better.
	errElsewhere = errors.New("this engine")
)

// elsewhereError is an error with which another engine may do better.
type elsewhereError struct{ error }

func (e elsewhereError) Unwrap() []error { return []error{e.error, errElsewhere} }

func unsupported(reason string) error {
	return fmt.Errorf("%w: %w", ErrUnsupported, &tokenizer.UnknownError{Reason: reason})
}

// exchangeError says why the HTTP exchange with a target failed. Errors whose
// texts may quote what was sent or received are not passed on.
func exchangeError(ctx context.Context, t Target, err error) error {
	if ctx.Err() != nil {
		if cause := context.Cause(ctx); !errors.Is(cause, errTimeout) {
			return fmt.Errorf("cannot ask %q: %w", t.ID, cause)
		}
		err = errTimeout
	}
	return elsewhereError{fmt.Errorf("%w: %q: %s", ErrUnavailable, t.ID, transportReason(err))}
}

func transportReason(err error) string {
	var (
		op   *net.OpError
		name *net.DNSError
		cert *tls.CertificateVerificationError
		wait net.Error
	)
	switch {
	case errors.Is(err, errTimeout), errors.As(err, &wait) && wait.Timeout():
		return errTimeout.Error()
	case errors.As(err, &cert):
		return cert.Error()
	case errors.As(err, &name):
		return name.Error()
	case errors.As(err, &op):
		return op.Error()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection was closed"
	}
	return "it does not speak HTTP as expected"
}
