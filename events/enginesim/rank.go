package enginesim

import (
	"fmt"
	"slices"
	"sync"

	"github.com/kvindex/kvindex/indexer"
)

// Rank is one data-parallel rank of an Engine. Each step of its pool that
// makes events publishes one batch. All methods are safe for concurrent use; Run
// and Flood hold the rank until they are done.
type Rank struct {
	o      *EngineOptions
	id     int
	stream *Stream

	mu        sync.Mutex
	pool      *Pool
	lives     int // processes so far
	badSize   int // block size of the next batches, if wrong
	badSizeIn int // batches left that have it
}

func startRank(o *EngineOptions, id int) (*Rank, error) {
	r := &Rank{o: o, id: id}
	if err := r.newPool(); err != nil {
		return nil, err
	}
	var err error
	r.stream, err = startAt(o.Stream, id)
	return r, err
}

// newPool starts the cache of a new process.
func (r *Rank) newPool() error {
	po := r.o.Pool
	po.Seed = r.o.Seed<<16 + uint64(r.id)<<8 + uint64(r.lives)
	if r.o.PrivateHashes {
		po.HashSeed = fmt.Sprintf("%s/%d/%d/%d", po.HashSeed, r.o.Seed, r.id, r.lives)
	}
	p, err := NewPool(po)
	if err != nil {
		return err
	}
	r.pool = p
	r.lives++
	return nil
}

// ID is the rank's number, data_parallel_rank of its batches.
func (r *Rank) ID() int { return r.id }

// Stream is the rank's publisher, with its faults.
func (r *Rank) Stream() *Stream { return r.stream }

// Run runs a request to its end, publishes a batch a step, and returns the
// engine's cached_tokens: what an exact and up-to-date index says of the
// prompt, at most all of its whole blocks but the last token's.
func (r *Rank) Run(req Request) (cached int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	cached, batches, err := r.pool.Run(req)
	if err != nil {
		return 0, err
	}
	return cached, r.publish(batches...)
}

// Begin queues a request for the next steps.
func (r *Rank) Begin(req Request) (*Job, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pool.Begin(req)
}

// Step runs one scheduler step over all jobs and publishes its batch, if there
// is any.
func (r *Rank) Step() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.publish(r.pool.Step())
}

// Finish ends a job before its time.
func (r *Rank) Finish(j *Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pool.Finish(j)
}

// Reset empties the cache; an index hears of it with the next step. It fails
// with ErrInUse while a job is running.
func (r *Rank) Reset() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pool.Reset()
}

// Clear is Reset and the step that publishes it.
func (r *Rank) Clear() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.pool.Reset(); err != nil {
		return err
	}
	return r.publish(r.pool.Step())
}

// Truth is what the rank holds now.
func (r *Rank) Truth(h indexer.Hasher) Truth {
	t := Truth{}
	r.addTruth(t, h)
	return t
}

func (r *Rank) addTruth(t Truth, h indexer.Hasher) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pool.addTruth(t, r.id, h)
}

// Flood runs n random requests of one block each and then publishes their
// batches as fast as the socket takes them.
func (r *Rank) Flood(n int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	payloads := make([][]byte, 0, n)
	for len(payloads) < n {
		batches, err := r.randomBlock()
		if err != nil {
			return err
		}
		for _, b := range batches {
			payloads = append(payloads, r.encode(b))
		}
	}
	return r.stream.PublishAll(payloads)
}

// WrongBlockSize makes the next n batches tell a wrong block size in their
// stores; what the pool holds stays right.
func (r *Rank) WrongBlockSize(size, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.badSize, r.badSizeIn = size, n
}

// fill runs random requests until the next batch has at least the given
// number.
func (r *Rank) fill(seq uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.stream.Seq() < seq {
		batches, err := r.randomBlock()
		if err != nil {
			return err
		}
		if err := r.publish(batches...); err != nil {
			return err
		}
	}
	return nil
}

// randomBlock runs a random request that fills one block.
func (r *Rank) randomBlock() ([][]Event, error) {
	_, batches, err := r.pool.Run(Request{Tokens: r.pool.RandomTokens(r.pool.BlockSize())})
	if err != nil {
		return nil, fmt.Errorf("cannot run a random request: %w", err)
	}
	return batches, nil
}

// kill ends the process of the rank; its jobs are done.
func (r *Rank) kill() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, j := range slices.Concat(r.pool.running, r.pool.waiting) {
		j.done.Store(true)
	}
	if err := r.stream.Kill(); err != nil {
		return err
	}
	return r.newPool()
}

// publish sends the batches that are not empty.
func (r *Rank) publish(batches ...[]Event) error {
	for _, events := range batches {
		if len(events) == 0 {
			continue
		}
		if _, err := r.stream.Publish(r.encode(events)); err != nil {
			return fmt.Errorf("cannot publish a batch of rank %d: %w", r.id, err)
		}
	}
	return nil
}

func (r *Rank) encode(events []Event) []byte {
	if r.badSizeIn > 0 {
		r.badSizeIn--
		for i := range events {
			if events[i].Kind == Stored && events[i].BlockSize != 0 {
				events[i].BlockSize = r.badSize
			}
		}
	}
	return r.o.Encoding.AppendBatch(nil, Batch{Time: r.o.Clock(), Events: events, Rank: r.id})
}
