// Package tokenizer turns text and chats into the token ids that a model's
// engine computes with: exactly those, or it says that it does not know.
//
// One different token makes every later block of the KV cache another, and
// nothing reports an error: the hit rate is just low. So a tokenizer is held
// against the engine's own library before it is used, and is put aside if a
// single id differs.
//
//	body ──> Renderer ──> text ──> segments ──> Cache ──> Encoder ──> Tokens
//	         (a chat's             ends of      known     what is
//	         template)             added tokens beginnings new
//
// # Why text may be tokenized in parts
//
// A tokenizer in the sense of Hugging Face finds its added tokens first, on the
// raw text; every stretch between them then goes through normalizer,
// pre-tokenizer and model by itself. No stage looks across an added token, so
// that the ids of a text are those of its parts, one after the other, and the
// ids up to the end of an added token do not depend on what follows. Chats end
// every message with such a token: the turns before the last one need not be
// tokenized again. Tokenizers for which this does not hold (see
// Tokenizer.Ineligible) are used without a cache.
//
// The encoders are in sub-packages, as are chat templates; this package knows
// them by small interfaces.
package tokenizer
