package chat

import (
	"encoding/json"
	"reflect"
	"testing"
	"unicode/utf8"
)

// FuzzParseRequest feeds bodies to both endpoints and to templates that look
// into everything. Nothing may panic, errors are of the two kinds, and texts
// are UTF-8.
func FuzzParseRequest(f *testing.F) {
	for _, body := range []string{
		`{"messages":[{"role":"user","content":"x"}]}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"a","x":1},"b",{"type":"refusal","refusal":null}]}]}`,
		`{"messages":[{"role":"developer","content":"D"},{"role":"system","content":"x-anthropic-billing-header\ny"}],"model":"m"}`,
		`{"messages":[{"role":"assistant","content":null,"reasoning_content":"r","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":NaN}"}}]},{"role":"tool","tool_call_id":"1","content":[]}]}`,
		`{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"a":[1.0,-0,1e400]}}}],"tool_choice":"none"}`,
		`{"messages":[{"role":"assistant","content":"a "}],"continue_final_message":true,"add_generation_prompt":false}`,
		`{"messages":[{"role":"user","content":"\ud83d\ude00\ud800"}],"chat_template_kwargs":{"enable_thinking":null,"x":"auto"},"reasoning_effort":"low"}`,
	} {
		f.Add([]byte(body))
	}
	renderers := []*Renderer{compile(f, dumpTemplate), compile(f, partsTemplate), compile(f, chatML)}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, kind := range []Kind{ChatCompletions, Tokenize} {
			req, err := ParseRequest(body, kind)
			knownKind(t, err)
			if utf8.Valid(body) && json.Valid(body) {
				same, e := ParseValid(body, kind)
				if (e == nil) != (err == nil) || !reflect.DeepEqual(same, req) {
					t.Errorf("%q: %v; known to be valid: %v", body, err, e)
				}
			}
			if err != nil {
				continue
			}
			for _, r := range renderers {
				out, err := r.Render(req)
				knownKind(t, err)
				if !utf8.ValidString(out.Text) {
					t.Errorf("%q gives invalid UTF-8", body)
				}
			}
		}
	})
}

func knownKind(t *testing.T, err error) {
	t.Helper()
	known(t, "a body", err)
}
