package api

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"
)

// handleQuery answers POST /v1/query.
func (s *Server) handleQuery(c *gin.Context) error { return s.answerQuery(c, false) }

// handleExplain answers POST /v1/explain: a query with "explain": true.
func (s *Server) handleExplain(c *gin.Context) error { return s.answerQuery(c, true) }

// answerQuery decodes a query, matches it and answers.
func (s *Server) answerQuery(c *gin.Context, explain bool) error {
	return s.withWork(c, func(w *work) error {
		begin := time.Now()
		w.q.reset()
		if err := w.decode(isStrict(c.Request), &s.limits); err != nil {
			return err
		}
		w.q.explain = w.q.explain || explain
		decoded := time.Now()
		if err := s.answer(c.Request.Context(), w, begin, decoded); err != nil {
			return err
		}
		w.out = append(w.out, '\n')
		return nil
	})
}

// withWork reads the body into a borrowed work, lets f make the response of
// it in w.out, and writes that.
func (s *Server) withWork(c *gin.Context, f func(w *work) error) error {
	w := s.getWork()
	defer s.putWork(w)
	var err error
	// The place among the concurrent queries is taken when the body has
	// arrived: slow senders must not keep others out.
	if w.body, err = readBody(c, w.body, s.limits.BodyBytes); err != nil {
		return err
	}
	w.out = w.out[:0]
	if err := s.admitted(func() error { return f(w) }); err != nil {
		return err
	}
	s.write(c, http.StatusOK, "application/json", w.out)
	return nil
}

// admitted runs f as one of the queries that are answered at once.
func (s *Server) admitted(f func() error) error {
	if err := s.admit(); err != nil {
		return err
	}
	defer s.release()
	return f()
}

// decode decodes the whole body as one query.
func (w *work) decode(strict bool, l *Limits) error {
	w.scan.reset(w.body)
	if err := w.scan.decodeQuery(&w.q, strict, l); err != nil {
		return err
	}
	return w.scan.end()
}

// complete checks that q says for which model and which prompt it asks.
func (q *queryRequest) complete() error {
	if q.model == "" {
		return missing("model", "the query names no model")
	}
	if q.source == sourceNone {
		return missing("token_ids", "the query has no prompt: give one of token_ids, token_ids_b64, seq_hashes, local_hashes, prompt, messages")
	}
	return nil
}

// answer matches the decoded query in w and appends the answer to w.out.
func (s *Server) answer(ctx context.Context, w *work, begin, decoded time.Time) error {
	if err := w.q.complete(); err != nil {
		return err
	}
	tokenize := s.tokenize(ctx, &w.q)
	if err := w.q.checkMode(); err != nil {
		return err
	}
	if err := w.m.run(&w.q); err != nil {
		return err
	}
	s.flatten(ctx, w)
	sum := w.m.summarize(&w.q)
	var explain jsontext.Value
	if w.q.explain && w.q.source != sourceText {
		var err error
		if explain, err = w.m.explain(&w.q, s.limits.ExplainBlocks); err != nil {
			return err
		}
	}
	s.metrics.query(&w.m, &w.q, sum)
	s.witness.saw(&w.m, &w.q, sum)
	t := timings{decode: decoded.Sub(begin), tokenize: tokenize, hash: w.m.hashed, match: w.m.matched, total: time.Since(begin)}
	w.out = w.m.appendAnswer(w.out, &w.q, sum, t, explain)
	return nil
}

// handleBatch answers POST /v1/query:batch: {"queries":[...]} with
// {"answers":[...]} in the same order. A query that is wrong fails the batch,
// and the error's field says which.
func (s *Server) handleBatch(c *gin.Context) error {
	strict := isStrict(c.Request)
	return s.withWork(c, func(w *work) error {
		w.scan.reset(w.body)
		w.out = append(w.out, `{"answers":[`...)
		seen := false
		err := w.scan.object(func(name []byte) error {
			if string(name) != "queries" {
				if strict {
					return unknownField(string(name), []string{"queries"})
				}
				_, err := w.scan.value()
				return err
			}
			if seen {
				return contradictory("queries", "queries is given twice")
			}
			seen = true
			if w.scan.peek() != '[' {
				return invalid("queries", "queries is not an array of queries")
			}
			return s.batch(c.Request.Context(), w, strict)
		})
		if err == nil {
			err = w.scan.end()
		}
		if err == nil && !seen {
			err = missing("queries", "the batch has no queries")
		}
		w.out = append(w.out, "]}\n"...)
		return err
	})
}

// batch answers the array of queries that w.scan is at.
func (s *Server) batch(ctx context.Context, w *work, strict bool) error {
	return w.scan.array(func(n int) error {
		if n == s.limits.Batch {
			return tooLarge("queries", "the batch holds more than %d queries", n)
		}
		if n > 0 {
			w.out = append(w.out, ',')
		}
		begin := time.Now()
		w.q.reset()
		err := w.scan.decodeQuery(&w.q, strict, &s.limits)
		if err == nil {
			err = s.answer(ctx, w, begin, time.Now())
		}
		return inQuery(n, err)
	})
}

// inQuery says of an error in which query of a batch it is.
func inQuery(n int, err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Code == codeMalformed {
		return err
	}
	at := "queries[" + strconv.Itoa(n) + "]"
	in := *e
	in.Reason = at + ": " + e.Reason
	if in.Field = at; e.Field != "" {
		in.Field = at + "." + e.Field
	}
	return &in
}
