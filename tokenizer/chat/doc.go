// Package chat turns the body of a chat request into the text whose tokens an
// engine (vLLM) computes with: its preprocessing of messages, and the model's
// chat template as transformers renders it.
//
//	config, err := chat.ParseConfig(chat.Files{TokenizerConfig: ..., ChatTemplateJinja: ...})
//	renderer, err := chat.Compile(config, chat.Options{})
//	req, err := chat.ParseRequest(body, chat.ChatCompletions)
//	rendered, err := renderer.Render(req)
//
// One different byte makes one different token, and with it every later block
// of the KV cache another: so the text is the engine's, byte for byte, or there
// is none. Two kinds of errors tell why:
//
//   - [*UnsupportedError]: only an engine can know. Pictures, a template that
//     comes with the request, gpt-oss's harmony format, a construct of a
//     template that package jinja does not have. The caller asks an engine or
//     says that it does not know.
//   - [*InvalidError]: the engine answers 400. The message that the template
//     raises, a body that is no chat request. The caller need not look further:
//     no engine has the blocks of such a request.
//
// Where several versions of vLLM differ about a body that one of them refuses,
// this package takes it: a prompt that no engine computes does no harm.
//
// # What is followed
//
// vLLM 0.32.0 (entrypoints/openai/chat_completion/protocol.py,
// entrypoints/serve/tokenize/protocol.py, renderers/chat_utils.py,
// renderers/hf.py, renderers/params.py) and transformers 5.19
// (utils/chat_template_utils.py). The files of this package:
//
//	config.go    tokenizer_config.json and its companions
//	request.go   the body: which fields count, which are wrong
//	message.go   one message of the body
//	content.go   the content of a message, as text or as parts
//	tools.go     tools and tool calls, in the order that pydantic gives them
//	render.go    choice of the template, variables, the text
//	continue.go  continue_final_message
//
// Package pyjson reads the body as Python does, package jinja renders.
//
// # Bounds
//
// A body may nest 100 deep and have a million values in the fields that count;
// rendering is bounded by [Options]. Beyond, the error is an
// [*UnsupportedError]: an engine may still take it.
//
// A Renderer may be used by many goroutines at once, a Request too once it is
// parsed. A Request keeps its body's text alive.
package chat
