//go:build cgo && !nohf && (amd64 || arm64)

package hf

import (
	"bytes"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// maxJSON is the longest tokenizer.json that is accepted. The largest in use have 40 MB; the library's interface counts
// its bytes with 32 bits.
const maxJSON = 512 << 20

// spec is a tokenizer.json taken apart as far as instances of it differ. It does not change once it is made.
type spec struct {
	rest       []byte // members that stay as they are: `"key":value,"key":value`, without truncation and padding
	normalizer []byte // JSON; nil: none
	added      []byte // elements of added_tokens with those of the configuration: `{...},{...}`, or empty
	merged     []addedToken
	escapable  bool // escape.go holds for it
}

// addedToken is an element of added_tokens.
type addedToken struct {
	ID         uint32 `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// parseSpec checks and takes apart a tokenizer.json. config is a tokenizer_config.json or nil.
func parseSpec(tokenizerJSON, config []byte) (*spec, error) {
	if len(tokenizerJSON) > maxJSON {
		return nil, fmt.Errorf("%w: tokenizer.json has %d bytes, the limit is %d", ErrUnsupported, len(tokenizerJSON), maxJSON)
	}
	if hasEscapedNUL(tokenizerJSON) {
		// The library puts strings of the file into error messages, and panics if one holds a NUL.
		return nil, fmt.Errorf("%w: tokenizer.json has a NUL character in a string", ErrUnsupported)
	}
	members, model, err := readSpec(tokenizerJSON)
	if err != nil {
		return nil, fmt.Errorf("cannot read tokenizer.json: %w", err)
	}
	if err := checkModel(model); err != nil {
		return nil, err
	}
	var tokens []addedToken
	if raw := members["added_tokens"]; raw != nil {
		if err := json.Unmarshal(raw, &tokens, jsontext.AllowDuplicateNames(true)); err != nil {
			return nil, fmt.Errorf("cannot read added_tokens of tokenizer.json: %w", err)
		}
	}
	sp := &spec{}
	if sp.merged, tokens, err = mergeConfig(tokens, config); err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(tokens)
	if err != nil {
		return nil, fmt.Errorf("cannot encode added_tokens: %w", err)
	}
	if len(tokens) > 0 {
		sp.added = encoded[1 : len(encoded)-1]
	}
	if raw := members["normalizer"]; raw != nil && raw.Kind() != jsontext.KindNull {
		sp.normalizer = bytes.Clone(raw)
	}
	sp.escapable = !hasMetaspaceFirst(members["pre_tokenizer"]) && !slices.ContainsFunc(tokens, func(t addedToken) bool {
		return strings.ContainsAny(t.Content, reservedRunes)
	})
	sp.rest = joinRest(members)
	return sp, nil
}

// hasEscapedNUL looks for \u0000 that is an escape, not a backslash (\\) followed by u0000.
func hasEscapedNUL(data []byte) bool {
	for at := 0; ; {
		i := bytes.Index(data[at:], []byte(`\u0000`))
		if i < 0 {
			return false
		}
		at += i
		backslashes := 0
		for j := at; j >= 0 && data[j] == '\\'; j-- {
			backslashes++
		}
		if backslashes%2 == 1 {
			return true
		}
		at++
	}
}

// object holds the members of a JSON object, which alias the data that they were read from. Of members with the same
// name the last counts, as for the library.
type object map[string]jsontext.Value

// readSpec returns the members of a tokenizer.json and those of its model, in one pass over the data.
func readSpec(data []byte) (members, model object, err error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(data), jsontext.AllowDuplicateNames(true))
	members, err = readObject(d, data, func(name string) (bool, error) {
		if name != "model" || d.PeekKind() != jsontext.KindBeginObject {
			return false, nil
		}
		var err error
		model, err = readObject(d, data, nil)
		return true, err
	})
	if err != nil {
		return nil, nil, err
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, nil, fmt.Errorf("there is more behind the object, at byte %d", d.InputOffset())
	}
	if members["model"].Kind() != jsontext.KindBeginObject {
		return nil, nil, errors.New("it has no model that is an object")
	}
	return members, model, nil
}

// readObject reads an object. read, if not nil, may read the value of a member itself, and says whether it has.
func readObject(d *jsontext.Decoder, data []byte, read func(name string) (bool, error)) (object, error) {
	start, err := d.ReadToken()
	if err != nil {
		return nil, unexpectedEnd(err)
	}
	if start.Kind() != jsontext.KindBeginObject {
		return nil, fmt.Errorf("it is a JSON %s, want an object", start.Kind())
	}
	members := make(object)
	for d.PeekKind() == jsontext.KindString {
		token, err := d.ReadToken()
		if err != nil {
			return nil, unexpectedEnd(err)
		}
		name, begin, done := token.String(), d.InputOffset(), false
		if read != nil {
			if done, err = read(name); err != nil {
				return nil, err
			}
		}
		if !done {
			if err := d.SkipValue(); err != nil {
				return nil, unexpectedEnd(err)
			}
		}
		// The colon and white space come before the value.
		members[name] = jsontext.Value(bytes.TrimLeft(data[begin:d.InputOffset()], ": \t\r\n"))
	}
	if _, err := d.ReadToken(); err != nil { // the closing brace, or what is wrong
		return nil, unexpectedEnd(err)
	}
	return members, nil
}

// unexpectedEnd makes the end of the data within a value an error with a name that says so.
func unexpectedEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// checkModel refuses models whose results are not exact or that can make the library panic.
func checkModel(model object) error {
	switch string(model["dropout"]) {
	case "", "null", "0", "0.0":
	default:
		return fmt.Errorf("%w: BPE dropout makes its results random", ErrUnsupported)
	}
	var kind string
	if raw := model["type"]; raw != nil {
		if err := json.Unmarshal(raw, &kind); err != nil {
			return fmt.Errorf("cannot read model type of tokenizer.json: %w", err)
		}
	}
	switch string(model["continuing_subword_prefix"]) {
	case "", "null", `""`:
	default:
		// The library cuts the prefix off the second part of each merge without looking whether it is there.
		// WordPiece has the prefix too, but no merges.
		if kind != "WordPiece" {
			return fmt.Errorf("%w: BPE with a continuing_subword_prefix", ErrUnsupported)
		}
	}
	return nil
}

// hasMetaspaceFirst reports whether a pre-tokenizer's JSON may hold a Metaspace with prepend_scheme "first".
func hasMetaspaceFirst(raw jsontext.Value) bool {
	return bytes.Contains(raw, []byte("Metaspace")) && bytes.Contains(raw, []byte(`"first"`))
}

// joinRest renders the members that instances share.
func joinRest(members object) []byte {
	var b bytes.Buffer
	size := 0
	names := make([]string, 0, len(members))
	for name, raw := range members {
		switch name {
		case "truncation", "padding", "normalizer", "added_tokens":
			continue
		}
		names = append(names, name)
		size += len(name) + len(raw) + 4
	}
	slices.Sort(names)
	b.Grow(size)
	for n, name := range names {
		if n > 0 {
			b.WriteByte(',')
		}
		quoted, _ := jsontext.AppendQuote(nil, name) // the decoder has let only valid strings through
		b.Write(quoted)
		b.WriteByte(':')
		b.Write(members[name])
	}
	return b.Bytes()
}

// plain returns the JSON of an ordinary instance.
func (sp *spec) plain() []byte {
	normalizer := sp.normalizer
	if normalizer == nil {
		normalizer = []byte("null")
	}
	return sp.assemble(normalizer, sp.added)
}

// escaping returns the JSON of the instance for escaped text.
func (sp *spec) escaping() []byte {
	normalizer := `{"type":"Sequence","normalizers":[` + escapeSteps
	if sp.normalizer != nil {
		normalizer += "," + string(sp.normalizer)
	}
	normalizer += "]}"
	token := `{"id":0,"content":"` + sentinel + `","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}`
	added := bytes.Clone(sp.added)
	if len(added) > 0 {
		added = append(added, ',')
	}
	return sp.assemble([]byte(normalizer), append(added, token...))
}

func (sp *spec) assemble(normalizer, added []byte) []byte {
	b := make([]byte, 0, len(sp.rest)+len(normalizer)+len(added)+100)
	b = append(b, `{"truncation":null,"padding":null,"normalizer":`...)
	b = append(b, normalizer...)
	b = append(b, `,"added_tokens":[`...)
	b = append(b, added...)
	b = append(b, "],"...)
	b = append(b, sp.rest...)
	return append(b, '}')
}
