package hub

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// DefaultRevision is the branch that is meant where none is named.
const DefaultRevision = "main"

// Source names a model on a hub.
type Source struct {
	Repo     string // "Org/Name", or "Name"
	Revision string // branch, tag or commit; "" is DefaultRevision
}

// ParseSource reads "Org/Name" or "Org/Name@revision". Its error wraps
// ErrInvalid.
func ParseSource(s string) (Source, error) {
	repo, revision, pinned := strings.Cut(s, "@")
	src := Source{Repo: repo, Revision: revision}
	if pinned && revision == "" {
		return Source{}, fmt.Errorf("model %q: nothing follows the @: %w", s, ErrInvalid)
	}
	if err := src.Validate(); err != nil {
		return Source{}, err
	}
	return src, nil
}

// String is the form that ParseSource reads.
func (s Source) String() string {
	if s.Revision == "" {
		return s.Repo
	}
	return s.Repo + "@" + s.Revision
}

func (s Source) revision() string {
	if s.Revision == "" {
		return DefaultRevision
	}
	return s.Revision
}

// What may stand in a path or a URL. Repositories are as huggingface_hub
// checks them (validate_repo_id).
var (
	repoPart     = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?$`)
	revisionName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_./+@-]{0,254}$`)
	commitHash   = regexp.MustCompile(`^[0-9a-f]{40}$`)
	blobName     = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
)

// Validate says whether the names can be used in paths and URLs. Its error
// wraps ErrInvalid.
func (s Source) Validate() error {
	parts := strings.Split(s.Repo, "/")
	ok := len(parts) <= 2 && !strings.Contains(s.Repo, "--") && !strings.Contains(s.Repo, "..") && !strings.HasSuffix(s.Repo, ".git")
	for _, p := range parts {
		ok = ok && repoPart.MatchString(p)
	}
	if !ok {
		return fmt.Errorf("model %q is no name of a hub such as Qwen/Qwen3-0.6B: %w", s.Repo, ErrInvalid)
	}
	r := s.revision()
	if !revisionName.MatchString(r) || !fs.ValidPath(r) || strings.Contains(r, "..") || strings.HasSuffix(r, ".lock") {
		return fmt.Errorf("revision %q of model %q is no branch, tag or commit: %w", r, s.Repo, ErrInvalid)
	}
	return nil
}

// IsDirectory reports whether source, as it stands in a configuration, means a
// directory and not a model on a hub: it looks like a path, or a directory of
// that name has a tokenizer.json.
func IsDirectory(source string) bool {
	if filepath.IsAbs(source) || source == "." || source == ".." ||
		strings.HasPrefix(source, "./") || strings.HasPrefix(source, "../") {
		return true
	}
	st, err := os.Stat(filepath.Join(source, requiredFile))
	return err == nil && st.Mode().IsRegular()
}

// validFile says whether a file's name can be used in paths and URLs.
func validFile(name string) error {
	if !fs.ValidPath(name) || name == "." || !filepath.IsLocal(name) || strings.ContainsAny(name, "\\:\x00") {
		return fmt.Errorf("file %q is no path inside a repository: %w", name, ErrInvalid)
	}
	return nil
}
