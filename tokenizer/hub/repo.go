package hub

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// repo is a model's folder in the cache.
type repo struct {
	dir   string // models--Org--Name
	locks string // its locks
}

func newRepo(cache, name string) repo {
	folder := "models--" + strings.ReplaceAll(name, "/", "--")
	return repo{dir: filepath.Join(cache, folder), locks: filepath.Join(cache, ".locks", folder)}
}

func (r repo) blob(etag string) string       { return filepath.Join(r.dir, "blobs", etag) }
func (r repo) snapshot(commit string) string { return filepath.Join(r.dir, "snapshots", commit) }
func (r repo) pointer(commit, file string) string {
	return filepath.Join(r.snapshot(commit), filepath.FromSlash(file))
}
func (r repo) ref(revision string) string {
	return filepath.Join(r.dir, "refs", filepath.FromSlash(revision))
}
func (r repo) noExist(commit, file string) string {
	return filepath.Join(r.dir, ".no_exist", commit, filepath.FromSlash(file))
}

// commit is what the revision is as far as the cache knows, or "".
func (r repo) commit(revision string) string {
	if commitHash.MatchString(revision) {
		return revision
	}
	b, err := os.ReadFile(r.ref(revision))
	if err != nil {
		return ""
	}
	if c := strings.TrimSpace(string(b)); commitHash.MatchString(c) {
		return c
	}
	return ""
}

// holdings are what the cache has of a commit's wanted files.
type holdings struct {
	commit   string
	required string   // the file that must be there
	files    []string // there
	unknown  []string // not there, and nothing says that the commit lacks them
}

// usable reports whether a tokenizer can be made of them.
func (h holdings) usable() bool { return len(h.files) > 0 && h.files[0] == h.required }

// holdings looks for the wanted files, the first of which is required.
func (r repo) holdings(commit string, wanted []string, maxFile int64) (holdings, error) {
	h := holdings{commit: commit, required: wanted[0]}
	if commit == "" {
		return h, nil
	}
	tree := r.tree(commit)
	for i, name := range wanted {
		st, err := os.Stat(r.pointer(commit, name))
		switch {
		case err == nil && st.Mode().IsRegular():
			if st.Size() > maxFile {
				return h, tooLarge(r.pointer(commit, name), st.Size(), maxFile)
			}
			h.files = append(h.files, name)
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return h, fmt.Errorf("cannot look into the model cache: %w", err)
		case i > 0 && (tree.lacks(name) || exists(r.noExist(commit, name))):
		default:
			h.unknown = append(h.unknown, name)
		}
	}
	return h, nil
}

// tree is huggingface_hub's list of a commit's files (_tree_cache.py), or nil.
type tree map[string]json.RawMessage

func (t tree) lacks(name string) bool {
	_, ok := t[name]
	return t != nil && !ok
}

// tree reads the list of a commit's files. One that cannot be read, or is of
// another version, is as good as none.
func (r repo) tree(commit string) tree {
	f, err := os.Open(filepath.Join(r.dir, "trees", commit+".json"))
	if err != nil {
		return nil
	}
	defer f.Close()
	const most = 32 << 20
	var list struct {
		Version int  `json:"format_version"`
		Files   tree `json:"files"`
	}
	if json.NewDecoder(io.LimitReader(f, most)).Decode(&list) != nil || list.Version != 1 {
		return nil
	}
	return list.Files
}

// link makes a blob visible as a file of a commit, in one step.
func (c *Cache) link(r repo, commit, file, etag string) error {
	pointer := r.pointer(commit, file)
	if err := os.MkdirAll(filepath.Dir(pointer), 0o777); err != nil {
		return fmt.Errorf("cannot write to the model cache: %w", err)
	}
	target, err := filepath.Rel(filepath.Dir(pointer), r.blob(etag))
	if err != nil {
		return fmt.Errorf("cannot link %q in the model cache: %w", file, err)
	}
	temporary := uniqueName(pointer, "tmp")
	defer func() { _ = os.Remove(temporary) }()
	if c.symlink(target, temporary) != nil {
		if err := copyFile(temporary, r.blob(etag)); err != nil {
			return fmt.Errorf("cannot copy %q in the model cache: %w", file, err)
		}
	}
	if err := os.Rename(temporary, pointer); err != nil {
		return fmt.Errorf("cannot link %q in the model cache: %w", file, err)
	}
	return nil
}

// record writes what a revision is now, unless the cache has it already.
func (r repo) record(revision, commit string) error {
	if revision == commit || r.commit(revision) == commit {
		return nil
	}
	return replaceFile(r.ref(revision), commit)
}

// replaceFile writes a small file in one step.
func replaceFile(path, content string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	temporary := uniqueName(path, "tmp")
	defer func() { _ = os.Remove(temporary) }()
	if err := os.WriteFile(temporary, []byte(content), 0o666); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

func copyFile(to, from string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Sync(), dst.Close())
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// uniqueName is a name beside path that no other process uses.
func uniqueName(path, suffix string) string {
	return fmt.Sprintf("%s.%08x.%s", path, rand.Uint32(), suffix)
}
