package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

func sizeName(tokens int) string { return fmt.Sprintf("%dk", tokens/1000) }

// table writes a report for people.
func (r *report) table(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	r.speedTable(w)
	r.turnsTable(w)
	r.wayTable(w)
	r.targetTable(w)
	return w.Flush()
}

func (r *report) speedTable(w io.Writer) {
	fmt.Fprint(w, "1. SPEED of text that was not seen before, MB per second of processor time, on one core\n\n")
	fmt.Fprint(w, "tokenizer\ttext\ttokens\tbpe\thf\tbpe/hf\tids\t\n")
	for _, s := range r.Speed {
		equal := "equal"
		if !s.Equal {
			equal = "DIFFER"
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%.1f\t%.2f\t%.1fx\t%s\t\n", s.Tokenizer, s.Text, s.Tokens, s.BPE, s.HF, s.Ratio, equal)
	}
	fmt.Fprintf(w, `
cold: every run has an encoder that was made for it, bpe and hf alike, so neither's cache of words holds anything;
  each text is %d KB, the median of %d runs of bpe and one run of hf, which takes several times as long.
texts: English is Newton's Opticks, code is Go's source, Chinese is the vocabulary's words by a Zipf law; nothing repeats.
bpe is bounded by finding and merging words that its table of whole words lacks; hf by its regular expressions and
  allocations a word.

`, speedBytes>>10, ownRuns)
}

func (r *report) turnsTable(w io.Writer) {
	fmt.Fprintf(w, "2. CHATS of %s with its own template, %d turns: milliseconds a request, p50\n\n", chatModel, turns)
	fmt.Fprint(w, "chat\tturns\ttokens\tnew\thf full\tbpe full\tkvindex: render\ttokenize+hash\ttotal\tcache KB\tB/token\t\n")
	for _, t := range r.Turns {
		fmt.Fprintf(w, "%s %s\t%s\t%d\t%d\t%.2f\t%.2f\t%.3f\t%.3f\t%.3f\t%d\t%.1f\t\n", sizeName(t.Size), t.Growth, t.Turns, t.Tokens,
			t.NewTokens, t.HF, t.BPE, t.Render, t.Tokenize, t.Total, t.CacheBytes>>10, t.BytesPerToken)
	}
	fmt.Fprintf(w, `
chat: even grows to its size by the same every turn; document begins with its size and adds %d tokens a turn.
new: tokens that a turn adds (reply and question), which nobody has seen. Text is prose and code, new in each conversation.
hf full, bpe full: the rendered text as a whole, with words remembered from before; bounded as above, by the whole length.
render: JSON and template; bounded by reading the strings of the JSON, in short chats by the steps of the template.
tokenize+hash: the registry but for render, blocks of %d; bounded by bpe on the new tokens, and by passes over the bytes of
  the request and of its text: for added tokens, and to hash them twice each and so find them in the caches.
cache: what the prefix cache says that a conversation takes after its last turn; bounded by 4 bytes an id, 1 byte for the
  hashes of blocks, and the entries.

`, documentTurn, blockSize)
}

func (r *report) wayTable(w io.Writer) {
	fmt.Fprint(w, "3. THE REPLACED WAY: engine's /tokenize, then Redis; milliseconds a request, steps are p50\n\n")
	fmt.Fprint(w, "chat\tturns\trequests\t/tokenize\tdecode\thash\tRedis\tp50\tp99\tp50 of 128 blocks\t\n")
	for _, t := range r.Ways {
		fmt.Fprintf(w, "%s %s\t%s\t%d\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t\n", sizeName(t.Size), t.Growth, t.Turns, t.Requests,
			t.HTTP, t.Decode, t.Hash, t.Redis, t.ReplacedP50, t.ReplacedP99, t.CappedP50)
	}
	fmt.Fprint(w, "\n   KVINDEX'S WAY, the same requests, and how many times as long the replaced way takes\n\n")
	fmt.Fprint(w, "chat\tturns\trender\ttokenize+hash\tmatch\tp50\tp99\tratio p50\tp99\tof 128 blocks\t\n")
	for _, t := range r.Ways {
		fmt.Fprintf(w, "%s %s\t%s\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t%.0fx\t%.0fx\t%.0fx\t\n", sizeName(t.Size), t.Growth, t.Turns,
			t.Render, t.Tokenize, t.Match, t.OwnP50, t.OwnP99, t.RatioP50, t.RatioP99, t.RatioCapped)
	}
	fmt.Fprintf(w, `
/tokenize: POST to a process on loopback that renders the template and tokenizes all by hf, connection kept; bounded by hf.
  (It renders in Go, which takes less than vLLM's Python.) decode: encoding/json; bounded by the digits of the answer.
hash: SHA-256 a block of %d; bounded by it. Redis: one pipeline, one HGETALL a block, %d pods hold each, loopback; bounded by
  what Redis and its client spend on each reply.
128 blocks: the same if only the first %d blocks are hashed and looked up, kthena's default, which sees no more of a prompt.
kvindex: in this process; render and tokenize+hash as in 2. match: the index in memory, which holds the same blocks for the
  same pods; bounded by one look-up a block, which misses the processor's caches.
p99 of fewer than 100 requests is the worst: it shows garbage collection, and other work of the machine.
Both ways find the same tokens and blocks in every request, or this program ends with status 1.

`, blockSize, len(pods), cappedBlocks)
}

func (r *report) targetTable(w io.Writer) {
	fmt.Fprintf(w, "TARGETS (%d cores, %.0f s)\n\n", r.CPUs, r.Seconds)
	fmt.Fprint(w, "what\ttarget\tmeasured\twhere\t\t\n")
	for _, t := range r.Targets {
		met := "met"
		if !t.Met {
			met = "MISSED"
		}
		fmt.Fprintf(w, "%s\t%g %s\t%.2f\t%s\t%s\t\n", t.What, t.Want, t.Unit, t.Got, t.Where, met)
	}
}
