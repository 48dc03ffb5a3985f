package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// abandoned is how old an incomplete file must be for another process to go on
// with it: nobody writes to it any more.
const abandoned = 10 * time.Minute

// blobOf makes sure that a file's blob is in the cache; fetched says whether it
// had to be downloaded.
func (c *Cache) blobOf(ctx context.Context, r repo, repoName, file string, m meta, p *progress) (fetched bool, err error) {
	if hasBlob(r.blob(m.etag), m.size) {
		return false, nil
	}
	if err := os.MkdirAll(filepath.Dir(r.blob(m.etag)), 0o777); err != nil {
		return false, fmt.Errorf("cannot write to the model cache: %w", err)
	}
	p.at(file+" (another process downloads it)", m.size)
	unlock, err := c.lock(ctx, filepath.Join(r.locks, m.etag+".lock"))
	if err != nil {
		return false, err
	}
	defer unlock()
	if hasBlob(r.blob(m.etag), m.size) {
		return false, nil
	}
	p.at(file, m.size)
	return true, c.download(ctx, c.resolveURL(repoName, m.commit, file), r.blob(m.etag), file, m, p)
}

func hasBlob(path string, size int64) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular() && (size < 0 || st.Size() == size)
}

// download gets a blob into a file of its own, checks it and renames it. What
// there is of a broken download is kept for the next.
func (c *Cache) download(ctx context.Context, address, blob, file string, m meta, p *progress) error {
	part, err := claim(blob)
	if err != nil {
		return fmt.Errorf("cannot write to the model cache: %w", err)
	}
	keep := true
	defer func() {
		part.Close()
		if st, err := os.Stat(part.Name()); err == nil && keep && st.Size() > 0 {
			_ = os.Rename(part.Name(), blob+".incomplete")
			return
		}
		_ = os.Remove(part.Name()) // after the rename to the blob there is none
	}()
	err = c.retry(ctx, c.o.Retries, file, func() error {
		if err := c.rest(ctx, address, file, part, m, p); err != nil {
			return err
		}
		if err := verify(part, m.etag); err != nil {
			return errors.Join(&temporaryError{error: err}, part.Truncate(0))
		}
		return nil
	})
	if err != nil {
		keep = !errors.Is(err, ErrTooLarge)
		return err
	}
	if err := errors.Join(part.Sync(), part.Close()); err != nil {
		return fmt.Errorf("cannot write to the model cache: %w", err)
	}
	if err := os.Rename(part.Name(), blob); err != nil {
		return fmt.Errorf("cannot write to the model cache: %w", err)
	}
	return nil
}

// claim opens a file that only this download writes to, with what a broken one
// left of the blob.
func claim(blob string) (*os.File, error) {
	own := uniqueName(blob, "incomplete")
	if err := os.Rename(blob+".incomplete", own); errors.Is(err, fs.ErrNotExist) {
		left, _ := filepath.Glob(blob + ".*.incomplete")
		for _, old := range left {
			if st, err := os.Stat(old); err == nil && time.Since(st.ModTime()) > abandoned && os.Rename(old, own) == nil {
				break
			}
		}
	}
	return os.OpenFile(own, os.O_RDWR|os.O_CREATE, 0o666)
}

// rest downloads what the file lacks yet.
func (c *Cache) rest(ctx context.Context, address, file string, part *os.File, m meta, p *progress) error {
	have, err := part.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("cannot write to the model cache: %w", err)
	}
	if m.size >= 0 && have == m.size {
		return nil
	}
	if m.size >= 0 && have > m.size {
		if have, err = 0, part.Truncate(0); err != nil {
			return fmt.Errorf("cannot write to the model cache: %w", err)
		}
	}
	header := http.Header{}
	if have > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", have))
	}
	resp, err := c.follow(ctx, http.MethodGet, address, header, func(*http.Response) bool { return false })
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return errors.Join(part.Truncate(0), &temporaryError{
			error: unavailable("%s cannot go on at byte %d of %s", resp.Request.URL.Host, have, file),
		})
	}
	if err := c.downloadStatus(resp, file); err != nil {
		return err
	}
	if !strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", have)) {
		if resp.StatusCode == http.StatusPartialContent {
			return errors.Join(part.Truncate(0), &temporaryError{
				error: unavailable("%s sent another part of %s than the one from byte %d", resp.Request.URL.Host, file, have),
			})
		}
		have = 0 // it sends all of it
	}
	return c.receive(ctx, resp, file, part, have, m, p)
}

// downloadStatus is statusError for a file that the hub has announced: a status
// of the host that it redirected to says nothing about the model.
func (c *Cache) downloadStatus(resp *http.Response, file string) error {
	if e := resp.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return unavailable("%s sends %s in encoding %s, unasked", resp.Request.URL.Host, file, c.clean(e))
	}
	if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusPartialContent {
		return nil
	}
	err := c.statusError(resp)
	if err != nil && origin(resp.Request.URL) == c.origin && !errors.Is(err, errNoEntry) {
		return err
	}
	if again := (*temporaryError)(nil); errors.As(err, &again) {
		return err
	}
	// A signed URL may have expired: the next attempt gets another.
	return &temporaryError{error: unavailable("%s answered %d for %s", resp.Request.URL.Host, resp.StatusCode, file)}
}

// receive appends a response's body to the file from byte have on.
func (c *Cache) receive(ctx context.Context, resp *http.Response, file string, part *os.File, have int64, m meta, p *progress) error {
	if err := part.Truncate(have); err != nil {
		return fmt.Errorf("cannot write to the model cache: %w", err)
	}
	if _, err := part.Seek(have, io.SeekStart); err != nil {
		return fmt.Errorf("cannot write to the model cache: %w", err)
	}
	most := c.o.MaxFile
	if m.size >= 0 {
		most = m.size
	}
	p.reset(have)
	in := &failingReader{r: io.LimitReader(resp.Body, most-have+1)}
	n, err := io.Copy(io.MultiWriter(part, p), in)
	have += n
	switch {
	case in.err != nil && ctx.Err() != nil:
		return fmt.Errorf("cannot download %s: %w", file, ctx.Err())
	case in.err != nil:
		return &temporaryError{error: fmt.Errorf("%w: %s: the connection to %s broke after %d bytes: %s",
			ErrBroken, file, resp.Request.URL.Host, have, c.clean(in.err.Error()))}
	case err != nil:
		return fmt.Errorf("cannot write to the model cache: %w", err)
	case m.size < 0 && have > most:
		return tooLarge(file, have, most)
	case m.size >= 0 && have != m.size:
		err := &temporaryError{error: fmt.Errorf("%w: %s has %d bytes, and %s sent %d", ErrBroken, file, m.size, resp.Request.URL.Host, have)}
		if have > m.size {
			return errors.Join(err, part.Truncate(0))
		}
		return err
	}
	return nil
}

// failingReader remembers that reading failed, which io.Copy does not tell
// from writing.
type failingReader struct {
	r   io.Reader
	err error
}

func (f *failingReader) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		f.err = err
	}
	return n, err
}

func tooLarge(file string, size, most int64) error {
	return fmt.Errorf("%w: %s has %d bytes, and %d are allowed", ErrTooLarge, file, size, most)
}

// verify compares a file with its ETag: the SHA-256 of its content, or the
// SHA-1 of the git blob (mirrors that know nothing of git give that of the
// content).
func verify(f *os.File, etag string) error {
	st, err := f.Stat()
	if err != nil {
		return fmt.Errorf("cannot read the model cache: %w", err)
	}
	sums := []hash.Hash{sha256.New()}
	if len(etag) == hex.EncodedLen(sha1.Size) {
		sums = []hash.Hash{sha1.New(), sha1.New()}
		fmt.Fprintf(sums[0], "blob %d\x00", st.Size())
	}
	for _, h := range sums {
		if _, err := io.Copy(h, io.NewSectionReader(f, 0, st.Size())); err != nil {
			return fmt.Errorf("cannot read the model cache: %w", err)
		}
		if hex.EncodeToString(h.Sum(nil)) == etag {
			return nil
		}
	}
	return fmt.Errorf("%w: its content does not have the checksum %s", ErrBroken, etag)
}
