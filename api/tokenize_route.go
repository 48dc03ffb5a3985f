package api

import (
	"net/http"
	"strconv"

	"github.com/gin-gonic/gin"

	"github.com/kvindex/kvindex/tokenizer"
)

// handleTokenize answers POST /tokenize as vLLM does: {"prompt": ...} or
// {"messages": [...]} with {"count", "max_model_len", "tokens", "token_strs"},
// so that a router whose only setting is the tokenizer's address can use
// kvindex unchanged. What cannot be told exactly is an error here.
func (s *Server) handleTokenize(c *gin.Context) error {
	return s.withWork(c, func(w *work) error {
		w.q.reset()
		if err := w.decode(false, &s.limits); err != nil {
			return err
		}
		kind := tokenizer.TokenizePrompt
		switch {
		case w.q.sourceName == "messages":
			kind = tokenizer.TokenizeChat
		case w.q.source != sourceText:
			return missing("prompt", `there is nothing to tokenize: give a text as "prompt", or "messages"`)
		}
		if w.q.wantStrings {
			return &Error{http.StatusUnprocessableEntity, codeUnprocessable,
				"kvindex gives token ids, not their spelling: ask an engine for token_strs", "return_token_strs"}
		}
		model, err := s.tokenizeModel(w.q.model)
		if err != nil {
			return err
		}
		t, _, err := s.tokenizers.Tokens(c.Request.Context(), model, tokenizer.Request{Kind: kind, Body: w.q.raw, Valid: true})
		if err != nil {
			return tokenizeError(model, err)
		}
		st, _ := s.tokenizers.Status(model)
		w.q.tokens = t.AppendIDs(w.q.tokens[:0])
		w.out = appendInt(w.out, `{"count":`, len(w.q.tokens))
		w.out = appendInt(w.out, `,"max_model_len":`, st.MaxLen)
		w.out = append(w.out, `,"tokens":[`...)
		for i, id := range w.q.tokens {
			if i > 0 {
				w.out = append(w.out, ',')
			}
			w.out = strconv.AppendUint(w.out, uint64(id), 10)
		}
		w.out = append(w.out, "],\"token_strs\":null}\n"...)
		return nil
	})
}

// tokenizeModel is the model that a request to tokenize means: engines need no
// name, for they serve one.
func (s *Server) tokenizeModel(name string) (string, error) {
	if s.tokenizers == nil {
		return "", unavailable("kvindex has no tokenizer")
	}
	if name != "" {
		if model, _, ok := s.index.Resolve(name); ok {
			return model, nil
		}
		return name, nil
	}
	switch names := s.tokenizers.Names(); len(names) {
	case 0:
		return "", missing("model", "the request names no model, and no tokenizer is configured")
	case 1:
		return names[0], nil
	}
	return "", missing("model", "the request names no model, and there is more than one tokenizer: GET /v1/models lists them")
}
