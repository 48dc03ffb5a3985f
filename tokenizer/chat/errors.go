package chat

import (
	"errors"
	"fmt"

	"github.com/kvindex/kvindex/tokenizer/chat/jinja"
	"github.com/kvindex/kvindex/tokenizer/chat/pyjson"
)

// UnsupportedError says that only an engine can tell the text. Why never
// quotes what a user wrote.
type UnsupportedError struct{ Why string }

func (e *UnsupportedError) Error() string { return "only an engine can render this chat: " + e.Why }

// InvalidError says that the engine refuses the request. Why may hold what
// the template raised, and so what a user wrote: it is for the caller of the
// request, not for logs.
type InvalidError struct{ Why string }

func (e *InvalidError) Error() string { return "invalid chat request: " + e.Why }

func unsupported(format string, args ...any) error {
	return &UnsupportedError{Why: fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) error {
	return &InvalidError{Why: fmt.Sprintf(format, args...)}
}

// classify makes our errors of those of package jinja.
func classify(err error) error {
	var raised *jinja.RaisedError
	var cannot *jinja.UnsupportedError
	switch {
	case errors.As(err, &raised):
		return &InvalidError{Why: raised.Why}
	case errors.As(err, &cannot):
		return &UnsupportedError{Why: cannot.Why}
	}
	return err
}

// classifyJSON makes our errors of those of package pyjson; what is the part
// of the body that was read.
func classifyJSON(what string, err error) error {
	var syntax *pyjson.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return invalid("%s is not JSON: %v", what, err)
	case errors.Is(err, pyjson.ErrSurrogate):
		// Python takes it; the tokenizer does not.
		return invalid("%s: %v", what, err)
	case errors.Is(err, pyjson.ErrBigInt), errors.Is(err, pyjson.ErrDepth), errors.Is(err, pyjson.ErrSize):
		return unsupported("%s: %v", what, err)
	}
	return err
}
