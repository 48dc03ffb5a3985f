package chat

import (
	"github.com/kvindex/kvindex/tokenizer/chat/pyjson"
)

// message is one message of a request: what vLLM keeps of it.
type message struct {
	role       string
	content    pyjson.Value // String, or List of parts; Absent if none
	toolCalls  pyjson.Value // Absent, or the list that a template gets
	reasoning  pyjson.Value
	toolCallID pyjson.Value
	name       pyjson.Value
	task       pyjson.Value
	tools      pyjson.Value // of the developer role
}

// read checks a message by the types that vLLM validates it with. values is
// how many values the arguments of tool calls may still have.
func (m *message) read(v pyjson.Value, kind Kind, values *int) error {
	if v.Kind() != pyjson.Dict {
		return invalid("a message must be an object")
	}
	role := v.Get("role")
	if role.Kind() != pyjson.String {
		return invalid("a message must have a role")
	}
	m.role = role.Str()
	if err := m.readContent(v.Get("content")); err != nil {
		return err
	}
	if m.name = v.Get("name"); m.name.Kind() != pyjson.Absent && m.name.Kind() != pyjson.String {
		return invalid("the name of a message must be text")
	}
	if id := v.Get("tool_call_id"); !id.IsNone() && id.Kind() != pyjson.String {
		return invalid("a tool_call_id must be text")
	}
	if m.task = v.Get("task"); m.task.Kind() != pyjson.String {
		m.task = pyjson.Value{}
	}
	switch m.role {
	case "assistant":
		m.reasoning = v.Get("reasoning")
		if m.reasoning.IsNone() && kind == ChatCompletions {
			m.reasoning = v.Get("reasoning_content")
		}
		var err error
		m.toolCalls, err = readToolCalls(v.Get("tool_calls"), values)
		return err
	case "tool":
		m.toolCallID = v.Get("tool_call_id")
	case "developer":
		m.tools = v.Get("tools")
	}
	return nil
}

func (m *message) readContent(v pyjson.Value) error {
	switch v.Kind() {
	case pyjson.Null:
		// Only these two may say null; to leave it out is open to all.
		if m.role != "assistant" && m.role != "function" {
			return invalid("the content of a message must be text or a list of parts")
		}
	case pyjson.String:
		m.content = v
	case pyjson.List:
		for _, part := range v.Items() {
			if err := checkPart(part); err != nil {
				return err
			}
		}
		m.content = v
	case pyjson.Absent:
	default:
		return invalid("the content of a message must be text or a list of parts")
	}
	return nil
}

// forTemplate is the message as a template gets it, its keys in vLLM's order.
func (m *message) forTemplate(parts bool) pyjson.Value {
	var d builder
	d.set("role", pyjson.NewString(m.role))
	d.set("content", m.contentFor(parts))
	d.set("tool_calls", m.toolCalls)
	if !m.reasoning.IsNone() {
		d.set("reasoning", m.reasoning)
		d.set("reasoning_content", m.reasoning)
	}
	d.set("tool_call_id", m.toolCallID)
	d.set("name", m.name)
	d.set("task", m.task)
	if m.role == "developer" {
		d.set("tools", pyjson.NewNull())
	}
	return d.value()
}

// builder makes an object in order; Absent values are left out.
type builder struct {
	keys  []string
	items []pyjson.Value
}

func (b *builder) set(key string, v pyjson.Value) {
	if v.Kind() != pyjson.Absent {
		if b.keys == nil {
			b.keys, b.items = make([]string, 0, 4), make([]pyjson.Value, 0, 4)
		}
		b.keys, b.items = append(b.keys, key), append(b.items, v)
	}
}

func (b *builder) value() pyjson.Value { return pyjson.NewDict(b.keys, b.items) }
