package api

import (
	"encoding/json/v2"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/kvindex/kvindex/indexer"
)

// dumpChunk is how much of a dump is gathered before it is sent.
const dumpChunk = 64 << 10

// dump streams blocks to one client in constant memory.
type dump struct {
	s     *Server
	c     *gin.Context
	text  bool
	buf   []byte
	limit int // lines left, -1: no limit
	err   error

	instance string // "" for all
}

// handleSnapshot answers GET /v1/snapshot with what a fresh replica goes on
// from.
func (s *Server) handleSnapshot(c *gin.Context) error {
	if s.snapshot == nil {
		return notFound("this kvindex gives no snapshots")
	}
	s.snapshot.ServeHTTP(c.Writer, c.Request)
	return nil
}

// handleDump answers GET /v1/dump?model=&instance=&limit=: one JSON object a
// line, in no order. It is no snapshot: the index changes while it runs.
func (s *Server) handleDump(c *gin.Context) error {
	d := &dump{s: s, c: c, text: wantsText(c.Request), limit: -1}
	if v := c.Query("limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 {
			return invalid("limit", "limit is %s, which is not a number of lines", shown(v))
		}
		d.limit = n
	}
	models := s.index.Models()
	if v := c.Query("model"); v != "" {
		model, _, ok := s.index.Resolve(v)
		if !ok {
			return notFound("no model %s is followed", shown(v))
		}
		models = []string{model}
	}
	if v := c.Query("instance"); v != "" {
		d.instance = v
		if inst, ok := s.fleet.Find(v); ok {
			d.instance = inst.ID
		}
	}
	h := c.Writer.Header()
	h.Set("Content-Type", "application/x-ndjson")
	if d.text {
		h.Set("Content-Type", "text/plain; charset=utf-8")
		d.buf = append(d.buf, "MODEL\tBLOCK\tSEQ_HASH\tPARENT\tPOSITION\tHOLDERS\n"...)
	}
	h.Set("X-Content-Type-Options", "nosniff")
	if c.Request.Method == http.MethodHead {
		return nil
	}
	c.Writer.WriteHeader(http.StatusOK)
	for _, model := range models {
		for _, t := range s.index.Tables(model) {
			key := t.Key()
			t.Walk(func(b indexer.BlockInfo) bool { return d.add(key, b) })
		}
	}
	d.flush()
	return d.err
}

// add adds a line for b and reports whether more are wanted.
func (d *dump) add(key indexer.TableKey, b indexer.BlockInfo) bool {
	if d.err != nil || d.limit == 0 {
		return false
	}
	if d.instance != "" && !slices.ContainsFunc(b.Holders, func(h indexer.BlockHolder) bool {
		return h.Stream.Instance == d.instance
	}) {
		return true
	}
	if d.limit > 0 {
		d.limit--
	}
	line := newBlockJSON(key, b)
	if d.text {
		d.buf = appendDumpRow(d.buf, &line)
	} else {
		j, err := json.Marshal(line)
		if err != nil {
			d.err = fmt.Errorf("cannot encode a block: %w", err)
			return false
		}
		d.buf = append(append(d.buf, j...), '\n')
	}
	if len(d.buf) >= dumpChunk {
		d.flush()
	}
	return d.err == nil
}

// appendDumpRow appends a block as a line for people. Columns are separated
// by tabs and not aligned: that would take all of them in memory.
func appendDumpRow(b []byte, j *blockJSON) []byte {
	parent := "-"
	if j.Parent != nil {
		parent = *j.Parent
	}
	b = append(b, cell(j.Model)...)
	b = appendInt(b, "\t", j.BlockSize)
	b = append(append(b, '\t'), j.SeqHash...)
	b = append(append(b, '\t'), parent...)
	b = appendInt(b, "\t", j.Position)
	b = append(b, '\t')
	for i, h := range j.Holders {
		if i > 0 {
			b = append(b, ' ')
		}
		b = append(b, cell(h.Instance)...)
		b = appendInt(b, "/", h.DPRank)
		b = append(append(b, '/'), h.Tier...)
		if h.Copies > 1 {
			b = appendInt(b, "x", h.Copies)
		}
		if h.Suspect {
			b = append(b, '?')
		}
	}
	return append(b, '\n')
}

// flush sends what is gathered. A client gets writeTimeout for every chunk,
// however long the whole takes.
func (d *dump) flush() {
	if d.err != nil || len(d.buf) == 0 {
		return
	}
	// Not supported outside net/http's own server, which has no deadline then.
	_ = http.NewResponseController(d.c.Writer).SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := d.c.Writer.Write(d.buf); err != nil {
		d.err = &Error{http.StatusRequestTimeout, codeRequestAborted, "the caller stopped reading", ""}
	}
	d.c.Writer.Flush()
	d.buf = d.buf[:0]
}
