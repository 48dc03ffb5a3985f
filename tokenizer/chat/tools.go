package chat

import (
	"errors"
	"slices"
	"strings"

	"github.com/kvindex/kvindex/tokenizer/chat/pyjson"
)

// readTools is what tool.model_dump() gives for each tool: known keys in the
// model's order, description and parameters null if not given, the keys of
// parameters as the client ordered them.
func readTools(v pyjson.Value) (pyjson.Value, error) {
	if v.IsNone() {
		return pyjson.Value{}, nil
	}
	if v.Kind() != pyjson.List {
		return v, invalid("tools must be a list")
	}
	tools := make([]pyjson.Value, v.Len())
	for i, t := range v.Items() {
		var err error
		if tools[i], err = readTool(t); err != nil {
			return v, err
		}
	}
	return pyjson.NewList(tools...), nil
}

func readTool(t pyjson.Value) (pyjson.Value, error) {
	f := t.Get("function")
	if kind := t.Get("type"); f.Kind() != pyjson.Dict || (kind.Kind() != pyjson.Absent && kind.Str() != "function") {
		return t, invalid("a tool must be a function")
	}
	if f.Get("name").Kind() != pyjson.String {
		return t, invalid("a function must have a name")
	}
	deferred, err := optional(t, "defer_loading")
	if err != nil {
		return t, err
	}
	var fn builder
	fn.set("name", f.Get("name"))
	for _, field := range []struct {
		key  string
		kind pyjson.Kind
	}{{"description", pyjson.String}, {"parameters", pyjson.Dict}} {
		x := f.Get(field.key)
		if x.IsNone() {
			x = pyjson.NewNull()
		} else if x.Kind() != field.kind {
			return t, invalid("the %s of a function", field.key)
		}
		fn.set(field.key, x)
	}
	strict, err := optional(f, "strict")
	if err != nil {
		return t, err
	}
	fn.set("strict", strict)
	inner, err := optional(f, "defer_loading")
	if err != nil {
		return t, err
	}
	if inner.Kind() == pyjson.Absent {
		inner = deferred
	}
	fn.set("defer_loading", inner)
	var d builder
	d.set("type", pyjson.NewString("function"))
	d.set("function", fn.value())
	d.set("defer_loading", deferred)
	return d.value(), nil
}

// optional is a boolean that is left out if it is null.
func optional(v pyjson.Value, key string) (pyjson.Value, error) {
	switch x := v.Get(key); x.Kind() {
	case pyjson.Absent, pyjson.Null:
		return pyjson.Value{}, nil
	case pyjson.Bool:
		return x, nil
	default:
		return x, unsupported("%s of a tool is no boolean", key)
	}
}

// readToolCalls is the list of tool calls that a template gets: known keys
// first, then those of the client, and arguments as an object. values is how
// many values arguments may still have.
func readToolCalls(v pyjson.Value, values *int) (pyjson.Value, error) {
	if !v.IsNone() && v.Kind() != pyjson.List {
		return v, invalid("tool_calls must be a list")
	}
	if v.Len() == 0 {
		return pyjson.Value{}, nil
	}
	calls := make([]pyjson.Value, v.Len())
	for i, c := range v.Items() {
		f := c.Get("function")
		if kind := c.Get("type"); f.Kind() != pyjson.Dict || (kind.Kind() != pyjson.Absent && kind.Str() != "function") {
			return v, invalid("chat completions only support assistant tool_calls of type 'function'")
		}
		args, err := readArguments(f.Get("arguments"), values)
		if err != nil {
			return v, err
		}
		var fn, d builder
		fn.set("arguments", args)
		fn.order(f, "arguments", "name")
		d.set("id", c.Get("id"))
		d.set("function", fn.value())
		d.order(c, "id", "function", "type")
		calls[i] = d.value()
	}
	return pyjson.NewList(calls...), nil
}

// order adds the members of v that are not there yet: those of known in this
// order, then all others.
func (b *builder) order(v pyjson.Value, known ...string) {
	for _, key := range known {
		if !slices.Contains(b.keys, key) {
			b.set(key, v.Get(key))
		}
	}
	for i, key := range v.Keys() {
		if !slices.Contains(known, key) {
			b.set(key, v.Items()[i])
		}
	}
}

// readArguments makes an object of what a client sends: usually a text with
// JSON in it. What is no object becomes an empty one.
func readArguments(v pyjson.Value, values *int) (pyjson.Value, error) {
	none := pyjson.NewDict(nil, nil)
	switch v.Kind() {
	case pyjson.Dict:
		return v, nil
	case pyjson.String:
		if strings.TrimSpace(v.Str()) == "" {
			return none, nil
		}
	default:
		return none, nil
	}
	limits := pyjson.Limits{Depth: maxDepth, Values: max(*values, 1)}
	args, err := pyjson.Parse(v.Str(), limits)
	var syntax *pyjson.SyntaxError
	if errors.As(err, &syntax) {
		return none, nil
	}
	if err != nil {
		return none, classifyJSON("the arguments of a tool call", err)
	}
	*values -= len(v.Str()) / 8
	if args.Kind() != pyjson.Dict {
		return none, nil
	}
	return args, nil
}
