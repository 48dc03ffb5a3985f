package chat

import (
	"slices"
	"strings"
	"unicode"

	"github.com/kvindex/kvindex/tokenizer/chat/pyjson"
)

// continueTag marks the end of the final message in the rendered text.
const continueTag = "CONTINUE_FINAL_MESSAGE_TAG "

// continueFinal renders a chat that ends inside its last message, the way
// transformers does: a tag is put behind the message, and what the template
// gives is cut there. A template that strips its messages strips the tag's
// space too; then the text loses all white space before it as well.
func (c *compiled) continueFinal(list []pyjson.Value, render func([]pyjson.Value) (string, error)) (string, error) {
	if !c.content {
		return "", invalid("the chat template has no content to continue")
	}
	list = slices.Clone(list)
	last := list[len(list)-1]
	content, final, err := tagged(last.Get("content"))
	if err != nil {
		return "", err
	}
	items := slices.Clone(last.Items())
	items[slices.Index(last.Keys(), "content")] = content
	list[len(list)-1] = pyjson.NewDict(last.Keys(), items)

	text, err := render(list)
	if err != nil {
		return "", err
	}
	at := strings.LastIndex(text, strings.TrimSpace(continueTag))
	if at < 0 || !strings.Contains(text, strings.TrimFunc(final, isSpace)) {
		return "", invalid("continue_final_message is set but the final message does not appear in the chat")
	}
	if strings.HasPrefix(text[at:], continueTag) {
		return text[:at], nil
	}
	return strings.TrimRightFunc(text[:at], isSpace), nil
}

// tagged is a content with the tag behind its last text, and that text.
func tagged(content pyjson.Value) (pyjson.Value, string, error) {
	if content.Kind() != pyjson.List {
		return pyjson.NewString(content.Str() + continueTag), content.Str(), nil
	}
	parts := slices.Clone(content.Items())
	for i, p := range slices.Backward(parts) {
		at := slices.Index(p.Keys(), "text")
		if at < 0 {
			continue
		}
		items := slices.Clone(p.Items())
		final := items[at].Str()
		items[at] = pyjson.NewString(final + continueTag)
		parts[i] = pyjson.NewDict(p.Keys(), items)
		return pyjson.NewList(parts...), final, nil
	}
	return content, "", invalid("continue_final_message is set but the final message has no text to continue")
}

// isSpace is Python's str.isspace.
func isSpace(r rune) bool { return unicode.IsSpace(r) || (r >= 0x1c && r <= 0x1f) }
