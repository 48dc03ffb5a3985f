package remote

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
)

// rendered is what is read of an answer of /render: vLLM's GenerateRequest.
type rendered struct {
	TokenIDs *[]uint32      `json:"token_ids"`
	Features jsontext.Value `json:"features"`
}

// tokenized is an answer of /tokenize: vLLM's TokenizeResponse.
type tokenized struct {
	Count  *int      `json:"count"`
	Tokens *[]uint32 `json:"tokens"`
}

// lenient reads what engines send: they may repeat keys, and quote text that is
// not UTF-8.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// decode says whether data is the JSON of what v points to.
func decode(data []byte, v any) bool { return json.Unmarshal(data, v, lenient) == nil }

func badAnswer(why string) error { return fmt.Errorf("%w: %s", ErrAnswer, why) }

// decodeRendered reads an answer of /render: an object, or a list with an object
// for each prompt.
func decodeRendered(answer []byte) ([]uint32, error) {
	var one rendered
	if jsontext.Value(answer).Kind() == '[' {
		var all []rendered
		if !decode(answer, &all) {
			return nil, badAnswer("it is no list of objects with token ids")
		}
		if len(all) != 1 {
			return nil, badAnswer(fmt.Sprintf("it has %d prompts, not one", len(all)))
		}
		one = all[0]
	} else if !decode(answer, &one) {
		return nil, badAnswer("it is no object with token ids")
	}
	if one.TokenIDs == nil || len(*one.TokenIDs) == 0 {
		return nil, badAnswer("it has no token ids")
	}
	if hasMedia(one.Features) {
		return nil, unsupported(mediaReason)
	}
	return *one.TokenIDs, nil
}

// hasMedia says whether vLLM's MultiModalFeatures tell of anything. What cannot
// be read does.
func hasMedia(features jsontext.Value) bool {
	if features == nil || features.Kind() == 'n' {
		return false
	}
	var f struct {
		Hashes       map[string][]jsontext.Value `json:"mm_hashes"`
		Placeholders map[string][]jsontext.Value `json:"mm_placeholders"`
	}
	if !decode(features, &f) {
		return true
	}
	for _, byModality := range []map[string][]jsontext.Value{f.Hashes, f.Placeholders} {
		for _, items := range byModality {
			if len(items) > 0 {
				return true
			}
		}
	}
	return false
}

// decodeTokenized reads an answer of /tokenize.
func decodeTokenized(answer []byte) ([]uint32, error) {
	var t tokenized
	if !decode(answer, &t) {
		return nil, badAnswer("it is no object with tokens")
	}
	if t.Tokens == nil {
		return nil, badAnswer("it has no tokens")
	}
	if t.Count != nil && *t.Count != len(*t.Tokens) {
		return nil, badAnswer("it has another number of tokens than it says")
	}
	return *t.Tokens, nil
}

// modelMissing says whether the body of a 404 tells that the engine does not
// serve the model (vLLM's ErrorResponse; older ones are flat), rather than
// that there is no such endpoint: both are 404, and the latter's type is "Not
// Found".
func modelMissing(answer []byte) bool {
	const notFound = "NotFoundError"
	var e struct {
		Type  string         `json:"type"`
		Error jsontext.Value `json:"error"`
	}
	if !decode(answer, &e) {
		return false
	}
	if e.Type == notFound {
		return true
	}
	var inner struct {
		Type string `json:"type"`
	}
	return e.Error != nil && decode(e.Error, &inner) && inner.Type == notFound
}
