package kthena

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Client is what a Reader needs of a Redis client. Any of go-redis is one.
type Client interface {
	Pipelined(ctx context.Context, f func(redis.Pipeliner) error) ([]redis.Cmder, error)
}

// Options are the settings of a Reader. Client is needed.
type Options struct {
	Client    Client
	MaxBlocks int           // of a prompt that are asked for; 0: 4,096
	MaxAge    time.Duration // reports that are older do not count; 0: all do
}

// Validate reports the first setting that cannot be used.
func (o Options) Validate() error {
	if o.Client == nil {
		return errors.New("cannot read kthena's blocks without a Redis client")
	}
	if o.MaxBlocks < 0 || o.MaxAge < 0 {
		return fmt.Errorf("cannot read kthena's blocks with max_blocks %d, max_age %v: they must not be negative", o.MaxBlocks, o.MaxAge)
	}
	return nil
}

// Reader asks Redis for blocks. It is safe for concurrent use.
type Reader struct{ o Options }

// batch is how many blocks are asked for in one round trip.
const batch = 128

// NewReader returns a Reader.
func NewReader(o Options) (*Reader, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.MaxBlocks == 0 {
		o.MaxBlocks = 4096
	}
	return &Reader{o: o}, nil
}

// Pod is what one pod holds of a prompt, as far as flat hashes tell.
type Pod struct {
	Blocks int            // leading blocks
	Near   [Tiers]int     // of them, those up to the first that is only farther away: GPU, CPU, anywhere
	Oldest time.Time      // report among theirs
	Medium map[string]int // blocks by the engine's name of the tier; "": not told
}

// Tiers is how many kinds of memory are told apart: 0 is the GPU's, 1 the CPU's,
// 2 anything else.
const Tiers = 3

// tierOf is the tier of a medium, as engines call it. What is not told is on the
// GPU: only for that were the first sidecars written.
func tierOf(medium string) int {
	switch m := strings.ToUpper(medium); {
	case m == "" || strings.HasPrefix(m, "GPU"):
		return 0
	case strings.HasPrefix(m, "CPU"):
		return 1
	}
	return 2
}

// Match is the answer to one prompt.
type Match struct {
	Pods  map[string]Pod // by the name that the sidecar gave them, POD.NAMESPACE; only those with a block
	Asked int            // blocks
}

// Match returns, for each pod that holds the first block of a prompt, how many
// blocks it holds up to the first that it does not. hashes are FlatHashes of
// the prompt. It takes one round trip for 128 blocks and stops where no pod
// goes on. Values that cannot be read count as no report.
func (r *Reader) Match(ctx context.Context, model string, hashes []uint64) (Match, error) {
	m := Match{Pods: map[string]Pod{}}
	hashes = hashes[:min(len(hashes), r.o.MaxBlocks)]
	for m.Asked < len(hashes) {
		part := hashes[m.Asked:min(m.Asked+batch, len(hashes))]
		reports, err := r.ask(ctx, model, part)
		if err != nil {
			return Match{}, fmt.Errorf("cannot ask Redis for %d blocks of %q: %w", len(part), model, err)
		}
		leading := 0
		for i, of := range reports {
			leading = r.extend(m.Pods, m.Asked+i, of.Val())
			if leading == 0 {
				break
			}
		}
		m.Asked += len(part)
		if leading == 0 {
			break
		}
	}
	return m, nil
}

func (r *Reader) ask(ctx context.Context, model string, hashes []uint64) ([]*redis.MapStringStringCmd, error) {
	replies := make([]*redis.MapStringStringCmd, len(hashes))
	_, err := r.o.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, h := range hashes {
			replies[i] = p.HGetAll(ctx, Key(model, h))
		}
		return nil
	})
	return replies, err
}

// extend adds block n to those pods that hold all before it, and returns how
// many it is in.
func (r *Reader) extend(pods map[string]Pod, n int, reports map[string]string) (leading int) {
	for name, value := range reports {
		p := pods[name]
		if p.Blocks != n {
			continue
		}
		reported, medium, err := ParseValue(value)
		if err != nil || r.o.MaxAge > 0 && time.Since(reported) > r.o.MaxAge {
			continue
		}
		if p.Medium == nil {
			p.Medium = map[string]int{}
		}
		if n == 0 || reported.Before(p.Oldest) {
			p.Oldest = reported
		}
		for t := tierOf(medium); t < Tiers; t++ {
			if p.Near[t] == n {
				p.Near[t]++
			}
		}
		p.Blocks++
		p.Medium[medium]++
		pods[name] = p
		leading++
	}
	return leading
}
