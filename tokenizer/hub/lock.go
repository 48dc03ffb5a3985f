package hub

import (
	"context"
	"os"
	"path/filepath"
	"time"
)

// lockPoll is how often a lock that another process holds is tried.
const lockPoll = 100 * time.Millisecond

// lock waits for a lock file. Where there can be none it goes on without: it
// only saves work. The file stays, as huggingface_hub leaves it.
func (c *Cache) lock(ctx context.Context, path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return func() {}, nil //nolint:nilerr // see above
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o664)
	if err != nil {
		return func() {}, nil //nolint:nilerr // see above
	}
	for {
		held, err := tryLock(f)
		if err != nil {
			f.Close()
			return func() {}, nil //nolint:nilerr // see above
		}
		if !held {
			return func() { f.Close() }, nil
		}
		if err := c.sleep(ctx, lockPoll); err != nil {
			f.Close()
			return nil, err
		}
	}
}
