package api

import (
	"bytes"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"net/http"
	"strings"
	"text/tabwriter"

	"github.com/gin-gonic/gin"
)

// writeJSON writes v as the response.
func (s *Server) writeJSON(c *gin.Context, status int, v any) error {
	var buf bytes.Buffer
	if err := json.MarshalWrite(&buf, v, json.Deterministic(true), jsontext.AllowInvalidUTF8(true)); err != nil {
		return fmt.Errorf("cannot encode the response: %w", err)
	}
	buf.WriteByte('\n')
	s.write(c, status, "application/json", buf.Bytes())
	return nil
}

// show answers a GET: v as JSON, or what text fills in as an aligned table
// where the caller wants to read it.
func (s *Server) show(c *gin.Context, status int, v any, text func(t *table)) error {
	c.Writer.Header().Set("Vary", "Accept")
	if !wantsText(c.Request) {
		return s.writeJSON(c, status, v)
	}
	var t table
	text(&t)
	s.write(c, status, "text/plain; charset=utf-8", t.bytes())
	return nil
}

// wantsText reports whether a GET is to be answered with a table:
// ?format=table, or an Accept that names text/plain and not JSON.
func wantsText(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	if r.URL.RawQuery != "" {
		switch r.URL.Query().Get("format") {
		case "table", "text":
			return true
		case "json":
			return false
		}
	}
	accept := r.Header.Get("Accept")
	return strings.Contains(accept, "text/plain") && !strings.Contains(accept, "application/json")
}

// table is aligned text: groups of rows, each under a heading.
type table struct {
	buf bytes.Buffer
	w   *tabwriter.Writer
}

// head begins a group of rows with the names of its columns.
func (t *table) head(columns ...any) {
	if t.w != nil {
		_ = t.w.Flush() // into memory
		t.buf.WriteByte('\n')
	}
	t.w = tabwriter.NewWriter(&t.buf, 0, 8, 2, ' ', 0)
	t.row(columns...)
}

// row adds a row. Cells are shown as fmt.Sprint shows them, in one line.
func (t *table) row(cells ...any) {
	if t.w == nil {
		t.w = tabwriter.NewWriter(&t.buf, 0, 8, 2, ' ', 0)
	}
	for i, c := range cells {
		if i > 0 {
			_, _ = t.w.Write([]byte{'\t'}) // into memory
		}
		text := cell(fmt.Sprint(c))
		if text == "" {
			text = "-"
		}
		_, _ = t.w.Write([]byte(text))
	}
	_, _ = t.w.Write([]byte{'\n'})
}

func (t *table) bytes() []byte {
	if t.w != nil {
		_ = t.w.Flush() // into memory
	}
	// A last column that is shorter than its heading leaves no blanks behind.
	var out bytes.Buffer
	for line := range bytes.Lines(t.buf.Bytes()) {
		out.Write(bytes.TrimRight(line, " \n"))
		out.WriteByte('\n')
	}
	return out.Bytes()
}

// cell makes s safe to print: names come from clients, and a terminal obeys
// control characters.
func cell(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || (r >= 0x7f && r < 0xa0) {
			return '?'
		}
		return r
	}, s)
}

// shownAge is an age as a table shows it.
func shownAge(a Age) string {
	if !a.Known {
		return "never"
	}
	return a.Since.Truncate(1e6).String()
}
