// Package bpe turns text into token ids with byte-level BPE, in pure Go, with
// exactly the ids that Hugging Face's tokenizers library gives.
//
// A tokenizer.json describes a pipeline: a normalizer, a pre-tokenizer that
// cuts the text into words by regular expressions, and a model that merges the
// bytes of each word. [New] does not interpret that description. It compares
// it with the few pipelines that it knows, and answers with an
// [UnsupportedError] if anything differs that could change an id. What it
// knows, it does with hand-written scanners instead of a regex engine, and so
// several times faster than the library:
//
//	qwen2        Qwen2, Qwen2.5, Qwen3, and distillations on them; NFC
//	qwen3_5      Qwen3.5 and later; NFC
//	llama3       Llama 3 and others that split like cl100k
//	o200k        gpt-oss, Llama 4
//	deepseek_v3  DeepSeek V3 and R1
//	tekken       Mistral Nemo and later
//
// An [Encoder] knows nothing of added tokens such as <|im_end|>: the caller
// cuts the text at them and gives what is between. It also adds no token at
// the beginning or the end.
//
// # Invalid UTF-8
//
// Engines receive text as JSON, where there is no invalid UTF-8. Each byte
// that is part of no valid sequence is read as U+FFFD, which is what
// encoding/json makes of it.
//
// # Versions of Unicode
//
// The library classifies characters by the tables of its regex engine
// (Oniguruma 6.9.10: Unicode 16) and normalizes by those of another crate
// (Unicode 9). The tables here are package unicode's and
// golang.org/x/text/unicode/norm's, restricted to what was assigned in those
// versions; the tests compare them code point by code point. An engine with a different
// Oniguruma differs in code points that are unassigned in one of the versions.
//
// # Bounds
//
// Time is linear in the length of the text, whatever its words are: long ones
// (a megabyte of one letter is a word) are merged part by part. Where parts do
// not fit together again and again, which takes a vocabulary unlike those in
// use, a word is merged at once: then there is a logarithmic factor in its
// length, and it takes some 25 bytes of memory for each of its own. The cache
// of words has a fixed number of entries, of at most 64 bytes of text each.
package bpe
