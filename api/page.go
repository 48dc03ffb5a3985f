package api

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
)

//go:embed page.html
var pageTemplate string

// pageData is what the page shows.
type pageData struct {
	Version   string
	Uptime    time.Duration
	Readiness readiness
	Models    []modelJSON
	Instances []pageInstance
}

type pageInstance struct {
	InstanceDetail
	Blocks TierCounts
}

// newPage parses the page.
func newPage() (*template.Template, error) {
	return template.New("page").Funcs(template.FuncMap{"age": shownAge}).Parse(pageTemplate)
}

// handlePage answers GET / with a page for people: it is whole in itself,
// runs no script and loads itself anew every few seconds.
func (s *Server) handlePage(c *gin.Context) error {
	d := pageData{Version: s.version, Uptime: time.Since(s.started).Truncate(time.Second), Models: s.models()}
	d.Readiness, _ = s.readiness()
	for _, inst := range s.fleet.Instances() {
		if detail, ok := s.fleet.Detail(inst.ID); ok {
			d.Instances = append(d.Instances, pageInstance{detail, detail.blocks()})
		}
	}
	if wantsText(c.Request) {
		return s.showPageText(c, &d)
	}
	var buf bytes.Buffer
	if err := s.page.Execute(&buf, &d); err != nil {
		return fmt.Errorf("cannot make the page: %w", err)
	}
	h := c.Writer.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
	h.Set("Cache-Control", "no-store")
	s.write(c, http.StatusOK, "text/html; charset=utf-8", buf.Bytes())
	return nil
}

// showPageText is the page for curl.
func (s *Server) showPageText(c *gin.Context, d *pageData) error {
	var t table
	t.row("kvindex", d.Version, d.Readiness.Status)
	t.head("INSTANCE", "MODEL", "RANK", "STATE", "LAST EVENT", "GPU", "CPU", "DISK", "SUSPECT", "REASON")
	for _, inst := range d.Instances {
		for _, st := range inst.Streams {
			t.row(inst.ID, inst.Model, st.DPRank, st.State, shownAge(st.LastEvent), st.Blocks.GPU, st.Blocks.CPU, st.Blocks.Disk, st.SuspectBlocks, st.Reason)
		}
	}
	s.write(c, http.StatusOK, "text/plain; charset=utf-8", t.bytes())
	return nil
}
