// Package redisstore keeps snapshots in Redis, where every replica of a fleet
// finds them.
//
//	kvindex:{CLUSTER}:snap:ID:0 ...     the chunks, strings of 1 MiB
//	kvindex:{CLUSTER}:snap:ID:manifest  what the chunks must be
//	kvindex:{CLUSTER}:latest            the id of the newest whole snapshot
//	kvindex:{CLUSTER}:previous          and of the one before
//	kvindex:{CLUSTER}:writer            who wrote the latest, its id, and of how many streams all is in it
//
// CLUSTER is the name of the fleet. The braces are part of the keys: they keep
// all of them in one slot of a Redis Cluster.
//
// A snapshot is written chunk by chunk under its own id, then its manifest; then
// a script makes it the latest, if it is newer. So any number of replicas write
// at once, and a reader sees whole snapshots only. What is no longer latest or
// previous stays for Options.Grace, for those who are reading it. Redis may lose
// or evict any key at any time: then the snapshot is rejected.
//
// Newer is not always better: a replica that started cold knows less than one
// that has followed the same engines from their start. So the snapshot of a
// writer that knows more (snapshot.Meta.Complete) is not replaced by that of one
// that knows less, as long as the former goes on writing: the key writer expires
// if it does not, and Redis's clock alone decides when. Among equals, and where
// nobody knows all of any stream, the newest counts.
//
// The user needs +get +mget +getrange +set +pexpire +unlink +eval +evalsha
// +exists on ~kvindex:*.
package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/kvindex/kvindex/indexer/snapshot"
)

// Options are the settings of a Store. Client and Cluster are needed.
type Options struct {
	Client  redis.UniversalClient // the caller closes it
	Name    string                // of the server, in logs
	Cluster string                // name of the fleet: letters, digits, . _ -

	TTL    time.Duration   // of a snapshot that no newer one replaces; 0: 24 h
	Grace  time.Duration   // of one that was replaced, and of one that is being written; 0: 3 min
	Limits snapshot.Limits // of what is read

	// Stands is how long a snapshot stands against those of writers that know
	// less, if its own writer does not write again: several times as long as
	// between two snapshots. 0: 3 min
	Stands time.Duration
}

// Validate reports the first setting that cannot be used.
func (o Options) Validate() error {
	if o.Client == nil {
		return errors.New("cannot keep snapshots in Redis without a client")
	}
	if o.Cluster == "" {
		return errors.New("cannot keep snapshots in Redis without a name for the cluster")
	}
	for _, c := range o.Cluster {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("._-", c) {
			return fmt.Errorf("cannot use the cluster name %q in Redis: %q is not a letter, a digit, or one of . _ -", o.Cluster, c)
		}
	}
	return nil
}

// Store keeps the snapshots of one fleet. It is safe for concurrent use, by
// several processes too.
type Store struct {
	o      Options
	prefix string
	writer string // names us
	ids    snapshot.IDs
}

// batch is how many chunks come in one round trip: what Open needs memory for.
const batch = 4

// New returns a store. It connects to nothing yet.
func New(o Options) (*Store, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Name == "" {
		o.Name = "redis"
	}
	o.TTL, o.Grace = orDefault(o.TTL, 24*time.Hour), orDefault(o.Grace, 3*time.Minute)
	o.Stands = orDefault(o.Stands, 3*time.Minute)
	return &Store{o: o, prefix: "kvindex:{" + o.Cluster + "}:", writer: fmt.Sprintf("%016x", rand.Uint64())}, nil
}

// String names the store in logs.
func (s *Store) String() string { return s.o.Name }

func (s *Store) latest() string   { return s.prefix + "latest" }
func (s *Store) previous() string { return s.prefix + "previous" }

func (s *Store) key(id snapshot.ID, part string) string {
	return s.prefix + "snap:" + id.String() + ":" + part
}

func (s *Store) chunk(id snapshot.ID, n int) string { return s.key(id, strconv.Itoa(n)) }

func (s *Store) manifest(id snapshot.ID) string { return s.key(id, "manifest") }

// pointers returns the ids of the latest snapshot and the one before, the newest
// first. Values that are no ids are passed over.
func (s *Store) pointers(ctx context.Context) ([]snapshot.ID, error) {
	values, err := s.o.Client.MGet(ctx, s.latest(), s.previous()).Result()
	if err != nil {
		return nil, err
	}
	var ids []snapshot.ID
	for _, v := range values {
		text, _ := v.(string)
		if id, err := snapshot.ParseID(text); err == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Open opens the newest snapshot that is older than before; zero is no bound.
// ErrNone means that there is none. ctx bounds the reading too.
func (s *Store) Open(ctx context.Context, before snapshot.ID) (*snapshot.Reader, error) {
	ids, err := s.pointers(ctx)
	if err != nil {
		return nil, s.wrap("read a snapshot from", err)
	}
	for _, id := range ids {
		if before == (snapshot.ID{}) || id.Compare(before) < 0 {
			r, err := s.open(ctx, id)
			return r, s.wrap("read a snapshot from", snapshot.WithID(err, id))
		}
	}
	return nil, fmt.Errorf("%w in %s for cluster %q", snapshot.ErrNone, s.o.Name, s.o.Cluster)
}

func (s *Store) open(ctx context.Context, id snapshot.ID) (*snapshot.Reader, error) {
	manifest, info, err := s.describe(ctx, id)
	if err != nil {
		return nil, err
	}
	f := &fetcher{s: s, id: id, chunks: info.Chunks}
	return snapshot.NewChunkReader(manifest, s.o.Limits, func(n, _ int) ([]byte, error) {
		b, err := f.get(ctx, n)
		return b, s.wrap("read a snapshot from", err)
	})
}

// describe reads a manifest.
func (s *Store) describe(ctx context.Context, id snapshot.ID) ([]byte, snapshot.Info, error) {
	b, err := s.o.Client.GetRange(ctx, s.manifest(id), 0, s.o.Limits.MaxManifest()).Bytes()
	if err != nil {
		return nil, snapshot.Info{}, noString(err)
	}
	if len(b) == 0 {
		return nil, snapshot.Info{}, snapshot.Reject(snapshot.ReasonMissing, "its manifest is not there any more")
	}
	info, err := snapshot.DecodeManifest(b, s.o.Limits)
	if err == nil && info.ID != id {
		err = snapshot.Reject(snapshot.ReasonMismatch, "its manifest is that of %s", info.ID)
	}
	return b, info, err
}

// List describes the snapshots, the newest first, by their manifests.
func (s *Store) List(ctx context.Context) ([]snapshot.Info, error) {
	ids, err := s.pointers(ctx)
	if err != nil {
		return nil, s.wrap("list snapshots in", err)
	}
	var infos []snapshot.Info
	for _, id := range ids {
		_, info, err := s.describe(ctx, id)
		if rejected := (*snapshot.RejectedError)(nil); err != nil && !errors.As(err, &rejected) {
			return nil, s.wrap("list snapshots in", err)
		}
		info.ID, info.Err = id, snapshot.WithID(err, id)
		infos = append(infos, info)
	}
	return infos, nil
}

// noString makes a rejection of a key that holds something else: others may be
// whole.
func noString(err error) error {
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		return &snapshot.RejectedError{Reason: snapshot.ReasonMalformed, Err: err}
	}
	return err
}

// wrap names the server in an error, and tells a full one from others.
func (s *Store) wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	if redis.IsOOMError(err) {
		err = fmt.Errorf("%w: %w", snapshot.ErrFull, err)
	}
	return fmt.Errorf("cannot %s %s: %w", what, s.o.Name, err)
}

// fetcher gets chunks, some in advance.
type fetcher struct {
	s      *Store
	id     snapshot.ID
	chunks int
	ready  [][]byte // from chunk first
	first  int
}

func (f *fetcher) get(ctx context.Context, n int) ([]byte, error) {
	if n >= f.first+len(f.ready) {
		if err := f.fetch(ctx, n); err != nil {
			return nil, err
		}
	}
	b := f.ready[n-f.first]
	f.ready[n-f.first] = nil
	if len(b) == 0 {
		return nil, snapshot.Reject(snapshot.ReasonMissing, "chunk %d of %d is not there any more", n, f.chunks)
	}
	return b, nil
}

func (f *fetcher) fetch(ctx context.Context, n int) error {
	var replies [batch]*redis.StringCmd
	count := min(batch, f.chunks-n)
	_, err := f.s.o.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range count {
			// One byte more than a chunk has shows a value that is too long, however
			// long it is.
			replies[i] = p.GetRange(ctx, f.s.chunk(f.id, n+i), 0, snapshot.ChunkSize)
		}
		return nil
	})
	if err != nil {
		return noString(err)
	}
	f.ready, f.first = f.ready[:0], n
	for _, r := range replies[:count] {
		b, err := r.Bytes()
		if err != nil {
			return err
		}
		f.ready = append(f.ready, b)
	}
	return nil
}
