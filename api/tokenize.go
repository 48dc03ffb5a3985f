package api

import (
	"time"
)

// Tokenizers knows the token ids that engines compute of texts and chats. The
// API calls it from many goroutines at once.
type Tokenizers interface {
	// AppendTokens appends to dst the token ids of the prompt or the messages in
	// body, which is the JSON object of a completions or chat request for the
	// model, and says how many of them were known before. The ids are exactly
	// the engine's; where that cannot be promised there is an error, and its text
	// is the reason that the caller is told. It must hold nothing of the request.
	AppendTokens(dst []uint32, model string, body []byte) (ids []uint32, known int, err error)

	// TokenizerStatus says how the tokenizer of a model is doing; ok is false if
	// it has none.
	TokenizerStatus(model string) (status TokenizerStatus, ok bool)
}

// TokenizerStatus is what GET /v1/models says of a model's tokenizer.
type TokenizerStatus struct {
	State    string `json:"state"` // loading, ready, failed or quarantined
	Reason   string `json:"reason,omitzero"`
	Source   string `json:"source,omitzero"`
	Engine   string `json:"engine,omitzero"` // what computes, such as bpe/qwen2 or hf
	Proof    string `json:"proof,omitzero"`  // what showed that it is exact
	Requests uint64 `json:"requests"`        // texts tokenized
	Failures uint64 `json:"failures"`        // requests whose tokens could not be told
}

// tokenize turns the text of q into tokens, where it has one and the model's
// tokenizer knows them, and says how long that took.
func (s *Server) tokenize(q *queryRequest) time.Duration {
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
	ids, known, err := s.tokenizers.AppendTokens(q.tokens[:0], model, q.raw)
	switch {
	case err != nil:
		q.noTokens = err.Error()
	case len(ids) > s.limits.Tokens:
		q.noTokens = "the prompt has more tokens than a query may have"
	default:
		q.tokens, q.source, q.tokenized = ids, sourceTokens, "tokenizer"
		if known > 0 {
			q.tokenized = "prefix_cache"
		}
	}
	return time.Since(begin)
}
