package api

import (
	"bytes"
	_ "embed"
	"encoding/json/v2"
	"net/http"

	"github.com/gin-gonic/gin"
)

// openAPIDocument describes every route; tests hold real responses against
// it.
//
//go:embed openapi.json
var openAPIDocument []byte

// openAPI is the document with the version of this build in it.
func openAPI(version string) []byte {
	quoted, err := json.Marshal(version)
	if err != nil || version == "" {
		return openAPIDocument
	}
	return bytes.Replace(openAPIDocument, []byte(`"version": "0"`), append([]byte(`"version": `), quoted...), 1)
}

// handleOpenAPI answers GET /openapi.json.
func (s *Server) handleOpenAPI(c *gin.Context) error {
	s.write(c, http.StatusOK, "application/json", s.spec)
	return nil
}
