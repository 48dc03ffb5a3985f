// Package remote asks running engines (vLLM) for the token ids of a request:
// for models without a tokenizer of our own, and to hold one of ours against
// the engines that it stands for.
//
//	Tokens ──> one call for all   ──> the least loaded  ──> /render, or /tokenize
//	           who ask the same       engine that works      where that is missing
//
// # What is asked
//
// An engine's own rendering of the request is asked for first: POST
// /v1/chat/completions/render or /v1/completions/render (vLLM
// entrypoints/serve/render, whose answer is the GenerateRequest of
// entrypoints/serve/disagg/protocol.py). It runs what serving the request would
// run, and so knows every field. The body goes there as the client wrote it,
// byte for byte, but for "stream", "stream_options" and the model's name.
//
// Engines without it (they answer 404, 405 or 501) are asked by POST /tokenize
// (entrypoints/serve/tokenize/protocol.py), which knows less: no documents, no
// reasoning_effort, no reasoning_content, one prompt only. A request that has
// such a field is then ErrUnsupported; nothing is guessed. Two things cannot be
// seen in a request, and Target.RenderOnly is for them: /tokenize does not know
// gpt-oss's harmony format, nor an engine's --default-chat-template-kwargs.
//
// Pictures, sounds and the like make their blocks' keys from more than tokens:
// such requests are ErrUnsupported everywhere.
//
// # What an engine is spared
//
// Equal requests at the same time are one. Requests in flight are bounded, per
// engine and in all; beyond, the answer is ErrSaturated at once. An engine that
// has requests waiting is asked after all that have fewer, and not at all above
// Options.MaxWaiting; three failures in a row keep it from being asked for a
// second, then two, up to 30.
//
// # Privacy
//
// Prompts, token ids and what engines answer to them are in no error, no log
// line and no statistic of this package.
package remote
