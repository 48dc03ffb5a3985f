package enginesim

import "sync/atomic"

// Request is one prompt and how much to generate after it.
type Request struct {
	Tokens []uint32 // at least one; not kept
	// Generate is the number of output tokens. The last one is sampled but
	// never computed, so its KV is in no block. 0 computes the prompt only.
	Generate int
	// Output are the tokens to generate; where it is shorter than Generate,
	// random ones follow.
	Output []uint32
	LoRA   string
	Salt   string
	// Report announces the blocks that were found cached once more, as
	// kv_cache_report_mode=full does: nothing marks these stores, and no removal
	// matches them, so whoever counts copies counts too many.
	Report bool
}

// Job is a request inside a Pool. Admitted and Done are safe for concurrent
// use; what the other methods return may be read by whoever has seen Done, and
// before that only where nobody steps the pool at the same time.
type Job struct {
	req    Request
	scope  *scope
	tokens []uint32 // prompt and what was generated so far

	prefixes []*prefix // of all full blocks of tokens
	blocks   []*block
	computed int // tokens that have a place in blocks
	seen     int // full blocks that have been looked at for announcing
	fresh    []*prefix

	generated int
	cached    int
	cachedGPU int
	admitted  atomic.Bool
	done      atomic.Bool
	preempted int
}

// Admitted reports whether a step has started the job.
func (j *Job) Admitted() bool { return j.admitted.Load() }

// Done reports whether the job has finished, by itself or by Pool.Finish.
func (j *Job) Done() bool { return j.done.Load() }

// Cached is the engine's cached_tokens: how many leading tokens of the prompt
// were not computed when the job was admitted, a whole number of blocks and
// never the whole prompt. With a CPU tier it counts blocks of either tier. 0
// until Admitted.
func (j *Job) Cached() int { return j.cached }

// CachedGPU is the part of Cached up to the first block that was not on the
// GPU.
func (j *Job) CachedGPU() int { return j.cachedGPU }

// Tokens returns the prompt and everything that was generated so far, the
// next turn's prompt. The slice is the job's own until it is Done.
func (j *Job) Tokens() []uint32 { return j.tokens }

// Preemptions is how often the job lost its blocks and started again.
func (j *Job) Preemptions() int { return j.preempted }

// extendPrefixes hashes the blocks that tokens have filled since.
func (j *Job) extendPrefixes(h hasher, blockSize int) {
	for n := len(j.prefixes); (n+1)*blockSize <= len(j.tokens); n++ {
		var parent *prefix
		if n > 0 {
			parent = j.prefixes[n-1]
		}
		j.prefixes = append(j.prefixes, h.next(j.scope, parent, j.tokens[n*blockSize:(n+1)*blockSize]))
	}
}

// sample appends the next output token and reports whether it was the last.
func (j *Job) sample(random func() uint32) bool {
	if j.generated < j.req.Generate {
		var t uint32
		if j.generated < len(j.req.Output) {
			t = j.req.Output[j.generated]
		} else {
			t = random()
		}
		j.tokens = append(j.tokens, t)
		j.generated++
	}
	return j.generated >= j.req.Generate
}
