package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// The origins of a Snapshot; one from the cache may be followed by the reason
// why the hub was of no help.
const (
	OriginDirectory = "directory"
	OriginCache     = "cache"
	OriginDownload  = "download"
)

// Snapshot is a directory with a model's files, all of one commit.
type Snapshot struct {
	Dir    string // links to files; os.DirFS and os.ReadFile follow them
	Commit string // "" of a directory
	// Origin is OriginDirectory, OriginCache or OriginDownload, or "cache, " and
	// what the hub said when it should have been asked.
	Origin string
	Files  []string // of the wanted files those that the commit has
	// Unchecked are files that the cache does not have and of which nothing says
	// whether the commit has them, because the hub could not be asked.
	Unchecked []string
}

// Cache is a cache of models' files and the hub that fills it. It is safe for
// concurrent use, also by several processes.
type Cache struct {
	o      Options
	client *http.Client
	origin string // of the endpoint
	host   string

	// What tests replace.
	sleep   func(context.Context, time.Duration) error
	now     func() time.Time
	symlink func(target, name string) error
	ticker  func() (ticks <-chan time.Time, stop func())

	mu     sync.Mutex
	flying map[Source]*flight
}

// flight is a Fetch that others wait for.
type flight struct {
	done chan struct{}
	snap *Snapshot
	err  error
	gone bool // the caller who flew it gave up
}

// New returns a Cache. Its error wraps ErrInvalid.
func New(o Options) (*Cache, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.setDefaults()
	o.Files = slices.Clone(o.Files)
	u, err := url.Parse(o.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("the hub's endpoint is no URL: %w", ErrInvalid)
	}
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}}
	if o.Client != nil {
		*client = *o.Client
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Cache{
		o: o, client: client, origin: origin(u), host: u.Host,
		sleep: sleep, now: time.Now, symlink: os.Symlink, flying: map[Source]*flight{},
		ticker: func() (<-chan time.Time, func()) {
			t := time.NewTicker(progressEvery)
			return t.C, t.Stop
		},
	}, nil
}

// Fetch is New and Cache.Fetch.
func Fetch(ctx context.Context, o Options, src Source) (*Snapshot, error) {
	c, err := New(o)
	if err != nil {
		return nil, err
	}
	return c.Fetch(ctx, src)
}

// Locate is what a configuration means by source: a directory (IsDirectory), or
// a model on the hub, as ParseSource reads it.
func (c *Cache) Locate(ctx context.Context, source string) (*Snapshot, error) {
	if !IsDirectory(source) {
		src, err := ParseSource(source)
		if err != nil {
			return nil, fmt.Errorf("%q is neither a directory with a %s nor a model: %w", source, c.o.Files[0], err)
		}
		return c.Fetch(ctx, src)
	}
	s := &Snapshot{Dir: source, Origin: OriginDirectory}
	for _, name := range c.o.Files {
		if exists(filepath.Join(source, filepath.FromSlash(name))) {
			s.Files = append(s.Files, name)
		}
	}
	if !slices.Contains(s.Files, c.o.Files[0]) {
		return nil, fmt.Errorf("directory %q holds no %s: %w", source, c.o.Files[0], fs.ErrNotExist)
	}
	return s, nil
}

// Fetch returns the files of a model: from the cache if that has the commit,
// else from the hub. Calls for the same source share one. It ends with its
// context; what was downloaded by then is kept.
func (c *Cache) Fetch(ctx context.Context, src Source) (*Snapshot, error) {
	if err := src.Validate(); err != nil {
		return nil, err
	}
	src.Revision = src.revision()
	for {
		c.mu.Lock()
		f, wait := c.flying[src]
		if !wait {
			f = &flight{done: make(chan struct{})}
			c.flying[src] = f
		}
		c.mu.Unlock()
		if !wait {
			c.fly(ctx, src, f)
			return f.snap, f.err
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("cannot get model %q: %w", src, ctx.Err())
		}
		if !f.gone {
			return f.snap, f.err
		}
	}
}

func (c *Cache) fly(ctx context.Context, src Source, f *flight) {
	defer func() {
		c.mu.Lock()
		delete(c.flying, src)
		c.mu.Unlock()
		close(f.done)
	}()
	ticks, stop := c.ticker()
	defer stop()
	p := startProgress(c.o.Logger.With("model", src.Repo, "revision", src.Revision), ticks)
	defer p.close()
	if f.snap, f.err = c.get(ctx, src, p); f.err != nil {
		f.snap, f.err, f.gone = nil, fmt.Errorf("cannot get model %q: %w", src, f.err), ctx.Err() != nil
	}
	if c.o.Client == nil {
		c.client.CloseIdleConnections()
	}
}

// get is Fetch.
func (c *Cache) get(ctx context.Context, src Source, p *progress) (*Snapshot, error) {
	r := newRepo(c.o.Dir, src.Repo)
	local, err := r.holdings(r.commit(src.Revision), c.o.Files, c.o.MaxFile)
	if err != nil {
		return nil, err
	}
	if c.o.LocalOnly {
		if !local.usable() {
			return nil, fmt.Errorf("%w, and %s has no %s of it", ErrOffline, r.dir, c.o.Files[0])
		}
		return c.snapshot(r, local, OriginCache), nil
	}
	pinned := src.Revision == local.commit
	if pinned && local.usable() && len(local.unknown) == 0 {
		return c.snapshot(r, local, OriginCache), nil
	}
	snap, err := c.fromHub(ctx, r, src, local, p)
	switch {
	case err == nil || ctx.Err() != nil:
		return snap, err
	case !local.usable():
		return nil, advise(err, src)
	case !pinned && !cacheWillDo(err):
		return nil, err
	}
	c.o.Logger.Warn("using what the cache has of a model",
		"model", src.Repo, "revision", src.Revision, "commit", local.commit, "reason", err)
	return c.snapshot(r, local, OriginCache+", "+err.Error()), nil
}

// cacheWillDo reports whether what the cache has of a branch or tag may be used
// after an error: not if the hub says that there is no such branch, or what it
// is now can never be used.
func cacheWillDo(err error) bool {
	return errors.Is(err, errNoRepo) || !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrTooLarge)
}

func (c *Cache) snapshot(r repo, h holdings, origin string) *Snapshot {
	return &Snapshot{Dir: r.snapshot(h.commit), Commit: h.commit, Origin: origin, Files: h.files, Unchecked: h.unknown}
}

// fromHub completes the cache and returns what it has then.
func (c *Cache) fromHub(ctx context.Context, r repo, src Source, local holdings, p *progress) (*Snapshot, error) {
	retries := c.o.Retries
	if local.usable() {
		retries = 0 // there is something to use meanwhile
	}
	required := c.o.Files[0]
	first := meta{commit: local.commit}
	if local.commit != src.Revision || !local.usable() {
		var err error
		if first, err = c.ask(ctx, src, required, retries, p); err != nil {
			if errors.Is(err, errNoEntry) {
				err = fmt.Errorf("%w: revision %q has no %s", ErrNotFound, src.Revision, required)
			}
			return nil, err
		}
		if commitHash.MatchString(src.Revision) && first.commit != src.Revision {
			return nil, fmt.Errorf("%w: the hub says that commit %s is %s", ErrBroken, src.Revision, first.commit)
		}
	}
	h, err := r.holdings(first.commit, c.o.Files, c.o.MaxFile)
	if err != nil {
		return nil, err
	}
	origin := OriginCache
	for _, file := range slices.Backward(h.unknown) { // the required one last
		m := first
		if file != required {
			m, err = c.ask(ctx, Source{Repo: src.Repo, Revision: first.commit}, file, retries, p)
			if errors.Is(err, errNoEntry) {
				_ = replaceFile(r.noExist(first.commit, file), "") // else it is asked for again
				continue
			}
			if err != nil {
				return nil, err
			}
		}
		fetched, err := c.add(ctx, r, src.Repo, file, m, first.commit, p)
		if err != nil {
			return nil, err
		}
		if fetched {
			origin = OriginDownload
		}
	}
	if err := r.record(src.Revision, first.commit); err != nil {
		c.o.Logger.Warn("cannot record a model's revision in the cache",
			"model", src.Repo, "revision", src.Revision, "commit", first.commit, "reason", err)
	}
	if h, err = r.holdings(first.commit, c.o.Files, c.o.MaxFile); err != nil {
		return nil, err
	}
	if origin == OriginDownload {
		c.o.Logger.Info("model's files downloaded",
			"model", src.Repo, "revision", src.Revision, "commit", h.commit, "dir", r.snapshot(h.commit), "files", h.files)
	}
	return c.snapshot(r, h, origin), nil
}

// ask is head, again and again.
func (c *Cache) ask(ctx context.Context, src Source, file string, retries int, p *progress) (m meta, err error) {
	p.at("the hub's answer about "+file, -1)
	err = c.retry(ctx, retries, file, func() error {
		m, err = c.head(ctx, src.Repo, src.Revision, file)
		return err
	})
	return m, err
}

// add brings a file of a commit into the cache.
func (c *Cache) add(ctx context.Context, r repo, name, file string, m meta, commit string, p *progress) (fetched bool, err error) {
	if m.commit != commit {
		return false, fmt.Errorf("%w: asked for %s of commit %s, the hub answered for %s", ErrBroken, file, commit, m.commit)
	}
	if m.size > c.o.MaxFile {
		return false, tooLarge(file, m.size, c.o.MaxFile)
	}
	fetched, err = c.blobOf(ctx, r, name, file, m, p)
	if err != nil {
		return false, err
	}
	return fetched, c.link(r, commit, file, m.etag)
}
