// Package hf turns text into token ids with the library that inference engines use themselves: Hugging Face
// tokenizers, through the bindings github.com/daulet/tokenizers. It takes any tokenizer.json that the library can load
// and is what the pure Go encoder of package bpe is compared with.
//
// # Exactness
//
// Append gives exactly what the library gives for the whole text, or an error; it never gives ids that might be
// wrong. What the bindings do differently, and how that is undone here:
//
//   - Text crosses into the library as a C string, which ends at the first NUL byte. Text with a NUL is encoded by a
//     second instance of the same tokenizer in whose text a NUL has another spelling, which a Replace step at the head
//     of its normalizer undoes inside the library (escape.go says why that is exact). It is loaded with the first
//     such text and costs as much memory as an instance. Where the proof does not hold, the answer is ErrNUL.
//   - An error while encoding looks like an empty result. An empty result for text that is not empty is believed only
//     after the same text followed by a sentinel token has given the sentinel and nothing else; otherwise ErrEncode.
//   - Invalid UTF-8 is replaced before the library sees it, one U+FFFD for each byte, as encoding/json does with the
//     JSON in which text travels to an engine. (The library would replace a truncated character by a single one.)
//   - Truncation and padding of tokenizer.json are switched off: engines reset them for every call. Added tokens that
//     only tokenizer_config.json names are added, as transformers does.
//
// Refused at New, because results could not be exact or a Rust panic would end the process: BPE dropout, a BPE
// continuing_subword_prefix, JSON with an escaped NUL, JSON beyond 512 MiB.
//
// # Limits
//
// While it encodes, the library needs some 50 to 100 bytes of memory for each byte of ordinary text, and up to 370 in the
// worst case: short pieces, such as digits that stand for themselves. Texts longer than Options.MaxInput are refused, and
// calls that run at the same time have no more than MaxInput bytes together; later ones wait. So a MaxInput of 4 MiB
// bounds it to 1.6 GB, one of 1 MiB to 0.4 GB. Memory that the library has freed is given back to the system after each
// MiB of text.
//
// MaxInput cannot exceed MaxInputLimit, because a pre-tokenizer's regular expression that backtracks more than
// 10,000,000 times in one match makes the library panic, which ends the process: a run of 10 MB of spaces does that. The
// expressions of the models in use backtrack at most twice for each character. One without such a bound is not safe with
// hostile text, here as in any program that uses the library.
//
// # Concurrency
//
// All methods may be called concurrently. At most GOMAXPROCS calls are inside the library, so that they pin no more
// operating system threads than that; others wait, first come first served. An instance of a tokenizer is used by
// several calls at the same time. It has a word cache behind one lock, so that a machine with many cores wants several
// instances, but each takes 40 to 120 MB and a second or more to load: further ones are loaded in the background once
// the ones that are there are in use by several calls each.
//
// # Builds without it
//
// The static library must be at build/lib/libtokenizers.a (scripts/tokenizers-lib.sh). Build tag nohf leaves it out,
// as do CGO_ENABLED=0 and processors other than amd64 and arm64, for which the C declarations of the bindings do not
// match their Rust side. Available says which build this is; in one without, New returns ErrUnavailable.
package hf

import (
	"errors"
	"fmt"
)

// MaxInputLimit is the most that Options.MaxInput may be, and its default, in bytes.
const MaxInputLimit = 4 << 20

// Errors that callers tell apart. Those about a text say nothing of its content.
var (
	// ErrUnavailable is returned by New in a build without the library.
	ErrUnavailable = errors.New("built without Hugging Face tokenizers: install cargo and run make setup")
	// ErrClosed is returned by calls that start after Close or still wait when it is called.
	ErrClosed = errors.New("tokenizer is closed")
	// ErrTooLong is returned for a text longer than Options.MaxInput.
	ErrTooLong = errors.New("text is too long to tokenize")
	// ErrNUL is returned for a text with a NUL byte where this tokenizer has no exact way to encode it.
	ErrNUL = errors.New("text has a NUL byte, which this tokenizer cannot encode exactly")
	// ErrEncode is returned for a text that the library fails to encode: a character that the vocabulary does not
	// cover in a model without unknown token, for one. The library's own message does not reach us.
	ErrEncode = errors.New("the tokenizers library cannot encode the text")
	// ErrUnsupported is wrapped by the error of New for a tokenizer.json that is refused although it may be valid.
	ErrUnsupported = errors.New("tokenizer is not supported")
)

// Options say how New builds an Encoder. The zero value is useful.
type Options struct {
	// TokenizerConfig is the content of the model's tokenizer_config.json, or nil. The tokens that it adds to those
	// of tokenizer.json are added; nothing else of it matters here.
	TokenizerConfig []byte
	// MaxInstances is how many copies of the tokenizer may be in memory, besides the one for texts with NUL bytes.
	// Default: one for every 4 of GOMAXPROCS, at most 4. More than GOMAXPROCS is taken as GOMAXPROCS.
	MaxInstances int
	// MaxInput is the longest text that is accepted, in bytes. Default and maximum: MaxInputLimit.
	MaxInput int
}

// Validate reports values that New would refuse.
func (o Options) Validate() error {
	if o.MaxInstances < 0 {
		return fmt.Errorf("max instances is %d, want 0 or more", o.MaxInstances)
	}
	if o.MaxInput < 0 || o.MaxInput > MaxInputLimit {
		return fmt.Errorf("max input is %d bytes, want 0 to %d", o.MaxInput, MaxInputLimit)
	}
	return nil
}
