package api

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/kvindex/kvindex/indexer"
	"github.com/kvindex/kvindex/tokenizer"
)

// Tokenizers knows the token ids that engines compute of texts and chats; a
// *tokenizer.Registry does. The API calls it from many goroutines at once.
type Tokenizers interface {
	// Tokens returns the token ids that an instance of the model computes of a
	// request, exactly those. An error's text is the reason that the caller is
	// told; it must hold nothing of the request.
	Tokens(ctx context.Context, model string, r tokenizer.Request) (tokenizer.Tokens, tokenizer.Source, error)

	// Status says how the tokenizer of a model is doing; ok is false if it has
	// none.
	Status(model string) (status tokenizer.Status, ok bool)

	// Names are the models that have one.
	Names() []string

	// Reload reads a model's files again.
	Reload(ctx context.Context, model string) (tokenizer.Status, error)

	// CacheStats says what is remembered of all models together.
	CacheStats() tokenizer.CacheStats
}

// tokenize turns the text of q into tokens, where it has one and the model's
// tokenizer knows them, and says how long that took.
func (s *Server) tokenize(ctx context.Context, q *queryRequest) time.Duration {
	if q.source != sourceText {
		return 0
	}
	if s.tokenizers == nil {
		q.noTokens = "kvindex has no tokenizer"
		return 0
	}
	begin := time.Now()
	model, _, ok := s.index.Resolve(q.model)
	if !ok {
		model = q.model
	}
	kind := tokenizer.ChatCompletions
	if q.sourceName == "prompt" {
		kind = tokenizer.Completions
	}
	t, from, err := s.tokenizers.Tokens(ctx, model, tokenizer.Request{Kind: kind, Body: q.raw, Valid: true})
	switch {
	case err != nil:
		q.noTokens = err.Error()
	case t.Count > s.limits.Tokens:
		q.noTokens = "the prompt has more tokens than a query may have"
	default:
		q.prompt, q.source, q.tokenized = t, sourcePrompt, from
	}
	return time.Since(begin)
}

// blockHashes are the hash functions by which tokenized prompts remember the
// hashes of their blocks, one a block size. The zero value with index set is
// ready; it is safe for concurrent use.
type blockHashes struct {
	index  *indexer.Index
	bySize sync.Map // int -> *tokenizer.BlockHash
}

func (b *blockHashes) of(size int) *tokenizer.BlockHash {
	if h, ok := b.bySize.Load(size); ok {
		return h.(*tokenizer.BlockHash)
	}
	hasher := b.index.Hasher()
	h, _ := b.bySize.LoadOrStore(size, &tokenizer.BlockHash{
		Size: size,
		Hash: func(tokens []uint32) uint64 { return uint64(hasher.Local(tokens, nil)) },
	})
	return h.(*tokenizer.BlockHash)
}

// localHashes returns the hashes of q's blocks of the given size, which the
// prompt's beginning remembers. The slice is q's.
func (b *blockHashes) localHashes(q *queryRequest, size int) []indexer.LocalHash {
	q.sums = q.prompt.AppendBlocks(b.of(size), q.sums[:0])
	q.local = q.local[:0]
	for _, s := range q.sums {
		q.local = append(q.local, indexer.LocalHash(s))
	}
	return q.local
}

// tokenIDs returns the token ids of a query that was made with tokens or has
// been tokenized. The slice is q's.
func (q *queryRequest) tokenIDs() []uint32 {
	if q.source == sourcePrompt && len(q.tokens) != q.prompt.Count {
		q.tokens = q.prompt.AppendIDs(q.tokens[:0])
	}
	return q.tokens
}

// tokenizeError maps an error of Tokens for a route that is about nothing else.
func tokenizeError(model string, err error) error {
	if invalid := (*tokenizer.InvalidError)(nil); errors.As(err, &invalid) {
		return &Error{http.StatusBadRequest, codeInvalid, invalid.Reason, ""}
	}
	return unavailable("the tokens of a request for %s are not known: %s", shown(model), err.Error())
}
