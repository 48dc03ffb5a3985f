package chat

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// longChat is a chat of n turns with some kilobytes of text each.
func longChat(n, bytes int) []byte {
	text := strings.Repeat("The early lantern signs 80 copper signals after the rain.\n", bytes/58)
	var messages []map[string]string
	messages = append(messages, map[string]string{"role": "system", "content": "You are the desk assistant of a canal company."})
	for i := range n {
		messages = append(messages, map[string]string{"role": []string{"user", "assistant"}[i%2], "content": fmt.Sprint(i, text)})
	}
	body, err := json.Marshal(map[string]any{"model": "m", "messages": messages})
	if err != nil {
		panic(err)
	}
	return body
}

// toolChat is a request with ten tools and a call.
func toolChat() []byte {
	tool := `{"type":"function","function":{"name":"get_level","description":"Return the water level at a lock.","parameters":{"type":"object",` +
		`"properties":{"lock":{"type":"string","description":"Name of the lock"},"unit":{"type":"string","enum":["m","ft"],"default":"m"},` +
		`"limit":{"type":"number","minimum":0.5,"maximum":14.0}},"required":["lock"]}}}`
	return []byte(`{"model":"m","messages":[{"role":"user","content":"Level at Greenlock?"},{"role":"assistant","content":null,"tool_calls":[` +
		`{"id":"call00001","type":"function","function":{"name":"get_level","arguments":"{\"lock\": \"Greenlock\", \"limit\": 14.0}"}}]},` +
		`{"role":"tool","tool_call_id":"call00001","content":"3.25"}],"tools":[` + strings.TrimSuffix(strings.Repeat(tool+",", 10), ",") + `]}`)
}

// BenchmarkRender is the whole way from a body to the text, and its parts:
// 100k tokens are some 450 KB of English.
func BenchmarkRender(b *testing.B) {
	r, err := realRenderer(b, "qwen3")
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name string
		body []byte
	}{
		{"turns=30/100k_tokens", longChat(30, 15_000)},
		{"tools=10", toolChat()},
	} {
		b.Run(c.name, func(b *testing.B) {
			req, err := ParseRequest(c.body, ChatCompletions)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.SetBytes(int64(len(c.body)))
			for b.Loop() {
				if _, err := r.Render(req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkParseRequest(b *testing.B) {
	for _, c := range []struct {
		name string
		body []byte
	}{
		{"turns=30/100k_tokens", longChat(30, 15_000)},
		{"tools=10", toolChat()},
		{"turns=3000/short", longChat(3000, 60)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(c.body)))
			for b.Loop() {
				if _, err := ParseRequest(c.body, ChatCompletions); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
