package jinja

import "fmt"

// UnsupportedError says that this package cannot tell what the template gives.
type UnsupportedError struct{ Why string }

func (e *UnsupportedError) Error() string { return "cannot render as the engine does: " + e.Why }

// RaisedError is an error that rendering gives in Python too: an engine
// answers 400 with it.
type RaisedError struct{ Why string }

func (e *RaisedError) Error() string { return e.Why }

func unsupported(format string, args ...any) error {
	return &UnsupportedError{Why: fmt.Sprintf(format, args...)}
}

func raised(format string, args ...any) error {
	return &RaisedError{Why: fmt.Sprintf(format, args...)}
}
