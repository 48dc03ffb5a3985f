package api

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/kvindex/kvindex/indexer"
)

// work is the storage of one query: body, decoded request, match, response.
// It goes back to a pool, so that a query allocates little however long its
// prompt is.
type work struct {
	body []byte
	scan scanner
	q    queryRequest
	m    matcher
	out  []byte
}

func newWork(x *indexer.Index, f Fleet, h *blockHashes, starting func() string) *work {
	return &work{m: matcher{index: x, fleet: f, hashes: h, starting: starting, named: map[string]int32{}, spelt: map[string]struct{}{}}}
}

// maxPooledBody is the size of a body above which its storage is left to the
// garbage collector.
const maxPooledBody = 4 << 20

// getWork and putWork borrow and return a work.
func (s *Server) getWork() *work { return s.work.Get().(*work) }

func (s *Server) putWork(w *work) {
	if cap(w.body) <= maxPooledBody {
		s.work.Put(w)
	}
}

// readBody reads the body of a request into buf[:0]. Storage grows with what
// arrives, not with what the header promises: thousands of clients that
// promise and do not send must cost little.
func readBody(c *gin.Context, buf []byte, limit int64) ([]byte, error) {
	buf = buf[:0]
	r := c.Request
	if enc := r.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return buf, &Error{http.StatusUnsupportedMediaType, codeEncoding,
			"bodies are taken as they are, not with Content-Encoding " + shown(enc), ""}
	}
	if r.ContentLength > limit {
		return buf, tooLarge("", "the body of %d bytes is over the limit of %d", r.ContentLength, limit)
	}
	body := http.MaxBytesReader(c.Writer, r.Body, limit)
	for {
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, max(16<<10, len(buf)))
		}
		n, err := body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case err == nil:
			continue
		case errors.Is(err, io.EOF):
			if len(buf) == 0 {
				return buf, malformed(0, "the body is empty")
			}
			return buf, nil
		}
		if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return buf, tooLarge("", "the body is over the limit of %d bytes", e.Limit)
		}
		return buf, &Error{http.StatusRequestTimeout, codeRequestAborted, "the body did not arrive whole and in time", ""}
	}
}

// isStrict reports whether unknown request fields are errors: ?strict=1.
func isStrict(r *http.Request) bool {
	if r.URL.RawQuery == "" {
		return false
	}
	switch r.URL.Query().Get("strict") {
	case "1", "true":
		return true
	}
	return false
}
