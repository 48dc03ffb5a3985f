package natssource

import (
	"net/url"
	"os"
	"strings"

	"github.com/nats-io/nats.go"
)

// tokenFrom reads the token anew for every connection, so that it can change.
func tokenFrom(file string) nats.AuthTokenHandler {
	return func() string {
		text, err := os.ReadFile(file)
		if err != nil {
			return "" // the server refuses, and says so
		}
		return strings.TrimSpace(string(text))
	}
}

// redact leaves passwords out of a list of URLs.
func redact(list string) string {
	parts := strings.Split(list, ",")
	for i, p := range parts {
		if u, err := url.Parse(strings.TrimSpace(p)); err == nil {
			parts[i] = u.Redacted()
		} else {
			parts[i] = "..."
		}
	}
	return strings.Join(parts, ",")
}
