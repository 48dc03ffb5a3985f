package natssource

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Kinds of subjects, the second token.
const (
	eventsKind = "events" // batches, in the log
	replayKind = "replay" // requests for batches
	statusKind = "status" // what a relay says of itself
)

// HelloSubject asks every relay to say at once how far it is.
const HelloSubject = "kv.hello"

// EventSubjects matches the subjects of all batches: what the log's stream
// must capture.
const EventSubjects = "kv.events.>"

// Name says whose stream a subject is.
type Name struct {
	Model    string
	Instance string
	Rank     int
}

// Events is the subject of the stream's batches.
func (n Name) Events() string { return n.subject(eventsKind) }

// Replay is the subject on which the stream's relay answers requests.
func (n Name) Replay() string { return n.subject(replayKind) }

// Status is the subject on which the stream's relay says how far it is.
func (n Name) Status() string { return n.subject(statusKind) }

func (n Name) subject(kind string) string {
	return "kv." + kind + "." + Escape(n.Model) + "." + Escape(n.Instance) + "." + strconv.Itoa(n.Rank)
}

// ofModel matches all subjects of a kind, or those of one model.
func ofModel(kind, model string) string {
	if model == "" {
		return "kv." + kind + ".>"
	}
	return "kv." + kind + "." + Escape(model) + ".>"
}

// maxRank bounds what a subject may say.
const maxRank = 1 << 16

// ParseSubject takes a subject apart. Every name has exactly one spelling:
// any other is an error.
func ParseSubject(subject string) (kind string, n Name, err error) {
	t := strings.Split(subject, ".")
	if len(t) != 5 || t[0] != "kv" {
		return "", Name{}, fmt.Errorf("subject %q is not kv.KIND.MODEL.INSTANCE.RANK", subject)
	}
	if n.Model, err = Unescape(t[2]); err != nil {
		return "", Name{}, fmt.Errorf("subject %q: model: %w", subject, err)
	}
	if n.Instance, err = Unescape(t[3]); err != nil {
		return "", Name{}, fmt.Errorf("subject %q: instance: %w", subject, err)
	}
	if n.Rank, err = strconv.Atoi(t[4]); err != nil || n.Rank < 0 || n.Rank > maxRank || strconv.Itoa(n.Rank) != t[4] {
		return "", Name{}, fmt.Errorf("subject %q: %q is no rank", subject, t[4])
	}
	return t[1], n, nil
}

// Escape makes any text a token of a subject. Printable ASCII stands for
// itself except . * > and %; every other byte is % and two upper-case
// hexadecimal digits, and the empty text is a lone %:
//
//	Qwen/Qwen3-0.6B  ->  Qwen/Qwen3-0%2E6B
func Escape(text string) string {
	if text == "" {
		return "%"
	}
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; plain(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		}
	}
	return b.String()
}

const hexDigits = "0123456789ABCDEF"

func plain(c byte) bool {
	return c > ' ' && c < 0x7f && c != '.' && c != '*' && c != '>' && c != '%'
}

var (
	errEmptyToken = errors.New("the token is empty")
	errEscape     = errors.New("the token is not what Escape makes")
)

// Unescape is the inverse of Escape. What Escape would not have written is an
// error.
func Unescape(token string) (string, error) {
	switch token {
	case "":
		return "", errEmptyToken
	case "%":
		return "", nil
	}
	var b strings.Builder
	for i := 0; i < len(token); i++ {
		c := token[i]
		if plain(c) {
			b.WriteByte(c)
			continue
		}
		if c != '%' || i+2 >= len(token) {
			return "", errEscape
		}
		hi, lo := strings.IndexByte(hexDigits, token[i+1]), strings.IndexByte(hexDigits, token[i+2])
		if hi < 0 || lo < 0 || plain(byte(hi<<4|lo)) {
			return "", errEscape
		}
		b.WriteByte(byte(hi<<4 | lo))
		i += 2
	}
	return b.String(), nil
}
