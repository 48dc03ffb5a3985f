package api

import (
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"net/http"
)

// Error is an answer that tells the caller what to fix. Its JSON is the body
// of every response with a status of 400 or more.
type Error struct {
	Status int    `json:"-"`
	Code   string `json:"error"`          // a stable word for programs
	Reason string `json:"reason"`         // a sentence for people, with values
	Field  string `json:"field,omitzero"` // the request field meant, such as "token_ids[17]"
}

// Error is the code and the reason.
func (e *Error) Error() string { return e.Code + ": " + e.Reason }

// The codes of errors. A code belongs to one status.
const (
	codeMalformed      = "malformed_json"       // 400: the body is not JSON, or not an object
	codeInvalid        = "invalid_value"        // 400: a field has a value it cannot have
	codeMissing        = "missing_field"        // 400: a required field is absent
	codeUnknownField   = "unknown_field"        // 400: only with ?strict=1
	codeUnauthorized   = "unauthorized"         // 401
	codeForbidden      = "forbidden"            // 403
	codeNotFound       = "not_found"            // 404
	codeMethod         = "method_not_allowed"   // 405
	codeConflict       = "conflict"             // 409
	codeTooLarge       = "too_large"            // 413
	codeEncoding       = "unsupported_encoding" // 415
	codeContradictory  = "contradictory_fields" // 422
	codeIncomplete     = "incomplete"           // 422
	codeUnreachable    = "unreachable"          // 422
	codeUnprocessable  = "unprocessable"        // 422: well formed and yet unusable
	codeBusy           = "busy"                 // 429
	codeInternal       = "internal"             // 500
	codeUnavailable    = "unavailable"          // 503: nobody can tell now
	codeRequestAborted = "request_aborted"      // 408: the caller went away or was too slow
)

func invalid(field, format string, args ...any) *Error {
	return &Error{http.StatusBadRequest, codeInvalid, fmt.Sprintf(format, args...), field}
}

func missing(field, format string, args ...any) *Error {
	return &Error{http.StatusBadRequest, codeMissing, fmt.Sprintf(format, args...), field}
}

func contradictory(field, format string, args ...any) *Error {
	return &Error{http.StatusUnprocessableEntity, codeContradictory, fmt.Sprintf(format, args...), field}
}

func notFound(format string, args ...any) *Error {
	return &Error{http.StatusNotFound, codeNotFound, fmt.Sprintf(format, args...), ""}
}

func tooLarge(field, format string, args ...any) *Error {
	return &Error{http.StatusRequestEntityTooLarge, codeTooLarge, fmt.Sprintf(format, args...), field}
}

func unavailable(format string, args ...any) *Error {
	return &Error{http.StatusServiceUnavailable, codeUnavailable, fmt.Sprintf(format, args...), ""}
}

func malformed(offset int, what string) *Error {
	return &Error{http.StatusBadRequest, codeMalformed, fmt.Sprintf("the body is not a JSON object: %s at byte %d", what, offset), ""}
}

// toError is the one place where errors become statuses. What it does not
// know is a fault of the server, of which the caller learns no detail.
func toError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*ConflictError](err); ok {
		return &Error{http.StatusConflict, codeConflict, e.Error(), e.Field}
	}
	if e, ok := errors.AsType[*IncompleteError](err); ok {
		field := ""
		if len(e.Missing) > 0 {
			field = e.Missing[0]
		}
		return &Error{http.StatusUnprocessableEntity, codeIncomplete, e.Error(), field}
	}
	if e, ok := errors.AsType[*UnreachableError](err); ok {
		return &Error{http.StatusUnprocessableEntity, codeUnreachable, e.Error(), "url"}
	}
	if e, ok := errors.AsType[*InvalidError](err); ok {
		return &Error{http.StatusUnprocessableEntity, codeUnprocessable, e.Error(), e.Field}
	}
	if e, ok := errors.AsType[*NotYetError](err); ok {
		return unavailable("%s", e.Error())
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return &Error{http.StatusRequestTimeout, codeRequestAborted, "the request was given up before it was answered", ""}
	}
	return &Error{http.StatusInternalServerError, codeInternal, "kvindex failed to answer; its log says why", ""}
}

// body is the JSON of e.
func (e *Error) body() []byte {
	b, err := json.Marshal(e)
	if err != nil { // invalid UTF-8 in a value that was echoed
		b = []byte(`{"error":"` + e.Code + `","reason":"the value cannot be shown"}`)
	}
	return append(b, '\n')
}

// shown is s as an error or a log may show it: quoted and short. It is for
// names (of models, fields, instances), never for prompts.
func shown(s string) string {
	const most = 80
	if len(s) > most {
		s = s[:most] + "..."
	}
	return fmt.Sprintf("%q", s)
}
