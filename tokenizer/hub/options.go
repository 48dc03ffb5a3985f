package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// DefaultEndpoint is the public hub.
const DefaultEndpoint = "https://huggingface.co"

// Defaults of Options.
const (
	DefaultMaxFile = 64 << 20
	DefaultSilence = 10 * time.Second
	DefaultRetries = 4
)

// requiredFile is the file without which a directory is no tokenizer.
const requiredFile = "tokenizer.json"

// DefaultFiles are the files that say how a model's text and chats become
// tokens. Only the first must exist.
func DefaultFiles() []string {
	return []string{
		requiredFile, "tokenizer_config.json", "chat_template.jinja", "chat_template.json", "special_tokens_map.json", "config.json",
	}
}

// Secret is text that formats and logs as "(set)" or "".
type Secret string

// String hides the secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "(set)"
}

// GoString hides the secret.
func (s Secret) GoString() string { return s.String() }

// LogValue hides the secret.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText hides the secret.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Options configure a Cache. The zero value is the public hub without a token,
// and the user's cache.
type Options struct {
	// Dir is the cache: the folder that holds models--Org--Name. "": where
	// HF_HUB_CACHE, HF_HOME or XDG_CACHE_HOME say, as FromEnv finds it.
	Dir string
	// Endpoint is the hub's base URL. "": DefaultEndpoint.
	Endpoint string
	// Token is sent to the endpoint as a bearer token. "": none.
	Token Secret
	// LocalOnly: only what the cache has is used, and no request made.
	LocalOnly bool
	// MaxFile is the largest file accepted, in bytes. 0: DefaultMaxFile.
	MaxFile int64
	// Silence is how long the hub may send nothing before a request counts as
	// broken. 0: DefaultSilence.
	Silence time.Duration
	// Retries is how often a request or download that broke is tried again,
	// with growing pauses. 0: DefaultRetries; negative: never.
	Retries int
	// Client makes the requests; its CheckRedirect is not used. nil: one with
	// the proxy of the environment.
	Client *http.Client
	// Logger may be nil.
	Logger *slog.Logger
	// Files are the files wanted, as paths in the repository. The first must
	// exist. nil: DefaultFiles.
	Files []string
}

// FromEnv returns o with what it leaves empty taken from the environment, as
// huggingface_hub reads it: HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME; HF_ENDPOINT;
// HF_TOKEN, or the token that `hf auth login` left (HF_TOKEN_PATH); and
// HF_HUB_OFFLINE. getenv is os.Getenv. An error is one of reading the token.
func (o Options) FromEnv(getenv func(string) string) (Options, error) {
	home := firstOf(getenv("HF_HOME"), filepath.Join(firstOf(getenv("XDG_CACHE_HOME"), "~/.cache"), "huggingface"))
	o.Dir = expand(firstOf(o.Dir, getenv("HF_HUB_CACHE"), getenv("HUGGINGFACE_HUB_CACHE"), filepath.Join(home, "hub")), getenv)
	o.Endpoint = firstOf(o.Endpoint, getenv("HF_ENDPOINT"))
	o.LocalOnly = o.LocalOnly || isTrue(firstOf(getenv("HF_HUB_OFFLINE"), getenv("TRANSFORMERS_OFFLINE")))
	if o.Token != "" {
		return o, nil
	}
	o.Token = cleanToken(firstOf(getenv("HF_TOKEN"), getenv("HUGGING_FACE_HUB_TOKEN")))
	if o.Token != "" || isTrue(getenv("HF_HUB_DISABLE_IMPLICIT_TOKEN")) {
		return o, nil
	}
	path := expand(firstOf(getenv("HF_TOKEN_PATH"), filepath.Join(home, "token")), getenv)
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return o, fmt.Errorf("cannot read the hub's token: %w", err)
	}
	o.Token = cleanToken(string(b))
	return o, nil
}

// Validate says what cannot be used. Its error wraps ErrInvalid and names the
// value.
func (o Options) Validate() error {
	if o.Endpoint != "" {
		u, err := url.Parse(o.Endpoint)
		switch {
		case err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.RawQuery != "" || u.Fragment != "":
			return fmt.Errorf("the hub's endpoint is no http or https URL such as %s: %w", DefaultEndpoint, ErrInvalid)
		case u.User != nil:
			return fmt.Errorf("the hub's endpoint has a password in it, which belongs in HF_TOKEN: %w", ErrInvalid)
		}
	}
	if strings.ContainsFunc(string(o.Token), func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("the hub's token has characters that no token has: %w", ErrInvalid)
	}
	if o.MaxFile < 0 || o.Silence < 0 {
		return fmt.Errorf("the largest file (%d) and the longest silence (%v) cannot be negative: %w", o.MaxFile, o.Silence, ErrInvalid)
	}
	for _, name := range o.Files {
		if err := validFile(name); err != nil {
			return err
		}
	}
	return nil
}

func (o *Options) setDefaults() {
	if o.Dir == "" {
		dir, _ := Options{Token: "-"}.FromEnv(os.Getenv)
		o.Dir = dir.Dir
	}
	o.Endpoint = strings.TrimRight(firstOf(o.Endpoint, DefaultEndpoint), "/")
	if o.MaxFile == 0 {
		o.MaxFile = DefaultMaxFile
	}
	o.MaxFile = min(o.MaxFile, 1<<40)
	if o.Silence == 0 {
		o.Silence = DefaultSilence
	}
	if o.Retries == 0 {
		o.Retries = DefaultRetries
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if len(o.Files) == 0 {
		o.Files = DefaultFiles()
	}
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

func isTrue(s string) bool {
	switch strings.ToUpper(s) {
	case "1", "ON", "YES", "TRUE":
		return true
	}
	return false
}

func cleanToken(s string) Secret {
	return Secret(strings.TrimSpace(strings.NewReplacer("\r", "", "\n", "").Replace(s)))
}

// expand replaces a leading ~ and variables, and leaves unknown ones alone.
func expand(path string, getenv func(string) string) string {
	if path == "~" || strings.HasPrefix(path, "~/") {
		home := getenv("HOME")
		if home == "" {
			home, _ = os.UserHomeDir()
		}
		path = home + path[1:]
	}
	return os.Expand(path, func(name string) string { return firstOf(getenv(name), "$"+name) })
}
